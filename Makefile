.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test slow kill faults soak fuzz audit alone lint format bench bench-compare bench-scale bench-report coverage clean

# The first of these that runs, is new enough and can make a virtual environment.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$p; break; }; done)

BIN := .venv/bin
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
# Aim has no release for Python 3.13 and newer.
FITTING = $(if $(shell $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))' && echo yes),$(PLUGINS),$(filter-out %-aim,$(PLUGINS)))

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	while IFS='|' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

# pip before 25.1 knows no --group. torch goes first: see [dependency-groups] in pyproject.toml.
.venv/.stamp: pyproject.toml $(PLUGINS:=/pyproject.toml)
	$(or $(PYTHON),$(error no Python 3.11 or newer found: set PYTHON=/path/to/python)) -m venv .venv
	$(BIN)/python -m pip install --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --group torch
	$(BIN)/python -m pip install --group dev -e . $(addprefix -e ,$(FITTING))
	touch $@

demo: .venv/.stamp ## run the example, end to end
	$(BIN)/python examples/demo.py

test: .venv/.stamp ## run the tests of the core and of the plugins, but the slow ones
	$(BIN)/python -m pytest -m "not slow"

slow: .venv/.stamp ## run the slow tests: long models, 20,000 bit flips
	$(BIN)/python -m pytest -m slow --timeout 1800
	EVENTLOG_EXAMPLES=2000 $(BIN)/python -m pytest --timeout 1800 tests/subscription tests/log/test_seek.py

kill: .venv/.stamp ## kill 500 times, at random moments, and check that nothing is lost: an hour
	EVENTLOG_KILLS=200 $(BIN)/python -m pytest -s tests/kill/test_kill.py
	EVENTLOG_KILLS=100 $(BIN)/python -m pytest -s tests/faults/test_kill_real.py

soak: .venv/.stamp ## run for 10 minutes with everything at once, and check that nothing grows
	$(BIN)/python tests/soak/soak.py

# Atheris has no build for every Python: without it hypothesis looks for as long.
FUZZ_SECONDS ?= 60
fuzz: .venv/.stamp ## fuzz each reader, FUZZ_SECONDS=60 each
	$(BIN)/python -m pip install -q --group fuzz || true
	$(BIN)/python fuzz/run.py $(FUZZ_SECONDS) $(FUZZ_TARGETS)

audit: .venv/.stamp ## ask a server for known faults of what is installed, and check the S rules
	$(BIN)/python -m pip install -q --group audit
	$(BIN)/ruff check --select S
	$(BIN)/pip-audit --skip-editable

faults: .venv/.stamp ## run the whole fault matrix, and write docs/fault-matrix.md: half an hour
	$(BIN)/python -m tests.faults.matrix --write

# mypy takes each plugin by itself, as each has a tests folder of the same name.
alone: ## test each plugin in an environment that has only that plugin: minutes, and a download each
	set -e; for plugin in $(FITTING); do \
		echo "== $$plugin"; \
		$(PYTHON) -m venv --clear .venv-alone; \
		.venv-alone/bin/python -m pip install -q --upgrade 'pip>=25.1'; \
		.venv-alone/bin/python -m pip install -q --group plugin-test -e . -e "$$plugin" \
			$$(grep -q '^test = ' $$plugin/pyproject.toml && echo "--group $$plugin/pyproject.toml:test"); \
		.venv-alone/bin/python -m pytest -q -m "not slow" "$$plugin/tests"; \
	done; rm -rf .venv-alone

lint: .venv/.stamp ## check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(wildcard src tests examples benchmarks fuzz)
	set -e; for plugin in $(PLUGINS); do $(BIN)/mypy "$$plugin"; done

format: .venv/.stamp ## fix style and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/.stamp ## run the benchmarks
	$(BIN)/python benchmarks/emit.py
	$(BIN)/python benchmarks/cadence.py
	$(BIN)/python benchmarks/subscription.py
	$(BIN)/python benchmarks/interference.py
	$(BIN)/python benchmarks/log.py

# An environment of its own: it has peers that nothing else here needs.
.venv-compare/.stamp: pyproject.toml $(PLUGINS:=/pyproject.toml)
	$(or $(PYTHON),$(error no Python 3.11 or newer found: set PYTHON=/path/to/python)) -m venv .venv-compare
	.venv-compare/bin/python -m pip install --upgrade 'pip>=25.1'
	.venv-compare/bin/python -m pip install --group torch
	.venv-compare/bin/python -m pip install --group dev --group compare -e . $(addprefix -e ,$(FITTING))
	touch $@

# BENCH=--quick takes some minutes instead of two hours.
BENCH ?=
RESULTS := build/benchmarks

bench-compare: .venv-compare/.stamp ## measure ours beside all other loggers (BENCH=--quick: less of it)
	mkdir -p $(RESULTS)
	.venv-compare/bin/python benchmarks/compare.py $(BENCH) --json $(RESULTS)/compare.json

bench-scale: .venv-compare/.stamp ## measure how ours grows (BENCH=--quick: less of it)
	mkdir -p $(RESULTS)
	.venv-compare/bin/python benchmarks/scale.py $(BENCH) --json $(RESULTS)/scale.json

bench-report: .venv-compare/.stamp ## bring what was measured into docs/performance.md
	.venv-compare/bin/python benchmarks/report.py $(sort $(wildcard $(RESULTS)/compare*.json $(RESULTS)/scale*.json))

coverage: .venv/.stamp ## run the tests and report the branches they miss
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine
	$(BIN)/coverage report

clean: ## remove the environment, caches and build and demo output
	rm -rf .venv .venv-alone .venv-compare build dist demo-output .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.*
	find src tests examples benchmarks plugins -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

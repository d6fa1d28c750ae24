"""Comet's SDK, imported and started so that the process stays as it was.

Importing `comet_ml` patches frameworks, replaces `sys.excepthook` and logs to the console; starting
an experiment ends the one that runs already, and keeps its files wherever the system has its
temporary ones. None of this is wanted here, and most of it has no switch in the SDK's own calls.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from eventlog.exceptions import RefusedError, UnavailableError
from eventlog_comet.online import of_response

__all__ = ["Experiment", "has_key", "load", "start"]

# what the environment of a user says has precedence
_QUIET = {
    "COMET_DISABLE_AUTO_LOGGING": "1",
    "COMET_ERROR_TRACKING_ENABLE": "false",
    "COMET_LOGGING_CONSOLE": "CRITICAL",  # what matters is raised
}

_OFF: dict[str, Any] = {
    "log_code": False,
    "log_graph": False,
    "parse_args": False,
    "display_summary_level": 0,
    "log_git_metadata": False,
    "log_git_patch": False,
    "log_env_details": False,
    "auto_output_logging": False,
    "auto_param_logging": False,
    "auto_metric_logging": False,
    "auto_log_co2": False,
}

_PATCHED = (
    "log_graph",
    "auto_param_logging",
    "auto_metric_logging",
    "auto_histogram_activation_logging",
    "auto_histogram_gradient_logging",
    "auto_histogram_tensorboard_logging",
    "auto_histogram_weight_logging",
)

# Comet's own retries take minutes; eventlog tries again by itself.
_SHORT = {
    "comet.get_or_add_experiment.retry_total": 1,
    "comet.get_or_add_experiment.retry_connect": 1,
    "comet.get_or_add_experiment.retry_read": 1,
    "comet.get_or_add_experiment.retry_status": 1,
    "comet.http_session.retry_total": 1,
}

_DRAWS = 16  # words of 32 bits; seen are 4

# os.environ, tempfile.tempdir and Comet's settings are the process's: one sink at a time.
_lock = threading.Lock()


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be started.

    Attributes:
        key: The experiment's; one that Comet knows already is gone on with.
        online: Whether it is sent to a server or kept in `directory`.
        directory: Where archives go; must exist.
        spool: Where the files of an offline experiment lie until it is archived; must exist.
        project, workspace: Comet's; None for Comet's defaults.
        server: Its address; None for Comet's own settings.
        options: Arguments of `comet_ml.ExperimentConfig`.
    """

    key: str
    online: bool
    directory: Path
    spool: Path
    project: str | None = None
    workspace: str | None = None
    server: str | None = None
    options: Mapping[str, Any] = {}


def load(options: Mapping[str, Any]) -> Any:
    """Return the SDK's module.

    Args:
        options: Those of the experiment: frameworks are patched only if one of them needs it.
    """
    with _lock, ExitStack() as stack:
        if "comet_ml" not in sys.modules:
            quiet = dict(_QUIET)
            if _patches(options):
                del quiet["COMET_DISABLE_AUTO_LOGGING"]
            stack.enter_context(_environment(quiet))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # what its imports warn of is not for our users
            stack.callback(setattr, sys, "excepthook", sys.excepthook)
            stack.callback(_take_back_draws, random.getstate())
        module = importlib.import_module("comet_ml")
        _give_own_randomness()
        return module


def has_key() -> bool:
    """Whether the SDK was told an API key in this process, as by `comet_ml.login`."""
    config: Any = sys.modules.get("comet_ml.config")
    return config is not None and bool(config.get_api_key(None, config.get_config()))


def _give_own_randomness() -> None:
    """Have the SDK draw its random numbers elsewhere than the training does.

    It would change what a seeded training does; and a training that is seeded again when it is
    resumed would make the SDK give both archives one name, and overwrite the first.
    """
    own = random.Random()  # noqa: S311 - no secrets are made of it
    for name, module in tuple(sys.modules.items()):
        if name.startswith("comet_ml.") and vars(module).get("random") is random:
            vars(module)["random"] = own


def _take_back_draws(before: tuple[Any, ...]) -> None:
    """Undo the numbers that are drawn when the SDK is imported, if nobody else drew many."""
    drawn = random.Random()  # noqa: S311 - no secrets are made of it
    drawn.setstate(before)
    for _ in range(_DRAWS):
        drawn.getrandbits(32)
        if random.getstate() == drawn.getstate():
            random.setstate(before)
            return


def start(wanted: Experiment, held: ExitStack) -> Any:
    """Return the running experiment, which is not the process's global one.

    Args:
        wanted: Which one.
        held: Gets what is to be undone when it has ended.

    Raises:
        UnavailableError: The server cannot be reached, or has an outage.
        RefusedError: The server, or the SDK, does not want this experiment.
        OSError: Its files cannot be written.
    """
    sdk = load(wanted.options)
    config = importlib.import_module("comet_ml.config")
    if wanted.server is not None:
        # the SDK's own setting names the path, too
        address = wanted.server.rstrip("/").removesuffix("/clientlib")
        held.enter_context(_defaults(config, {"comet.url_override": f"{address}/clientlib/"}))
    with _lock, ExitStack() as stack:
        stack.enter_context(_defaults(config, _SHORT))
        if not wanted.online:
            # the SDK calls mkdtemp() for its files and offers no other way to choose the place
            stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
            tempfile.tempdir = str(wanted.spool)
        if not _patches(wanted.options):
            # otherwise the SDK would end an experiment of the user's, or return that one
            stack.callback(config.set_global_experiment, config.get_global_experiment())
            config.set_global_experiment(None)
        experiment = _start(sdk, wanted)
    with suppress(AttributeError):
        experiment._atexit_hook.disable()  # eventlog closes its sinks itself
    if not _patches(wanted.options):
        experiment.disabled_monkey_patching = True
    return experiment


def _start(sdk: Any, wanted: Experiment) -> Any:
    errors = importlib.import_module("comet_ml.exceptions")
    requests = importlib.import_module("requests")
    try:
        options = sdk.ExperimentConfig(
            **{**_OFF, **wanted.options, "offline_directory": str(wanted.directory)}
        )
    except TypeError as error:
        raise RefusedError(f"sdk_options are not what Comet takes: {error}") from error
    try:
        experiment = sdk.start(
            project_name=wanted.project,
            workspace=wanted.workspace,
            experiment_key=wanted.key,
            mode="get_or_create",
            online=wanted.online,
            experiment_config=options,
        )
    except errors.InvalidOfflineDirectory as error:
        raise OSError(f"Comet cannot write to {wanted.directory}: {error}") from error
    except errors.CometRestApiException as error:
        raise of_response(error) from error
    except requests.RequestException as error:
        raise UnavailableError(f"Comet cannot be reached: {error}") from error
    except (errors.CometException, ValueError) as error:
        raise RefusedError(f"Comet does not take the run: {error}") from error
    if not experiment.alive:
        raise UnavailableError("Comet did not start the experiment; its log says why")
    return experiment


def _patches(options: Mapping[str, Any]) -> bool:
    return any(options.get(name) for name in _PATCHED)


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _defaults(config: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Change defaults of Comet's settings; what a user set has precedence."""
    known = {name: config.CONFIG_MAP[name] for name in values if name in config.CONFIG_MAP}
    before = {name: setting.get("default") for name, setting in known.items()}
    for name, setting in known.items():
        setting["default"] = values[name]
    try:
        yield
    finally:
        for name, setting in known.items():
            setting["default"] = before[name]

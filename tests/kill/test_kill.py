"""SIGKILL at any moment, of the trainer, the sidecar or both: nothing is lost, order is kept.

``EVENTLOG_KILLS`` says how many kills; `make kill` has 200, eight in a run.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventlog
from eventlog.events import Event, RunStarted, StepEvent
from eventlog.log.checkpoint import list_checkpoints
from eventlog.log.layout import BlockKind
from eventlog.log.segment_reader import Segment, list_segments
from eventlog.sidecar import deliver_plan, read_status

KILLS = int(os.environ.get("EVENTLOG_KILLS", "20"))
PER_RUN = 8 if KILLS > 20 else 4
RUNS = -(-KILLS // PER_RUN)
LEFT_AFTER = 40.0
"""Seconds after which no process may be left: the slow sink has a few to catch up with."""


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def strike(processes: Any, trainer: Any, victim: str, rng: random.Random) -> int | None:
    """Kill the victim; return how many steps the log must have, where the trainer was among it."""
    if victim == "sidecar":
        kill_all(processes.sidecars())
        return None
    if victim == "both":
        if rng.random() < 0.5:
            kill_all(processes.sidecars())
            due = trainer.kill()
        else:
            due = trainer.kill()
            kill_all(processes.sidecars())
        return int(due)
    processes.sidecars()
    return int(trainer.kill())


def finish(processes: Any, trainer: Any, how: str, environment: dict[str, str]) -> None:
    """Have the rest delivered."""
    if how == "close":
        assert trainer.end() == 0, (trainer.errors.read_text(), read_status(processes.run_dir, 0))
        return
    trainer.kill()
    run_dir = processes.run_dir
    if how == "by hand":
        command = [sys.executable, "-m", "eventlog.sidecar", str(run_dir)]
        done = subprocess.run(
            command, timeout=90, check=False, env=environment, stderr=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, (done.stderr, read_status(run_dir, 0))
    else:
        taken = anyio.run(deliver_plan, eventlog.open_log(run_dir))
        assert {s.state for s in taken.values()} == {"closed"}


def key(event: Event) -> tuple[int, int]:
    return event.attempt, event.seq


def check_log(events: list[Event], due: dict[int, int]) -> dict[Any, int]:
    """Check that each trainer's steps are there, in order, up to the window; return how many."""
    assert [e.seq for e in events] == list(range(len(events)))
    by_number: dict[Any, list[Any]] = {}
    for event in events:
        if type(event) is StepEvent:
            by_number.setdefault(event.values["k"], []).append(event.values["n"])
    assert list(by_number) == sorted(by_number)
    for number, steps in by_number.items():
        assert steps == list(range(len(steps)))
        assert len(steps) >= due.get(number, 0), f"trainer {number} lost events"
    missing = [number for number, n in due.items() if n and number not in by_number]
    assert not missing, (missing, due, {k: len(v) for k, v in by_number.items()})
    return {number: len(steps) for number, steps in by_number.items()}


def stored(directory: Path) -> int:
    """Return how many events lie in a log's files."""
    count = 0
    for _, path in list_segments(directory):
        segment = Segment(path)
        count += sum(b.header.events for b in segment.scan() if b.header.kind == BlockKind.EVENTS)
        segment.close()
    return count


def check_slow(path: Path, order: list[tuple[int, int]]) -> int:
    """Check what the slow sink took against the log; return how many batches came again."""
    at = {place: i for i, place in enumerate(order)}
    end = last = again = 0
    restarted = False
    for raw in path.read_text().splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # cut by the kill: the process never came to confirm it
        if "batch" not in line:
            restarted = restarted or "session" in line
            continue
        places = [at[tuple(place)] for place in line["batch"]]
        assert places == list(range(places[0], places[0] + len(places)))
        if places[0] != end:
            # the batch that was written but not confirmed comes again, once, and nothing else
            assert restarted
            assert places[0] == last
            again += 1
        last, end = places[0], places[-1] + 1
        restarted = False
    assert end == len(order)
    return again


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(RUNS))
def test_kills_at_random_moments(
    processes: Any,
    environment: dict[str, str],
    children: Path,
    seed: int,
) -> None:
    """After any number of kills each sink has the whole log, in order, and none in it twice."""
    rng = random.Random(seed)
    isolate = seed % 5 >= 2
    victims = ["trainer", "sidecar", "both"] if isolate else ["trainer"]
    due: dict[int, int] = {}
    trainer = None
    sidecar_kills = 0
    for _ in range(min(PER_RUN, KILLS - seed * PER_RUN)):
        if trainer is None:
            trainer = processes.start(isolate=isolate)
            sidecar_kills = 0
            trainer.wait_for(1)
        victim = rng.choice(victims)
        if victim == "sidecar" and sidecar_kills == 3:
            victim = "both"
        if victim != "trainer":
            while not processes.sidecars():
                time.sleep(0.01)
        # long enough for a sink to be flushed, now and then
        time.sleep(rng.uniform(1.2, 2.5) if rng.random() < 0.2 else rng.uniform(0.05, 0.9))
        expected = strike(processes, trainer, victim, rng)
        sidecar_kills += victim == "sidecar"
        if expected is not None:
            due[trainer.number] = expected
            trainer = None
            if rng.random() < 0.3:
                # the next attempt comes later than the last sidecar ends
                processes.wait_until_gone(LEFT_AFTER)
    if trainer is None:
        trainer = processes.start(isolate=isolate)
        trainer.wait_for(200)
    how = ("close", "by hand", "deliver_plan")[seed % 3]
    finish(processes, trainer, how, environment)
    processes.wait_until_gone(LEFT_AFTER)

    run_dir = processes.run_dir
    log = eventlog.open_log(run_dir)
    events = list(log.events())
    steps = check_log(events, due)
    copy = eventlog.open_log(run_dir / "copy")
    assert list(copy.events()) == events
    # a reader would pass over what is there twice
    assert stored(copy.directory) == len(events)
    assert not list(copy.directory.glob("*.elog.*"))
    again = check_slow(run_dir / "slow" / "batches.jsonl", [key(e) for e in events])
    assert again <= PER_RUN
    means = list(eventlog.open_log(run_dir / "mean").events())
    assert means == list(log.events(every="7 steps", reduce="mean"))
    assert sum(type(e) is RunStarted for e in events) == len({e.attempt for e in events})
    assert all(c.done for c in list_checkpoints(run_dir / "rank-0"))
    assert log.status() == ("finished" if how == "close" else "killed")
    ages = [t.age_of_what_is_lost(steps.get(t.number, 0)) for t in processes.trainers]
    print(
        f"seed {seed}: {sum(steps.values())} steps, {len(due)} trainers killed, what was lost was "
        f"at most {1000 * max(ages):.0f} ms old, {again} batches given again"
    )

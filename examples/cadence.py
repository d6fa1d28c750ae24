"""When something is due: texts, a FrequencyManager, and what becomes of the values in between.

python examples/cadence.py --dir runs
"""

from __future__ import annotations

import argparse
from pathlib import Path

import eventlog
from eventlog import FrequencyManager

TEXTS = ["10 steps", "1 epoch", "0.4 epochs", "pow2 steps", "5_000 tokens", "every update",
         "20 steps or 1 epoch"]  # fmt: skip


def record(directory: Path) -> Path:
    """Record 60 steps in 3 epochs, with a model update after step 33."""
    with eventlog.Run("cadence", dir=directory, steps_per_epoch=20) as run:
        for step in range(60):
            run.step(loss=1 / (step + 1), tokens=step * 256)
            if step == 33:
                run.model_updated("freeze", layers=2)
            if step % 20 == 19:
                run.epoch()
    assert run.dir is not None
    return run.dir


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    log = eventlog.open_log(record(parser.parse_args().dir))

    print("due at steps (the first and the last event always pass):")
    for text in TEXTS:
        steps = [event.step for event in log.events(types=["step"], every=text)]
        print(f"  {text:<20} {steps}")

    print("a FrequencyManager counts from the last log, or on a grid; steps come by sevens:")
    for anchor in ("last", "grid"):
        manager = FrequencyManager(10, frequency_type="step", anchor=anchor)
        due = []
        for step in range(0, 64, 7):
            if manager.log_ready(step):
                manager.log_written(step)
                due.append(step)
        print(f"  anchor={anchor:<13} {due}")

    print("on_change: not before the model has changed, and was left alone for 10 steps:")
    manager = FrequencyManager(10, mode="on_change", frequency_type="step")
    events = log.events(types=["step", "model_update"], every=manager)
    print(f"  update after 33      {[e.step for e in events if isinstance(e, eventlog.StepEvent)]}")

    print("reduced between two ticks:")
    reduce = {"loss": "mean", "tokens": "max"}
    for event in log.events(types=["step"], every="20 steps", reduce=reduce):
        assert event.window is not None
        first, last, n = event.window.first, event.window.last, event.window.n
        loss, tokens = event.values["loss"], event.values["tokens"]
        print(f"  steps {first:>2} to {last:>2} ({n:>2})   loss {loss:.3f}  tokens {tokens}")


if __name__ == "__main__":
    main()

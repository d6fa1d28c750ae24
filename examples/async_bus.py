"""An asynchronous training loop, and its readers, on one loop: asyncio's or trio's.

    python examples/async_bus.py
    python examples/async_bus.py --backend trio

A subscription has a place of its own in the stream of events: a reader that is slow, like the
second one here, holds up nobody.
"""

from __future__ import annotations

import argparse
import math

import anyio

from eventlog import EpochEvent, EventBus, StepEvent

STEPS_PER_EPOCH = 25


async def train(bus: EventBus, epochs: int) -> None:
    """Emit steps and epochs; `emit` is no coroutine and never waits."""
    for epoch in range(epochs):
        for step in range(epoch * STEPS_PER_EPOCH, (epoch + 1) * STEPS_PER_EPOCH):
            loss = math.exp(-step / 40)
            bus.emit(StepEvent(step=step, epoch=epoch, values={"loss": loss, "lr": 0.1}))
            await anyio.sleep(0.001)  # where an asynchronous loop waits for its next batch
        bus.emit(EpochEvent(step=step, epoch=epoch, values={"val/loss": loss * 1.1}))


async def each_tenth(bus: EventBus) -> None:
    """Print every tenth step; `start=0` reads from the first event on, even when it is past."""
    async with bus.subscribe(StepEvent, every="10 steps", start=0) as events:
        async for event in events:
            print(f"step {event.step:>2}   loss {event.values['loss']:.3f}")


async def means(bus: EventBus) -> None:
    """Print each epoch's mean loss, as slowly as if it went over a network."""
    async with bus.subscribe(StepEvent, every="1 epoch", reduce="mean", start=0) as events:
        async for event in events:
            await anyio.sleep(0.02)
            assert event.window is not None
            first, last, n = event.window.first, event.window.last, event.window.n
            loss = event.values["loss"]
            print(f"epoch {event.epoch}   mean loss {loss:.3f} of {n} steps, {first} to {last}")


async def main(epochs: int) -> None:
    # the bus is closed first, and then the readers' loops end once they have seen everything
    async with anyio.create_task_group() as readers, EventBus() as bus:
        readers.start_soon(each_tenth, bus)
        readers.start_soon(means, bus)
        await train(bus, epochs)
    print(f"{bus.statistics().log.written} events written")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    anyio.run(main, options.epochs, backend=options.backend)

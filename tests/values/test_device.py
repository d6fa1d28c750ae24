"""Values on a device reach the log, and nobody waits for the device.

There is no accelerator here: a tensor that says that it is on one stands in. It keeps what is
queued until the test lets its stream run, and fails the test when it is asked for a value.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, _device, open_log
from eventlog.events import Event, HistogramEvent, ImageEvent, StepEvent

torch: Any = pytest.importorskip("torch")

WAITING = {"aten._local_scalar_dense", "aten.item", "aten.is_nonzero", "aten.equal"}


class Stream:
    """What was queued on the device, in order; nothing runs until `run`.

    Attributes:
        waits: The calls that had to wait for the device.
    """

    def __init__(self) -> None:
        self.queue: list[Callable[[], object]] = []
        self.waits: list[str] = []
        self.threads: set[int] = set()
        self.pinned = 0
        self.capturing = False

    def run(self, n: int | None = None) -> None:
        """Let the device do the first n things that are queued; all by default."""
        for _ in range(len(self.queue) if n is None else n):
            self.queue.pop(0)()


stream = Stream()


class OnDevice(torch.Tensor):  # type: ignore[misc]
    """A tensor that says that it is on a CUDA device."""

    inner: Any

    @staticmethod
    def __new__(cls, inner: Any) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device="cuda:0", requires_grad=inner.requires_grad
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stream.threads.add(threading.get_ident())
        name = str(func).rpartition(".")[0]
        if name in WAITING:
            stream.waits.append(name)
            raise AssertionError(f"{name} waits for the device")
        if name == "aten.copy_" and not isinstance(args[0], OnDevice):
            target, source = args[0], args[1].inner
            if not (len(args) > 2 and args[2]):
                stream.waits.append("copy_ to the host")
            stream.queue.append(lambda: target.copy_(source))
            return target
        if name == "aten._to_copy":
            stream.waits.append("to the host")
            raise AssertionError("a copy to the host waits for the device")
        plain = [a.inner if isinstance(a, OnDevice) else a for a in args]
        if name.endswith("_"):  # in place: queued behind what came before
            stream.queue.append(lambda: func(*plain, **(kwargs or {})))
            return args[0]
        return OnDevice(func(*plain, **(kwargs or {})))


class StandIn:
    """The device's side of it."""

    def pin(self, size: int) -> Any:
        stream.pinned += 1
        return torch.zeros(size, dtype=torch.uint8)

    def pin_like(self, tensor: Any) -> Any:
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    def mark(self, device: Any) -> Any:
        return OnDevice(torch.ones((), dtype=torch.uint8))

    def is_capturing(self, device: Any) -> bool:
        return stream.capturing


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """Put the stand-in where torch's devices are."""
    global stream
    stream = Stream()
    monkeypatch.setattr(_device, "_API", StandIn())
    monkeypatch.setattr(_device, "_pools", {})
    yield stream
    assert stream.waits == []
    assert stream.threads <= {threading.get_ident()}, "the writer's thread called the device"


def on_device(value: Any, **options: Any) -> OnDevice:
    return OnDevice(torch.tensor(value, **options))


def events(run: Run, kind: type[Event] = StepEvent) -> list[Any]:
    assert run.dir is not None
    return [e for e in open_log(run.dir).events() if isinstance(e, kind)]


def test_a_value_comes_when_the_device_has_come_to_it(device: Stream, tmp_path: Path) -> None:
    """Until then nothing waits, and what was logged after it keeps its place."""
    with Run("p", dir=tmp_path) as run:
        run.step(loss=on_device(0.5), n=1)
        run.step(loss=2.0)
        assert not run.flush(0.2).written
        device.run()
        assert run.flush(10).complete
    assert [(e.step, e.values) for e in events(run)] == [
        (0, {"n": 1, "loss": 0.5}),
        (1, {"loss": 2.0}),
    ]


def test_values_are_whole_before_the_mark(device: Stream, tmp_path: Path) -> None:
    """The mark is queued behind all values of the event: none is read before it is there."""
    with Run("p", dir=tmp_path) as run:
        run.step(a=on_device(1.5), b=on_device(2.5), c=on_device(7))
        assert len(device.queue) == 4
        device.run(3)
        assert not run.flush(0.2).written
        device.run()
        assert run.flush(10).complete
    assert events(run)[0].values == {"a": 1.5, "b": 2.5, "c": 7}


def test_a_tensor_may_change_right_after(device: Stream, tmp_path: Path) -> None:
    """The value is that of the moment of the call."""
    value = on_device(1.0)
    with Run("p", dir=tmp_path) as run:
        for _ in range(3):
            run.step(x=value)
            value.add_(1.0)
        device.run()
    assert [e.values["x"] for e in events(run)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (1.5, "float16", 1.5),
        (1.5, "bfloat16", 1.5),
        (1.5, "float8_e4m3fn", 1.5),
        (1.5, "float64", 1.5),
        (2**62 + 1, "int64", 2**62 + 1),
        (200, "uint8", 200),
        (True, "bool", True),
        (float("inf"), "float32", float("inf")),
    ],
)
def test_numbers_of_every_type_arrive_exactly(
    device: Stream, tmp_path: Path, value: Any, kind: str, wanted: Any
) -> None:
    """Integers stay integers, and nothing goes by way of a narrower type."""
    with Run("p", dir=tmp_path) as run:
        run.log(x=OnDevice(torch.tensor(value).to(getattr(torch, kind))))
        device.run()
    found = events(run)[0].values["x"]
    assert (found, type(found)) == (wanted, type(wanted))


def test_nothing_of_the_device_is_kept(device: Stream, tmp_path: Path) -> None:
    """Neither the tensor nor its graph outlives the call by more than the copy."""
    value = OnDevice(torch.tensor(1.0, requires_grad=True))
    gone = weakref.ref(value)
    with Run("p", dir=tmp_path) as run:
        run.step(loss=value)
        device.run()
        assert run.flush(10).complete
        del value
        gc.collect()
        assert gone() is None


def test_memory_is_pinned_once(device: Stream, tmp_path: Path) -> None:
    """10,000 values that come and go use the same few slots; pinning would stop the device."""
    with Run("p", dir=tmp_path) as run:
        for step in range(10_000):
            run.step(loss=on_device(float(step)))
            device.run()
            if step % 500 == 0:
                run.flush(10)
    assert [e.values["loss"] for e in events(run)] == list(range(10_000))
    assert device.pinned <= 2


def test_what_is_not_due_is_not_copied(device: Stream, tmp_path: Path) -> None:
    """`every=` and `record=` decide before the device has anything to do."""
    with Run("p", dir=tmp_path, record="10 steps") as run:
        for _ in range(20):
            run.step(loss=on_device(1.0))
        assert len(device.queue) == 2 * 2
        device.run()
    with Run("p", dir=tmp_path) as run:
        for _ in range(20):
            run.log({"loss": on_device(1.0)}, every="10 steps")
            run.step(x=1.0)
        assert len(device.queue) == 2 * 2
        device.run()


def test_a_graph_that_is_captured_gets_no_copies(
    device: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They would be done again at each replay; what to do instead is said, and the rest is kept."""
    with Run("p", dir=tmp_path) as run:
        device.capturing = True
        run.step(loss=on_device(1.0), lr=0.1)
        run.histogram("w", OnDevice(torch.zeros(3)))
        device.capturing = False
        assert device.queue == []
    assert events(run)[0].values == {"lr": 0.1}
    assert run.statistics().rejected == {"graph_capture": 1, "media": 1}
    assert "log after the capture" in caplog.text


def test_images_and_histograms_are_not_waited_for(device: Stream, tmp_path: Path) -> None:
    """Their arrays are copied like values, whole."""
    pixels = OnDevice(torch.zeros(4, 6, dtype=torch.uint8))
    weights = OnDevice(torch.arange(8, dtype=torch.bfloat16))
    with Run("p", dir=tmp_path) as run:
        run.image("i", pixels)
        run.histogram("h", weights, bins=4)
        weights.mul_(0)
        assert not run.flush(0.2).written
        device.run()
    (image,) = events(run, ImageEvent)
    (histogram,) = events(run, HistogramEvent)
    assert (image.width, image.height) == (6, 4)
    assert (histogram.counts, histogram.max) == ([2, 2, 2, 2], 7.0)


def test_a_device_that_never_answers_costs_what_it_owes(
    device: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end comes; what needs no device is written, and the rest is counted."""
    monkeypatch.setattr("eventlog.log.writer.DEVICE_WAIT", 0.05)
    run = Run("p", dir=tmp_path)
    run.step(loss=on_device(1.0))
    run.step(loss=2.0)
    report = run.close()
    assert [e.values for e in events(run)] == [{"loss": 2.0}]
    assert run.statistics().log.dropped == {"device_hung": 1}
    assert not report.written


def test_more_than_fits_waits_on_the_device(
    device: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pinned memory left, a value is copied there; the calling thread waits for none."""
    monkeypatch.setattr(_device, "CHUNKS", 1)
    monkeypatch.setattr(_device, "CHUNK", 64)
    taken = [_device.fetch({"x": on_device(float(n))}) for n in range(6)]
    kinds = [type(fetched).__name__ for (fetched,) in taken]
    assert kinds == ["Fetch"] * 4 + ["_Late"] * 2
    device.run()
    assert [taken[n][0].values() for n in range(4)] == [{"x": float(n)} for n in range(4)]
    (again,) = _device.fetch({"x": on_device(9.0)})
    assert type(again).__name__ == "Fetch"


def test_values_of_two_devices_meet_in_one_event(device: Stream, tmp_path: Path) -> None:
    """Each device has a mark of its own; the event is ready when both have come."""
    with Run("p", dir=tmp_path) as run:
        run.step(gpu=on_device(1.0), cpu=torch.tensor(2.0), plain=3)
        device.run()
    assert events(run)[0].values == {"gpu": 1.0, "cpu": 2.0, "plain": 3}


class JaxLike:
    """An array with the methods of JAX's that matter here."""

    dtype = "float32"
    shape = ()

    def __init__(self, value: float) -> None:
        self.value, self.asked, self.there = value, False, False

    def copy(self) -> JaxLike:
        made = JaxLike(self.value)
        copies.append(made)
        return made

    def copy_to_host_async(self) -> None:
        self.asked = True

    def is_ready(self) -> bool:
        return self.there

    def item(self) -> float:
        assert self.there, "waits for the device"
        return self.value


copies: list[JaxLike] = []


def test_arrays_of_jax_are_not_waited_for(tmp_path: Path) -> None:
    """A copy of our own is on its way; the program may give its array away (stands in for JAX)."""
    copies.clear()
    with Run("p", dir=tmp_path) as run:
        run.step(loss=JaxLike(1.5))
        assert not run.flush(0.2).written
        (copy,) = copies
        assert copy.asked
        copy.there = True
    assert events(run)[0].values == {"loss": 1.5}


def test_an_array_that_is_gone_costs_itself(tmp_path: Path) -> None:
    """What cannot even be asked whether it is there is counted, and what follows is written."""

    class Gone(JaxLike):
        def copy(self) -> JaxLike:
            return self

        def is_ready(self) -> bool:
            raise RuntimeError("the array was deleted")

        def item(self) -> float:
            raise RuntimeError("the array was deleted")

    with Run("p", dir=tmp_path) as run:
        run.step(loss=Gone(1.0))
        run.step(loss=2.0)
    assert [e.values for e in events(run)] == [{"loss": 2.0}]
    assert run.statistics().log.dropped == {"unresolved": 1}


def test_arrays_of_jax_itself(tmp_path: Path) -> None:
    """The real library, where it is installed."""
    jnp: Any = pytest.importorskip("jax.numpy")
    with Run("p", dir=tmp_path) as run:
        run.step(loss=jnp.float32(1.5) * 2, n=jnp.int32(3))
    assert events(run)[0].values == {"loss": 3.0, "n": 3}


def test_a_compiled_function_may_log(tmp_path: Path) -> None:
    """torch.compile leaves our calls out of what it compiles: each one happens, with its value."""
    with Run("p", dir=tmp_path) as run:

        def train(x: Any) -> Any:
            y = (x * 2).sum()
            run.step(loss=y)
            return y + 1

        compiled = torch.compile(train, backend="eager")
        for n in range(3):
            assert float(compiled(torch.full((2,), float(n)))) == 4.0 * n + 1
    assert [(e.step, e.values["loss"]) for e in events(run)] == [(0, 0.0), (1, 4.0), (2, 8.0)]
    monos = [e.mono for e in events(run)]
    assert len(set(monos)) == 3


def test_the_copies_are_no_part_of_what_is_compiled(device: Stream) -> None:
    """In a compiled graph the mark might be there before the values."""
    compiled: list[str] = []
    fetched: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    @torch.compile(backend=backend)  # type: ignore[untyped-decorator, unused-ignore]
    def train(x: Any) -> Any:
        y = (x * 2).sum()
        fetched.extend(_device.fetch({"y": y, "z": y + 1}))
        fetched.append(_device.fetch_array(y))
        return y + 1

    for n in range(3):
        train(torch.full((2,), float(n)))
    device.run()
    assert [one.values() for one in fetched[::2]] == [
        {"y": 4.0 * n, "z": 4.0 * n + 1} for n in range(3)
    ]
    assert [float(one.array()) for one in fetched[1::2]] == [0.0, 4.0, 8.0]
    assert "sum" in compiled
    assert "copy_" not in compiled


def test_what_a_library_says_on_pages_is_said_in_a_line(
    device: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """torch lists all its backends in some errors."""

    class Strange:
        dtype = "strange"
        shape = ()

        def item(self) -> float:
            raise RuntimeError(
                "no such operator" + "." * 1000 + "\nCPU: registered\nMeta: registered"
            )

    with Run("p", dir=tmp_path) as run:
        run.step(loss=Strange())
    (said,) = (r.getMessage() for r in caplog.records if "cannot be recorded" in r.getMessage())
    assert "no such operator" in said
    assert len(said) < 500
    assert "\n" not in said

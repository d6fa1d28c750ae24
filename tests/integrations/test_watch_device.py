"""What `watch` computes stays on the device that it is computed on, and nobody waits for it.

There is no accelerator here: a tensor that says that it is on one stands in. It fails the test at
each call that would have to wait for a device, or that brings anything to the host but a copy that
is queued.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, _device, open_log, watch
from eventlog.events import Event, ModelUpdateEvent, StepEvent

torch: Any = pytest.importorskip("torch")
figures: Any = pytest.importorskip("eventlog.integrations._model_figures")
tree_map: Any = pytest.importorskip("torch.utils._pytree").tree_map
TorchDispatchMode: Any = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode

WAITING = {
    "aten._local_scalar_dense",
    "aten.item",
    "aten.is_nonzero",
    "aten.equal",
    "aten.nonzero",
    "aten._coalesce",
    "aten.masked_select",
    "aten._unique2",
}
queue: list[Callable[[], object]] = []
called: list[str] = []


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
        name, kwargs = str(func).rpartition(".")[0], dict(kwargs or {})
        called.append(name)
        assert name not in WAITING, f"{name} waits for the device"
        if name == "aten.copy_" and not isinstance(args[0], OnDevice):
            assert args[2], "a copy to the host waits for the device"
            target, source = args[0], args[1].inner.clone()
            queue.append(lambda: target.copy_(source))
            return target
        device = kwargs.pop("device", None)
        assert device is None or torch.device(device).type == "cuda", "to the host"
        inside = tree_map(lambda x: x.inner if isinstance(x, OnDevice) else x, (args, kwargs))
        made = func(*inside[0], **inside[1])
        if name.endswith("_"):
            return args[0]
        return tree_map(lambda x: OnDevice(x) if isinstance(x, torch.Tensor) else x, made)


class StandIn:
    """The device's side of it."""

    capturing = False

    def pin(self, size: int) -> Any:
        return torch.zeros(size, dtype=torch.uint8)

    def pin_like(self, tensor: Any) -> Any:
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    def mark(self, device: Any) -> Any:
        return OnDevice(torch.ones((), dtype=torch.uint8))

    def is_capturing(self, device: Any) -> bool:
        return self.capturing


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put the stand-in where torch's devices are."""
    stand_in = StandIn()
    monkeypatch.setattr(_device, "_API", stand_in)
    monkeypatch.setattr(_device, "_pools", {})
    queue.clear()
    called.clear()
    return stand_in


class Model(torch.nn.Module):  # type: ignore[misc]
    """Two weights on the device, and one on the CPU where that is asked for."""

    def __init__(self, *, on_cpu: bool = False) -> None:
        super().__init__()
        for name in ("first", "second"):
            weight = torch.nn.Parameter(OnDevice(torch.full((2, 2), 2.0)))
            weight.grad = OnDevice(torch.full((2, 2), 1.0))
            self.register_parameter(name, weight)
        if on_cpu:
            self.here = torch.nn.Parameter(torch.full((2, 2), 2.0))
            self.here.grad = torch.full((2, 2), 1.0)


def events(run: Run, kind: type[Event]) -> list[Any]:
    assert run.dir is not None
    return [e for e in open_log(run.dir).events() if isinstance(e, kind)]


def run_queue() -> None:
    while queue:
        queue.pop(0)()


@pytest.mark.parametrize("on_cpu", [False, True])
def test_norms_are_not_waited_for(tmp_path: Path, on_cpu: bool) -> None:
    """Of a model on the device, and of one that lies half on the CPU."""
    model = Model(on_cpu=on_cpu)
    weights = 3 if on_cpu else 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=False)
    optimizer.param_groups[0]["lr"] = OnDevice(torch.tensor(0.5))
    with Run("p", dir=tmp_path) as run:
        watched = watch(model, optimizer, every="1 step", per_layer=True)
        watched._stepped(optimizer)
        assert queue
        run_queue()
    (event,) = events(run, StepEvent)
    assert event.values["lr"] == 0.5
    assert event.values["grad_norm"] == pytest.approx((4 * weights) ** 0.5)
    assert event.values["param_norm"] == pytest.approx((16 * weights) ** 0.5)
    assert event.values["grad_norm/first"] == pytest.approx(2.0)


@pytest.mark.parametrize("on_cpu", [False, True])
def test_sparsity_is_not_waited_for(tmp_path: Path, on_cpu: bool) -> None:
    """Neither at the start nor when the model was pruned."""
    model = Model(on_cpu=on_cpu)
    mask = OnDevice(torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    with Run("p", dir=tmp_path) as run:
        watched = watch(model, per_layer=True)
        # as torch.nn.utils.prune leaves it, which itself does not do with the stand-in
        weight = model._parameters.pop("first")
        model.register_parameter("first_orig", weight)
        model.register_buffer("first_mask", mask)
        model.__dict__["first"] = weight.detach()
        assert watched.check() == {"prune": ["first"]}
        assert watched.check() == {}
        run_queue()
    (event,) = events(run, ModelUpdateEvent)
    assert event.values["sparsity_before"] == 0.0
    assert event.values["sparsity"] == pytest.approx(1 / (12 if on_cpu else 8))
    assert event.values["sparsity/first"] == pytest.approx(0.25)


def test_skipped_steps_are_not_waited_for(tmp_path: Path) -> None:
    """A fused optimizer's infinities are counted where they are found (a stand-in's scaler)."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=False)
    with Run("p", dir=tmp_path) as run:
        watched = watch(model, optimizer, every="1 step", norms=False, count=True)
        for found in (1.0, 0.0, 1.0):
            optimizer.found_inf = OnDevice(torch.tensor(found))
            watched._stepped(optimizer)
        run_queue()
    assert [e.values["skipped_steps"] for e in events(run, StepEvent)] == [1, 1, 2]


def test_what_is_not_due_does_not_touch_the_device(tmp_path: Path) -> None:
    """A step in between costs the device nothing at all."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=False)
    with Run("p", dir=tmp_path):
        watched = watch(model, optimizer, every="100 steps", updates="100 steps", count=True)
        watched._stepped(optimizer)
        run_queue()
        called.clear()
        for _ in range(99):
            watched._stepped(optimizer)
        assert called == []


def test_nothing_is_computed_into_a_graph(device: StandIn, tmp_path: Path) -> None:
    """While one is captured, the step is counted; what changed is noticed later."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=False)
    with Run("p", dir=tmp_path) as run:
        watched = watch(model, optimizer, every="1 step", updates="1 step", count=True)
        model.requires_grad_(False)
        called.clear()
        device.capturing = True
        watched._stepped(optimizer)
        assert called == []
        device.capturing = False
        watched._stepped(optimizer)
        run_queue()
    assert [e.step for e in events(run, StepEvent)] == [1]
    assert [e.kind for e in events(run, ModelUpdateEvent)] == ["freeze"]


def test_norms_of_many_tensors_are_few_calls() -> None:
    """torch's own way for lists of tensors is used, and does not wait either."""
    norms = list(figures._norms_together([OnDevice(torch.ones(4)) for _ in range(50)]))
    assert called == ["aten._foreach_norm"]
    assert [float(one.inner) for one in norms] == [2.0] * 50


def test_sparse_gradients_are_merged_without_waiting() -> None:
    """To coalesce them would wait for the number of rows that are left; the sum is the same."""

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = str(func).rpartition(".")[0]
            assert name not in WAITING, f"{name} waits for the device"
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    for shape, indices in (((5, 3), [[4, 1, 4, 0]]), ((3, 4), [[2, 0, 2, 2], [1, 3, 1, 0]])):
        inside = shape[len(indices) :]
        tensor = torch.sparse_coo_tensor(
            torch.tensor(indices), torch.randn(4, *inside), shape, check_invariants=True
        )
        with Recorder():
            found = figures._norm(tensor)
        assert float(found) == pytest.approx(float(tensor.to_dense().norm()))
    nothing = torch.sparse_coo_tensor(
        torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, 3), (5, 3), check_invariants=True
    )
    assert float(figures._norm(nothing)) == 0.0

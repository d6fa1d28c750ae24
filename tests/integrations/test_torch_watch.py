"""What an optimizer and a model do, noticed from hooks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, current_run, open_log
from eventlog.events import ModelUpdateEvent, StepEvent
from eventlog.testing import MemorySink

torch: Any = pytest.importorskip("torch")
prune: Any = pytest.importorskip("torch.nn.utils.prune")
parametrizations: Any = pytest.importorskip("torch.nn.utils.parametrizations")
watch: Any = pytest.importorskip("eventlog.integrations.torch").watch


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def train(model: Any, optimizer: Any, steps: int = 1) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Return an open run."""
    with Run("p", dir=tmp_path) as made:
        yield made


def steps(run: Run) -> list[Any]:
    run.flush(10)
    assert run.dir is not None
    return [e for e in open_log(run.dir).events() if isinstance(e, StepEvent)]


def updates(run: Run) -> list[Any]:
    run.flush(10)
    assert run.dir is not None
    return [e for e in open_log(run.dir).events() if isinstance(e, ModelUpdateEvent)]


def test_rates_and_norms_at_a_cadence(run: Run) -> None:
    """They are those that the optimizer worked with; the run's step is counted here if asked."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, every="2 steps", count=True)
    train(model, optimizer)
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    train(model, optimizer, 4)
    found = steps(run)
    assert [e.step for e in found] == [0, 2, 4]
    assert set(found[0].values) == {"lr", "grad_norm", "param_norm"}
    assert found[0].values["lr"] == 0.1
    assert found[0].values["grad_norm"] == pytest.approx(float(grads.norm()), rel=1e-5)
    assert found[0].values["param_norm"] == pytest.approx(float(weights.norm()), rel=1e-5)
    assert run.state_dict()["step"] == 5


def test_accumulated_batches_are_one_step_and_skipped_ones_none(run: Run) -> None:
    """What counts is that the optimizer stepped; a GradScaler that finds an infinity skips it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = watch(model, optimizer, count=True)
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert watched.steps == 1
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for bad in (False, True, False):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum() * (float("inf") if bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert watched.steps == 3
    assert run.state_dict()["step"] == 3


def test_groups_several_optimizers_and_layers(run: Run) -> None:
    """Each group and each optimizer has a name; a layer's norms come only where they are asked."""
    model = net()
    first = torch.optim.SGD(
        [
            {"params": model[0].parameters(), "lr": 0.1, "name": "body"},
            {"params": model[2].parameters(), "lr": torch.tensor(0.2)},
        ],
        lr=0.1,
    )
    second = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=0.3)
    watch(model, [first, second], every="1 step", per_layer=True, prefix="opt/")
    train(model, first)
    (event,) = steps(run)
    assert event.values["opt/optimizer0/lr/body"] == 0.1
    assert event.values["opt/optimizer0/lr/1"] == pytest.approx(0.2)
    assert event.values["opt/optimizer1/lr"] == 0.3
    assert {k for k in event.values if k.startswith("opt/grad_norm/")} == {
        f"opt/grad_norm/{name}" for name, _ in model.named_parameters()
    }


def test_odd_gradients_are_no_matter(run: Run) -> None:
    """Sparse ones, missing ones, and integers among the parameters."""
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    embedding.register_parameter(
        "whole", torch.nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    )
    embedding.register_parameter("unused", torch.nn.Parameter(torch.ones(2)))
    optimizer = torch.optim.SparseAdam([embedding.weight])
    watch(embedding, optimizer, every="1 step")
    embedding(torch.tensor([1, 1])).sum().backward()
    optimizer.step()
    (event,) = steps(run)
    assert event.values["grad_norm"] == pytest.approx(2 * 3**0.5)


Change = Callable[[Any], Any]


def half(model: Any) -> None:
    model.half()


def freeze(model: Any) -> None:
    model[0].requires_grad_(False)


def cut(model: Any) -> None:
    prune.l1_unstructured(model[0], "weight", amount=0.5)


def swap(model: Any) -> None:
    model[2] = torch.nn.Bilinear(8, 8, 1)


def grow(model: Any) -> None:
    model.append(torch.nn.Linear(1, 1))


def shrink(model: Any) -> None:
    del model[2]


def weigh(model: Any) -> None:
    parametrizations.weight_norm(model[0])


def widen(model: Any) -> None:
    model[0].weight = torch.nn.Parameter(torch.ones(8, 5))


@pytest.mark.parametrize(
    ("change", "kind", "names"),
    [
        (cut, "prune", ["0.weight"]),
        (weigh, "parametrize", ["0.weight"]),
        (freeze, "freeze", ["0.weight", "0.bias"]),
        (swap, "swap", ["2"]),
        (half, "dtype", ["0.weight", "0.bias", "2.weight", "2.bias"]),
        (grow, "grow", ["3.weight", "3.bias"]),
        (shrink, "shrink", ["2.bias", "2.weight"]),
        (widen, "shape", ["0.weight"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_kind_of_change_is_noticed_once(
    run: Run, change: Change, kind: str, names: list[str]
) -> None:
    """With what it was done to; a second look finds nothing."""
    model = net()
    watched = watch(model)
    assert watched.check() == {}
    change(model)
    found = watched.check()
    assert sorted(found[kind]) == sorted(names)
    assert watched.check() == {}
    (event,) = updates(run)
    assert kind in event.kind.split("+")
    assert sorted(event.summary["changes"][kind]) == sorted(names)


def test_pruning_says_how_sparse_the_model_is(run: Run) -> None:
    """Before and after, in all and where it was done; again when it is done again."""
    model = net()
    watched = watch(model, per_layer=True)
    cut(model)
    watched.check()
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    assert list(watched.check()) == ["prune"]
    prune.remove(model[0], "weight")
    assert watched.check()["unprune"] == ["0.weight"]
    first, second, third = updates(run)
    assert first.values["sparsity_before"] == 0.0
    assert first.values["sparsity"] == pytest.approx(16 / 40)
    assert first.values["sparsity/0.weight"] == 0.5
    assert second.values["sparsity/0.weight"] == 0.75
    assert second.values["sparsity_before"] == first.values["sparsity"]
    assert third.values["sparsity"] == pytest.approx(24 / 40)
    assert first.summary["after"]["parameters"] == 4 * 8 + 8 + 8 + 1


def test_figures_of_a_change(run: Run) -> None:
    """Parameters in all, trained ones, and by dtype, before and after; a tied one counts once."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    watched = watch(model)
    model[0].requires_grad_(False)
    model[1].bias.data = model[1].bias.data.half()
    assert set(watched.check()) == {"freeze", "dtype"}
    (event,) = updates(run)
    assert event.summary["before"] == {
        "parameters": 12,
        "trained": 12,
        "by_dtype": {"float32": 12},
    }
    assert event.summary["after"] == {
        "parameters": 12,
        "trained": 3,
        "by_dtype": {"float32": 9, "float16": 3},
    }


def test_a_cadence_follows_the_changes(tmp_path: Path) -> None:
    """A sink that wants what comes after each update has it."""
    sink = MemorySink()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sinks = {"m": {"sink": sink, "types": ["step"], "every": "every update"}}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        watch(model, optimizer, every="1000 steps", updates="1 step", count=True)
        for n in range(8):
            if n == 4:
                freeze(model)
            run.log(n=n)
            train(model, optimizer)
    assert [n for _, n in sink.values("n")][1:-1] == [5]


def test_a_hook_never_ends_the_training(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong in it is said once."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, every="1 step")
    del optimizer.param_groups[0]["lr"]
    model.zero_grad()
    handle = next(iter(optimizer._optimizer_step_post_hooks.values()))
    handle(optimizer, (), {})
    handle(optimizer, (), {})
    assert caplog.text.count("the model cannot be watched") == 1


def test_it_ends_when_it_is_asked_to(run: Run) -> None:
    """By `remove`, or with its block; the optimizer is then as it was."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, every="1 step") as watched:
        train(model, optimizer)
    train(model, optimizer)
    assert watched.steps == 1
    assert len(steps(run)) == 1
    assert copy.deepcopy(optimizer).state_dict() == optimizer.state_dict()


def test_mistakes_are_said_at_once(tmp_path: Path) -> None:
    """A cadence that is none, and a run that is not there."""
    while (left := current_run()) is not None:
        left.close()
    with pytest.raises(RuntimeError, match="there is no open run"):
        watch(net())
    with Run("p", dir=tmp_path) as run, pytest.raises(ValueError, match=r"cadence|every|steps"):
        watch(net(), run=run, every="often")

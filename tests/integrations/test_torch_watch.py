"""What an optimizer and a model do, noticed from hooks."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import FrequencyManager, Run, current_run, open_log, watch
from eventlog.events import ModelUpdateEvent, StepEvent
from eventlog.testing import MemorySink

torch: Any = pytest.importorskip("torch")
prune: Any = pytest.importorskip("torch.nn.utils.prune")
parametrizations: Any = pytest.importorskip("torch.nn.utils.parametrizations")


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


def replace(model: Any) -> None:
    model[2] = torch.nn.Linear(8, 1)


class QuantLinear(torch.nn.Linear):  # type: ignore[misc]
    """Stands for what a quantisation library puts in a layer's place."""


def quantize_by_hand(model: Any) -> None:
    model[2] = QuantLinear(8, 1)


def quantize_weight(model: Any) -> None:
    whole = model[0].weight.detach().to(torch.int8)
    model[0].weight = torch.nn.Parameter(whole, requires_grad=False)
    model[0].weight.requires_grad = False


def add_parameter(model: Any) -> None:
    model[0].register_parameter("extra", torch.nn.Parameter(torch.ones(1)))


def spectral(model: Any) -> None:
    parametrizations.spectral_norm(model[0])


def orthogonal(model: Any) -> None:
    parametrizations.orthogonal(model[0])


def weigh_old_style(model: Any) -> None:
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(model[0])


def spectral_old_style(model: Any) -> None:
    torch.nn.utils.spectral_norm(model[0])


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
        (replace, "swap", ["2"]),
        (quantize_by_hand, "quantize", ["2"]),
        (quantize_weight, "quantize", ["0.weight"]),
        (grow, "grow", ["3"]),
        (shrink, "shrink", ["2"]),
        (add_parameter, "grow", ["0.extra"]),
        (spectral, "parametrize", ["0.weight"]),
        (orthogonal, "parametrize", ["0.weight"]),
        (weigh_old_style, "parametrize", ["0.weight"]),
        (spectral_old_style, "parametrize", ["0.weight"]),
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
    freezes = {"freeze"} if change is quantize_weight else set()
    assert found.keys() - freezes == {kind}
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
    """What goes wrong in it is said once, costs itself only, and the step is counted."""

    class Broken:
        def parameters(self) -> Iterator[Any]:
            return iter(())

        def named_modules(self) -> Any:
            raise ZeroDivisionError("a model of its own kind")

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = watch(model, optimizer, every="1 step", updates="1 step", count=True)
    watched.model = Broken()  # type: ignore[assignment]
    train(model, optimizer, 3)
    assert caplog.text.count("the model cannot be watched") == 1
    assert [(e.step, e.values) for e in steps(run)] == [(n, {"lr": 0.1}) for n in range(3)]


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
    with Run("p", dir=tmp_path) as run:
        with pytest.raises(TypeError, match=r"model must be a .*, not list"):
            watch([], run=run)  # type: ignore[arg-type]
        wrongs: tuple[Any, ...] = ("SGD", 3, [3])
        for wrong in wrongs:
            with pytest.raises(TypeError, match=r"must be a torch\.optim\.Optimizer"):
                watch(net(), wrong, run=run)
        with pytest.raises(ValueError, match="and no 'stps'"):
            watch(net(), run=run, updates="10 stps")
        with pytest.raises(TypeError, match="run must be a Run, not 'r'"):
            watch(net(), run="r")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="prefix must be a text"):
            watch(net(), run=run, prefix=None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="needs an optimizer"):
            watch(net(), run=run, count=True)


def test_a_fused_optimizer_counts_its_skips_on_the_device(run: Run) -> None:
    """It is stepped though there is an infinity; how often it did nothing is among the values."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    watched = watch(model, optimizer, every="1 step", count=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for bad in (False, True, True, False):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum() * (float("inf") if bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert watched.steps == 4
    assert [e.values["skipped_steps"] for e in steps(run)] == [0, 1, 2, 2]


def test_closures_of_lbfgs_are_one_step(run: Run) -> None:
    """However often it computes the loss."""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    watched = watch(model, optimizer, every="1 step", count=True)
    losses = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        losses.append(loss.detach())
        return losses[-1]

    for _ in range(2):
        optimizer.step(closure)
    assert len(losses) > 2
    assert watched.steps == 2
    assert [e.step for e in steps(run)] == [0, 1]


def test_each_optimizer_is_counted_and_the_first_one_leads(run: Run) -> None:
    """As for a generator that is trained less often than its critic."""
    first, second = net(), net()
    slow = torch.optim.SGD(first.parameters(), lr=0.1)
    fast = torch.optim.SGD(second.parameters(), lr=0.2)
    watched = watch(first, [slow, fast], every="1 step", count=True)
    for _ in range(2):
        train(second, fast, 3)
        train(first, slow)
    assert watched.counts == [2, 6]
    assert [e.step for e in steps(run)] == [0, 1]


def test_copies_of_an_optimizer_are_not_watched(run: Run) -> None:
    """The hook stays with the one that was given, also when its state is loaded again."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    watched = watch(model, optimizer)
    train(model, optimizer)
    pickled = pickle.loads(pickle.dumps(optimizer))  # noqa: S301 - our own bytes
    for other in (copy.deepcopy(optimizer), pickled):
        other.step()
        assert watched.steps == 1
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer)
    assert watched.steps == 2


def test_optimizers_in_a_wrapper_are_found(run: Run) -> None:
    """Frameworks put their own around; the hook is on the one inside."""
    accelerate: Any = pytest.importorskip("accelerate")
    model = net()
    wrapped = accelerate.Accelerator(cpu=True).prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    watched = watch(model, wrapped, count=True)
    model(torch.ones(2, 4)).sum().backward()
    wrapped.step()
    assert watched.steps == 1


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_a_compiled_step_is_counted(run: Run) -> None:
    """Each time, with what it logs (eager backend: what matters is what is traced)."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    watched = watch(model, optimizer, every="2 steps", count=True)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        step()
    assert watched.steps == 4
    assert [e.step for e in steps(run)] == [0, 2]


def test_models_without_anything_to_say(run: Run) -> None:
    """Frozen ones have no gradients; what is on no device, or not made yet, has no norm."""
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 2).requires_grad_(False),
        torch.nn.Linear(2, 2, device="meta"),
        torch.nn.LazyLinear(2),
    )
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    watched = watch(model, optimizer, every="1 step", per_layer=True)
    optimizer.step()
    (event,) = steps(run)
    assert set(event.values) == {"lr", "param_norm", "param_norm/0.weight", "param_norm/0.bias"}
    model[2](torch.ones(1, 3))
    assert watched.check() == {"shape": ["2.weight", "2.bias"]}
    watch(torch.nn.ReLU(), optimizer, every="1 step", prefix="bare/")
    optimizer.step()
    assert set(steps(run)[-1].values) == {"bare/lr"}


def test_norms_of_all_types_are_right(run: Run) -> None:
    """Of halves in single precision: their squares would overflow; complex ones, float8, empty."""
    kinds = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
    model = torch.nn.ParameterList([torch.full((4,), 300.0).to(kind) for kind in kinds])
    model.append(torch.nn.Parameter(torch.ones(4).to(torch.float8_e4m3fn), requires_grad=False))
    model.append(torch.nn.Parameter(torch.ones(0)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, every="1 step", per_layer=True)
    optimizer.step()
    (event,) = steps(run)
    found = [event.values[f"param_norm/{n}"] for n in range(7)]
    assert found == pytest.approx([600.0] * 5 + [2.0, 0.0], rel=2e-2)
    assert event.values["param_norm"] == pytest.approx((5 * 600**2 + 4) ** 0.5, rel=1e-2)


def test_names_are_those_of_the_model_itself(run: Run) -> None:
    """Compiled or wrapped as a whole or in part, pruned or parametrized: nothing of that shows."""
    model = net()
    model[2] = torch.compile(model[2], backend="eager")
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    whole = torch.nn.DataParallel(torch.compile(model, backend="eager"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = watch(whole, optimizer, every="1 step", per_layer=True)
    optimizer.step()
    (event,) = steps(run)
    names = {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert {k.partition("/")[2] for k in event.values if k.startswith("param_norm/")} == names
    model[2].requires_grad_(False)
    assert sorted(watched.check()["freeze"]) == ["2.bias", "2.weight"]
    assert watched.check() == {}


def test_compiling_is_no_change(run: Run) -> None:
    """Of a layer in place, or of all of it."""
    model = net()
    watched = watch(model)
    model[0] = torch.compile(model[0], backend="eager")
    watched.model = torch.compile(model, backend="eager")
    assert watched.check() == {}


def test_a_mask_that_moves_with_its_model_is_no_pruning(run: Run) -> None:
    """Another dtype is said, and nothing else; buffers that only sound like masks mean nothing."""
    model = net()
    model.register_buffer("causal_mask", torch.ones(2, 2))
    cut(model)
    watched = watch(model)
    model.causal_mask.mul_(2)
    assert watched.check() == {}
    model.half()
    assert list(watched.check()) == ["dtype"]
    model.load_state_dict(model.state_dict())
    watched.check()
    model[0].weight_mask.zero_()
    assert watched.check() == {"prune": ["0.weight"]}


def test_sparsifiers_of_torch_are_pruning(run: Run) -> None:
    """Their masks are parametrizations, and change in place with each of their steps."""
    pruning: Any = pytest.importorskip("torch.ao.pruning")
    model = net()
    watched = watch(model, per_layer=True)
    sparsifier = pruning.WeightNormSparsifier(sparsity_level=0.5, sparse_block_shape=(1, 1))
    sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}])
    assert watched.check() == {"prune": ["0.weight"], "parametrize": ["0.weight"]}
    sparsifier.step()
    assert watched.check() == {"prune": ["0.weight"]}
    sparsifier.squash_mask()
    assert watched.check() == {"unprune": ["0.weight"], "unparametrize": ["0.weight"]}
    found = [e.values["sparsity/0.weight"] for e in updates(run)]
    assert found == [0.0, 0.5, 0.5]


def test_a_quantised_copy_is_one_update(run: Run) -> None:
    """The program goes on with another model; its packed weights are counted where they are."""
    quantization: Any = pytest.importorskip("torch.ao.quantization")
    model = net()
    watched = watch(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    watched.model = made
    assert watched.check() == {"quantize": ["0", "2"]}
    (event,) = updates(run)
    assert event.kind == "quantize"
    assert event.summary["before"]["by_dtype"] == {"float32": 49}
    assert event.summary["after"]["by_dtype"] == {"qint8": 40, "float32": 9}
    assert event.values["parameters"] == 49
    assert event.values["trained"] == 0


def test_a_copy_that_is_the_same_is_no_update(run: Run) -> None:
    """What counts is what it is made of, pruned as it may be."""
    model = net()
    cut(model)
    model[0].weight = model[0].weight.detach()
    watched = watch(model)
    watched.model = copy.deepcopy(model)
    assert watched.check() == {}


def test_tying_and_untying(run: Run) -> None:
    """The same parameter under two names is said, and counted once."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    watched = watch(model)
    model[1].weight = model[0].weight
    assert watched.check() == {"tie": ["1.weight"]}
    model[1].weight = torch.nn.Parameter(torch.ones(3, 3))
    assert watched.check() == {"untie": ["1.weight"]}
    assert [e.values["parameters"] for e in updates(run)] == [15, 24]


def test_several_changes_are_one_event(run: Run) -> None:
    """Between two looks; what is inside a swapped block is not said again."""
    model = torch.nn.Sequential(net(), torch.nn.Linear(1, 1))
    watched = watch(model)
    model[0] = torch.nn.Sequential(torch.nn.Linear(4, 1, bias=False))
    prune.random_unstructured(model[1], "weight", amount=1)
    model[1].bias.requires_grad_(False)
    changes = {"swap": ["0"], "prune": ["1.weight"], "freeze": ["1.bias"]}
    assert watched.check() == changes
    (event,) = updates(run)
    assert event.kind == "swap+prune+freeze"
    assert event.summary["changes"] == changes


def test_what_is_undone_is_said_as_well(run: Run) -> None:
    """A parametrization that is removed, and parameters that are trained again."""
    model = net()
    weigh(model)
    freeze(model)
    watched = watch(model)
    torch.nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert watched.check()["unparametrize"] == ["0.weight"]
    model.requires_grad_(True)
    assert watched.check()["unfreeze"]


def test_a_manager_on_change_follows(tmp_path: Path) -> None:
    """The model changed since the last log, and that is one frequency old."""
    sink = MemorySink()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    manager = FrequencyManager(2, mode="on_change", frequency_type="step")
    sinks = {"m": {"sink": sink, "types": ["step"], "every": manager}}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        watch(model, optimizer, every="1000 steps", updates="1 step", count=True)
        for n in range(12):
            if n == 5:
                freeze(model)
            run.log(n=n)
            train(model, optimizer)
    # the first and the last one pass in any case
    seen = [int(n) for _, n in sink.values("n")]
    expected, change = FrequencyManager(2, mode="on_change", frequency_type="step"), []
    for n in range(12):
        if expected.log_ready(n):
            change.append(n)
            expected.log_written(n)
        if n == 5:
            expected.model_updated(n)
    assert len(change) > 1
    assert seen == [*change, 11]


def test_many_names_are_cut_short(run: Run) -> None:
    """The event stays small for a large model; the caller of `check` has all of them."""
    model = torch.nn.ParameterList([torch.ones(1) for _ in range(50)])
    watched = watch(model)
    model.requires_grad_(False)
    assert len(watched.check()["freeze"]) == 50
    (event,) = updates(run)
    assert event.summary["changes"]["freeze"][-2:] == ["19", "and 30 more"]


def test_another_rank_and_an_ended_run_cost_nothing(tmp_path: Path) -> None:
    """Steps are counted; norms are not computed for nobody."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Run("p", dir=tmp_path, rank=1, world_size=2, run_id="r") as run:
        watched = watch(model, optimizer, every="1 step", updates="1 step", count=True)
        watched._norm_values = pytest.fail  # type: ignore[method-assign]
        train(model, optimizer, 3)
        assert run.state_dict()["step"] == 3
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    with Run("p", dir=tmp_path) as ended:
        watched = watch(model, other, every="1 step", updates="1 step")
    watched._norm_values = pytest.fail  # type: ignore[method-assign]
    freeze(model)
    train(model, other, 3)
    assert watched.steps == 4 - 1
    assert ended.statistics().log.dropped == {}


def test_watching_is_exported_and_light() -> None:
    """`eventlog.watch`, without torch until it is called."""
    code = (
        "import sys, eventlog\n"
        "from eventlog import *\n"
        "assert watch is eventlog.watch\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_update_keeps_what_is_plain(run: Run) -> None:
    """Values that cannot be recorded cost themselves, and values that are none are counted."""
    run.model_updated("grown", values={"bad": object()}, layers=3)
    run.model_updated("grown", values={"bad": object()})
    run.model_updated("grown", values=7, layers=4)  # type: ignore[arg-type]
    assert [e.values for e in updates(run)] == [{"layers": 3}, {}, {"layers": 4}]
    assert run.statistics().rejected["not_a_mapping"] == 1


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of a process group of one."""
    dist: Any = pytest.importorskip("torch.distributed")
    if not dist.is_available() or dist.is_initialized():
        pytest.skip("needs a process group of its own")
    pytest.importorskip("torch.distributed.tensor")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_a_value_that_is_spread_over_processes_is_not_half_recorded(run: Run, mesh: Any) -> None:
    """A norm under FSDP is the sum of all parts: this process's own would be a wrong value."""
    tensors: Any = torch.distributed.tensor
    whole, part, shard = (
        tensors.DTensor.from_local(torch.ones(1), mesh, [place])
        for place in (tensors.Replicate(), tensors.Partial(), tensors.Shard(0))
    )
    run.step(norm=part)
    run.step({"norm": shard})
    run.step(norm=whole)
    run.step(norm=part.full_tensor())
    run.histogram("h", shard)
    run.histogram("h", shard.to_local())
    assert [e.values for e in steps(run)] == [{"norm": 1.0}, {"norm": 1.0}]
    assert run.statistics().rejected == {"sharded": 2, "media": 1}


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_what_is_spread_over_processes_is_looked_at_here(run: Run, mesh: Any) -> None:
    """Norms and sparsity are of this process's part; no collective call is made (a group of 1)."""
    tensors: Any = torch.distributed.tensor
    model = torch.nn.Linear(2, 2, bias=False)
    spread = tensors.distribute_tensor(torch.eye(2), mesh, [tensors.Shard(0)])
    model.weight = torch.nn.Parameter(spread)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = watch(model, optimizer, every="1 step")
    watched._stepped(optimizer)
    model.requires_grad_(False)
    watched.check()
    (event,) = steps(run)
    assert event.values["param_norm"] == pytest.approx(2**0.5)
    (update,) = updates(run)
    assert (update.values["sparsity"], update.summary["after"]["by_dtype"]) == (0.5, {"float32": 4})

"""What a model is made of, at one moment, and what became different since: without its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["ModelState", "changes_between", "sparsity_of", "state_of"]

_MASK = "_mask"


class ModelState(NamedTuple):
    """Nothing in it is read from a device.

    Attributes:
        modules: The type of each module, by name.
        parameters: Shape, dtype and whether it is trained, by name; an original that a mask or a
            parametrization stands before goes by the name that the model's code uses.
        masks: What tells one pruning mask from the next, by the parameter's name.
        parametrized: The types of parametrizations, by the parameter's name.
    """

    modules: dict[str, str]
    parameters: dict[str, tuple[tuple[int, ...], str, bool]]
    masks: dict[str, tuple[int, int]]
    parametrized: dict[str, tuple[str, ...]]


def state_of(model: Any) -> ModelState:
    """Return what a model is made of."""
    modules: dict[str, str] = {}
    masks: dict[str, tuple[int, int]] = {}
    parametrized: dict[str, tuple[str, ...]] = {}
    for name, module in model.named_modules():
        if ".parametrizations" in f".{name}":
            continue
        modules[name] = _type_name(module)
        for buffer, tensor in module.named_buffers(recurse=False):
            if buffer.endswith(_MASK) and tensor is not None:
                masks[_join(name, buffer.removesuffix(_MASK))] = (id(tensor), tensor._version)
        for tensor_name, chain in getattr(module, "parametrizations", {}).items():
            parametrized[_join(name, tensor_name)] = tuple(_type_name(one) for one in chain)
    parameters = {
        _plain_name(name): (tuple(p.shape), str(p.dtype).removeprefix("torch."), p.requires_grad)
        for name, p in model.named_parameters()
    }
    return ModelState(modules, parameters, masks, parametrized)


def _type_name(module: Any) -> str:
    kind = type(module)
    # torch makes a class of its own for each module that is parametrized
    if kind.__name__.startswith("Parametrized") and hasattr(module, "parametrizations"):
        kind = kind.__mro__[1]
    return f"{kind.__module__}.{kind.__qualname__}"


def _join(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def _plain_name(name: str) -> str:
    """Return what the model's own code calls a parameter."""
    parts = name.split(".")
    if "parametrizations" in parts:
        at = parts.index("parametrizations")
        return ".".join([*parts[:at], parts[at + 1]]) + _tail(parts[at + 2 :])
    return name.removesuffix("_orig")


def _tail(parts: list[str]) -> str:
    return "" if parts == ["original"] else "." + ".".join(parts)


def changes_between(before: ModelState, after: ModelState) -> dict[str, list[str]]:
    """Return what changed: the names of modules or parameters, by what was done to them.

    The kinds are prune, unprune, parametrize, unparametrize, swap, freeze, unfreeze, dtype, shape,
    grow (there are new ones) and shrink (some are gone).
    """
    found: dict[str, list[str]] = {}
    for kind, name in _changes(before, after):
        found.setdefault(kind, []).append(name)
    return found


def _changes(before: ModelState, after: ModelState) -> Iterator[tuple[str, str]]:
    for name, mask in after.masks.items():
        if before.masks.get(name) != mask:
            yield "prune", name
    yield from (("unprune", name) for name in before.masks.keys() - after.masks.keys())
    for name, chain in after.parametrized.items():
        if before.parametrized.get(name) != chain:
            yield "parametrize", name
    gone = before.parametrized.keys() - after.parametrized.keys()
    yield from (("unparametrize", name) for name in sorted(gone))
    for name, kind in after.modules.items():
        if name in before.modules and before.modules[name] != kind:
            yield "swap", name
    inside = {f"{name}." for name, kind in after.modules.items()
              if name in before.modules and before.modules[name] != kind}  # fmt: skip
    for name, (shape, dtype, trained) in after.parameters.items():
        if name not in before.parameters:
            if not any(name.startswith(prefix) for prefix in inside):
                yield "grow", name
            continue
        was_shape, was_dtype, was_trained = before.parameters[name]
        if shape != was_shape:
            yield "shape", name
        if dtype != was_dtype:
            yield "dtype", name
        if trained != was_trained:
            yield ("unfreeze" if trained else "freeze"), name
    for name in before.parameters.keys() - after.parameters.keys():
        if not any(name.startswith(prefix) for prefix in inside):
            yield "shrink", name


def summary_of(state: ModelState) -> dict[str, Any]:
    """Return a model's figures: parameters in all, trained ones, and by dtype."""
    sizes = {name: _size(shape) for name, (shape, _, _) in state.parameters.items()}
    dtypes: Counter[str] = Counter()
    for name, (_, dtype, _) in state.parameters.items():
        dtypes[dtype] += sizes[name]
    trained = sum(sizes[name] for name, (_, _, on) in state.parameters.items() if on)
    return {"parameters": sum(sizes.values()), "trained": trained, "by_dtype": dict(dtypes)}


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def weights_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the weights that the model computes with: masked, where they are pruned.

    Those with fewer than two dimensions (biases, norms) are left out: nobody prunes them.
    """
    for name, module in model.named_modules():
        for key, tensor in module._parameters.items():
            if tensor is None or tensor.dim() < 2:
                continue
            if key.endswith("_orig"):
                mask = module._buffers.get(f"{key.removesuffix('_orig')}{_MASK}")
                tensor = tensor if mask is None else tensor.detach() * mask
            yield _plain_name(_join(name, key)), tensor.detach()


def sparsity_of(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return which share of a model's weights is 0, and of each layer's, as scalars on its device.

    Nothing waits for the device. None for a model without weights of two dimensions or more.
    """
    import torch

    zeros: dict[str, Any] = {}
    total = 0
    for name, weight in weights_of(model):
        zeros[name] = (weight.numel() - weight.count_nonzero(), weight.numel())
        total += weight.numel()
    if not total:
        return None, {}
    device = next(iter(zeros.values()))[0].device
    count = torch.stack([n.to(device, non_blocking=True) for n, _ in zeros.values()]).sum()
    return count / total, {name: n / size for name, (n, size) in zeros.items()}

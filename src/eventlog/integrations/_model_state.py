"""What a model is made of, at one moment, and what became different since: without its values.

Names are those that the model's own code uses: wrappers (compiled modules, activation checkpoints,
sharding), pruning and parametrizations put names of their own in between, which are left out.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

__all__ = [
    "Mask",
    "ModelState",
    "Module",
    "Parameter",
    "changes_between",
    "dtype_name",
    "parameters_of",
    "state_of",
    "unwrapped",
    "walk",
]

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_SPLIT = "parametrizations"
_OLD_STYLE = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")
"""Where the parametrizations are from that hooks do, as torch had them before `parametrize`."""

_QUANTIZED = ("int", "uint", "qint", "quint", "float8", "float4", "bits")


class Module(NamedTuple):
    """A module's type, and itself, while it lives."""

    kind: str
    ref: weakref.ref[Any]


class Parameter(NamedTuple):
    """A parameter's figures; the shape is empty before a lazy module has seen an input."""

    shape: tuple[int, ...]
    dtype: str
    trained: bool


class Mask(NamedTuple):
    """What tells one pruning mask from the next, without a look at its values."""

    ref: weakref.ref[Any]
    version: tuple[int, int]
    place: tuple[Any, Any]


class ModelState(NamedTuple):
    """Nothing in it is read from a device, and it keeps nothing alive.

    Attributes:
        root: The model.
        modules: By name, parents first.
        parameters: By name; one that several modules share stands here once.
        ties: The other names of those that are shared, and the name that they stand under.
        masks: By the parameter's name.
        parametrized: The types of parametrizations, by the parameter's name.
    """

    root: weakref.ref[Any]
    modules: dict[str, Module]
    parameters: dict[str, Parameter]
    ties: dict[str, str]
    masks: dict[str, Mask]
    parametrized: dict[str, tuple[str, ...]]


def unwrapped(model: Any) -> Any:
    """Return the model inside of what torch wraps around it: compiled, or for several devices."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and "Parallel" in type(model).__name__:
            inner = getattr(model, "module", None)
        if inner is None or not hasattr(inner, "named_modules"):
            return model
        model = inner


def walk(model: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield a model's modules, parents first: name, module, whether it is a parametrization's."""
    for name, module in model.named_modules():
        if _SPLIT not in name and "_" not in name:
            yield name, module, False
            continue
        parts = name.split(".")
        plain = [part for part in parts if part not in _WRAPPERS and part != _SPLIT]
        yield ".".join(plain), module, _SPLIT in parts


def parameters_of(model: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each parameter, itself, and its mask, if it has one.

    Those that are shared come once for each of their names.
    """
    for name, module, inside in walk(model):
        yield from _parameters_in(name, module, inside)


def _parameters_in(name: str, module: Any, inside: bool) -> Iterator[tuple[str, Any, Any]]:
    for key, tensor in module._parameters.items():
        if tensor is None:
            continue
        if inside and key == "original":
            yield name, tensor, _mask_in(module)
        elif key.endswith("_orig") and (base := key.removesuffix("_orig")) in module.__dict__:
            # pruned, or normed by a hook: the model's own code knows the result by the name
            yield _join(name, base), tensor, module._buffers.get(f"{base}_mask")
        else:
            yield _join(name, key), tensor, None


def _mask_in(chain: Any) -> Any:
    """Return the mask among a parameter's parametrizations, as torch's sparsifiers have it."""
    for one in chain:
        mask = one._buffers.get("mask")
        if mask is not None and mask.shape == chain.original.shape:
            return mask
    return None


def _join(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def state_of(model: Any) -> ModelState:
    """Return what a model is made of."""
    state = ModelState(weakref.ref(model), {}, {}, {}, {}, {})
    seen: dict[int, str] = {}
    for name, module, inside in walk(model):
        if not inside and "_orig_mod" not in module._modules:
            state.modules.setdefault(name, Module(_type_name(module), weakref.ref(module)))
        chains = module._modules.get(_SPLIT)
        if chains is not None:
            for tensor_name, chain in chains.items():
                types = tuple(_type_name(one) for one in chain)
                state.parametrized[_join(name, tensor_name)] = types
        for hook in module._forward_pre_hooks.values():
            if type(hook).__module__ in _OLD_STYLE:
                state.parametrized[_join(name, hook.name)] = (_type_of(hook),)
        for own, tensor, mask in _parameters_in(name, module, inside):
            first = seen.setdefault(id(tensor), own)
            if first != own:
                state.ties[own] = first
                continue
            state.parameters[own] = _figures(tensor)
            if mask is not None:
                place = (mask.device, mask.dtype)
                state.masks[own] = Mask(weakref.ref(mask), _version_of(mask), place)
    return state


def _version_of(mask: Any) -> tuple[int, int]:
    """Return what becomes different when a mask is written to, or its memory replaced."""
    try:
        memory = mask.data_ptr()
    except RuntimeError:  # it has none that could be named
        memory = 0
    return 0 if mask.is_inference() else mask._version, memory


def _figures(tensor: Any) -> Parameter:
    shape = () if hasattr(tensor, "materialize") else tuple(tensor.shape)
    return Parameter(shape, dtype_name(tensor), tensor.requires_grad)


_dtypes: dict[Any, str] = {}


def dtype_name(tensor: Any) -> str:
    """Return a tensor's dtype, and its class where that says how it is stored."""
    dtype = tensor.dtype
    name = _dtypes.get(dtype)
    if name is None:
        name = _dtypes[dtype] = str(dtype).removeprefix("torch.")
    kind = type(tensor)
    # a parameter, or one that is spread over processes
    if kind.__module__.partition(".")[0] == "torch":
        return name
    return f"{kind.__name__}[{name}]"


def _type_name(module: Any) -> str:
    kind = type(module)
    # torch makes a class of its own for each module that is parametrized
    if _SPLIT in module._modules and kind.__name__.startswith("Parametrized"):
        kind = kind.__mro__[1]
    return f"{kind.__module__}.{kind.__qualname__}"


def _type_of(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def changes_between(before: ModelState, after: ModelState) -> dict[str, list[str]]:
    """Return what changed: the names of modules or parameters, by what was done to them.

    The kinds are swap, for modules; quantize, grow and shrink, for modules and parameters; and
    prune, unprune, parametrize, unparametrize, tie, untie, dtype, shape, freeze and unfreeze, for
    parameters. What is inside a module that was swapped, is new or is gone is not named.
    """
    found: dict[str, list[str]] = {}
    inside: set[str] = set()
    for kind, name in _module_changes(before, after):
        found.setdefault(kind, []).append(name or "(model)")
        inside.add(name)
    touched = {
        name
        for name in before.parametrized.keys() | after.parametrized.keys()
        if before.parametrized.get(name) != after.parametrized.get(name)
    }
    for changes in (
        _mask_changes(before, after),
        _parametrization_changes(before, after, touched),
        _parameter_changes(before, after, touched),
    ):
        for kind, name in changes:
            if not _is_in(name, inside):
                found.setdefault(kind, []).append(name)
    return found


def _is_in(name: str, modules: Collection[str]) -> bool:
    """Whether a name is one of these, or of something in one of them."""
    if not modules:
        return False
    while name not in modules:
        if not name:
            return False
        name = name.rpartition(".")[0]
    return True


def _module_changes(before: ModelState, after: ModelState) -> Iterator[tuple[str, str]]:
    same_model = before.root is after.root
    done: set[str] = set()
    for name, module in after.modules.items():
        was = before.modules.get(name)
        if was is None:
            kind = "grow"
        elif was.kind != module.kind and not _was_lazy(was, module):
            quantized = "quant" in module.kind.lower() and "quant" not in was.kind.lower()
            kind = "quantize" if quantized else "swap"
        elif same_model and was.ref is not module.ref:
            kind = "swap"
        else:
            continue
        if not _is_in(name, done):
            done.add(name)
            yield kind, name
    gone: set[str] = set()
    for name in before.modules:
        if name not in after.modules and not _is_in(name, done) and not _is_in(name, gone):
            gone.add(name)
            yield "shrink", name


def _was_lazy(was: Module, now: Module) -> bool:
    return was.ref is now.ref and was.kind.rpartition(".")[2].startswith("Lazy")


def _mask_changes(before: ModelState, after: ModelState) -> Iterator[tuple[str, str]]:
    same_model = before.root is after.root
    for name, mask in after.masks.items():
        was = before.masks.get(name)
        if was is None:
            yield "prune", name
            continue
        # a mask that went to another device, or dtype, with its model is still the same
        stayed = same_model and was.place == mask.place
        if stayed and (was.ref is not mask.ref or was.version != mask.version):
            yield "prune", name
    yield from (("unprune", name) for name in before.masks if name not in after.masks)


def _parametrization_changes(
    before: ModelState, after: ModelState, touched: Collection[str]
) -> Iterator[tuple[str, str]]:
    yield from (("parametrize", name) for name in after.parametrized if name in touched)
    for name in before.parametrized:
        if name not in after.parametrized:
            yield "unparametrize", name


def _parameter_changes(
    before: ModelState, after: ModelState, touched: Collection[str]
) -> Iterator[tuple[str, str]]:
    # a parametrization splits its parameter: that is one change, and not three
    related = {f"{name}{end}" for name in touched for end in ("", "_g", "_v")}
    for name, now in after.parameters.items():
        was = before.parameters.get(name)
        if was is not None:
            yield from ((kind, name) for kind in _figure_changes(was, now))
        elif name in before.ties:
            yield "untie", name
        elif not _is_in(name, related):
            yield "grow", name
    for name, first in after.ties.items():
        if name in before.parameters or (name in before.ties and before.ties[name] != first):
            yield "tie", name
        elif name not in before.ties and not _is_in(name, related):
            yield "grow", name
    there = after.parameters.keys() | after.ties.keys()
    for name in [*before.parameters, *before.ties]:
        if name not in there and not _is_in(name, related):
            yield "shrink", name


def _figure_changes(was: Parameter, now: Parameter) -> Iterator[str]:
    if now.shape != was.shape:
        yield "shape"
    if now.dtype != was.dtype:
        yield "quantize" if _is_quantized(now.dtype) and not _is_quantized(was.dtype) else "dtype"
    if now.trained != was.trained:
        yield "unfreeze" if now.trained else "freeze"


def _is_quantized(dtype: str) -> bool:
    return "[" in dtype or dtype.startswith(_QUANTIZED)

"""Figures of a model: sizes, norms and sparsities. Nothing here waits for a device.

What is on an accelerator stays there, as a scalar tensor; what is on the CPU is known at once. A
scalar goes from the CPU to an accelerator as an argument of a kernel only, and never back.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eventlog.integrations._model_state import dtype_name, parameters_of, walk

__all__ = ["norms_of", "sizes_of", "sparsity_of", "tensors_of", "total_norm"]


def sizes_of(model: Any) -> dict[str, Any]:
    """Return the number of parameters in all, of trained ones, and by dtype; shared ones once.

    Weights that torch's quantised modules keep packed are counted as well.
    """
    by_dtype: Counter[str] = Counter()
    trained = 0
    for _, tensor, _ in _once(model):
        by_dtype[dtype_name(tensor)] += tensor.numel()
        trained += tensor.numel() if tensor.requires_grad else 0
    for _, module, _ in walk(model):
        if ".quantized." in type(module).__module__:
            for tensor in _unpacked(module):
                by_dtype[dtype_name(tensor)] += tensor.numel()
    return {"parameters": by_dtype.total(), "trained": trained, "by_dtype": dict(by_dtype)}


def _unpacked(module: Any) -> Iterator[Any]:
    for name in ("weight", "bias"):
        method = getattr(module, name, None)
        with contextlib.suppress(Exception):  # each such module is made in its own way
            tensor = method() if callable(method) else None
            if hasattr(tensor, "numel"):
                yield tensor


def _once(model: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each parameter that has a size, by one of its names, and its mask."""
    seen: set[int] = set()
    for name, tensor, mask in parameters_of(model):
        if id(tensor) not in seen and not hasattr(tensor, "materialize"):
            seen.add(id(tensor))
            yield name, tensor, mask


def tensors_of(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the gradients and the parameters that have values, by name.

    Of those that are spread over processes, the part that is here.
    """
    grads: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for name, tensor, _ in _once(model):
        if tensor.device.type == "meta" or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        parameters[name] = _local(tensor.detach())
        if tensor.grad is not None:
            grads[name] = _local(tensor.grad.detach())
    return grads, parameters


def _local(tensor: Any) -> Any:
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def norms_of(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the 2-norm of each tensor, as a scalar where the tensor is."""
    import torch

    groups: dict[tuple[Any, Any], dict[str, Any]] = {}
    norms: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if type(tensor) is torch.Tensor and tensor.layout == torch.strided:
            groups.setdefault((tensor.device, tensor.dtype), {})[name] = tensor
        else:
            norms[name] = _norm(tensor)
    for group in groups.values():
        norms |= zip(group, _norms_together(list(group.values())), strict=True)
    return {name: norms[name] for name in tensors}


def _norms_together(tensors: list[Any]) -> Iterable[Any]:
    """Return the norms of tensors on one device, in few kernels where torch can."""
    import torch

    kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    if tensors[0].dtype not in kinds or not hasattr(torch, "_foreach_norm"):
        return [_norm(tensor) for tensor in tensors]
    norms: Iterable[Any] = torch._foreach_norm(tensors, 2, dtype=_wide(tensors[0].dtype))
    return norms


def _wide(dtype: Any) -> Any:
    import torch

    return dtype if dtype == torch.float64 else torch.float32


def _norm(tensor: Any) -> Any:
    import torch

    if tensor.is_sparse:
        tensor = _merged(tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype.itemsize == 1:
        tensor = tensor.to(torch.float32)
    return torch.linalg.vector_norm(tensor, dtype=_wide(tensor.dtype))


def _merged(tensor: Any) -> Any:
    """Return the values of a sparse tensor, those of equal indices added.

    `coalesce` does that as well, but has to wait for the device to know how many are left.
    """
    import torch

    values = tensor._values()
    if tensor.is_coalesced():
        return values
    place = torch.zeros_like(tensor._indices()[0])
    for size, row in zip(tensor.shape, tensor._indices(), strict=False):
        place = place * size + row
    order = place.argsort()
    place = place[order]
    number = torch.cat([torch.zeros_like(place[:1]), (place[1:] != place[:-1]).cumsum(0)])
    return torch.zeros_like(values).index_add_(0, number, values[order])


def total_norm(norms: Iterable[Any]) -> Any:
    """Return the norm of all, from the norms of parts, which may lie on several devices."""
    import torch

    here, there = _by_place(norms)
    on_cpu = float(torch.linalg.vector_norm(torch.stack(here))) if here else 0.0
    if not there:
        return on_cpu
    on_device = torch.linalg.vector_norm(torch.stack(there))
    return (on_device.square() + on_cpu**2).sqrt() if here else on_device


def _by_place(scalars: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return those on the CPU, and the others, on the device of the first."""
    here: list[Any] = []
    there: list[Any] = []
    for scalar in scalars:
        (here if scalar.device.type == "cpu" else there).append(scalar)
    for at, one in enumerate(there):
        if one.device != there[0].device:
            # from accelerator to accelerator: a copy that is queued, and that the other waits for
            there[at] = one.to(there[0].device, non_blocking=True)
    return here, there


def sparsity_of(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return which share of a model's weights is 0, and of each weight's elements.

    Weights have two dimensions or more (nobody prunes biases and norms), and are masked where the
    model computes with them masked; those that cannot be counted are left out. None for a model
    without any.
    """
    zeros: dict[str, tuple[Any, int]] = {}
    for name, tensor, mask in _once(model):
        if tensor.dim() >= 2 and tensor.device.type != "meta":
            # some dtypes cannot be compared with 0 in torch, or not on each device
            with contextlib.suppress(RuntimeError):
                zeros[name] = _zeros(tensor, mask)
    total = sum(size for _, size in zeros.values())
    if not total:
        return None, {}
    here, there = _by_place(count for count, _ in zeros.values())
    count: Any = sum(int(count) for count in here)
    if there:
        count = count + _sum(there)
    return _share(count, total), {name: _share(n, size) for name, (n, size) in zeros.items()}


def _zeros(tensor: Any, mask: Any) -> tuple[Any, int]:
    tensor = _local(tensor.detach())
    if mask is not None:
        tensor = tensor * mask
    size = tensor.numel()
    return size - tensor.count_nonzero(), size


def _sum(counts: list[Any]) -> Any:
    import torch

    return torch.stack(counts).sum()


def _share(count: Any, size: int) -> Any:
    if not size:
        return 0.0
    if isinstance(count, int) or count.device.type == "cpu":
        return int(count) / size
    return count / size

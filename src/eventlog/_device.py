"""Values on a device, fetched without anybody waiting for it.

A scalar on a device is not known to the host until the device has come to it; asking (`item()`,
`cpu()`) stops the training loop until then. Here the calling thread only queues copies, on the
stream that computes the value: each value of an event into host memory that was pinned before,
and behind them a mark. The writer's thread looks at the mark, in host memory, and calls nothing of
the device; once it is there, so are the values. They are those of the moment of the call, since
whatever changes the tensors afterwards is queued behind the copies.

torch is not imported here: who has a tensor has torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

__all__ = [
    "ArrayFetch",
    "DeviceApi",
    "DeviceError",
    "Fetch",
    "Fetched",
    "TorchApi",
    "fetch",
    "fetch_array",
    "fetch_jax",
    "part_of",
]

T = TypeVar("T")

SLOT = 8
"""Bytes for a value, or for the mark: no scalar's type has more, but complex128, which is none."""

CHUNK = 1 << 16
"""Bytes that are pinned at once, for a device's first value and whenever all are in use."""

CHUNKS = 64
"""Most of them for a device; then values wait on the device itself."""


class DeviceError(Exception):
    """A value cannot be taken from its device now; says what to do."""


class Fetched(Protocol):
    """Values on their way to the host."""

    @property
    def ready(self) -> bool:
        """Whether they have come; never waits."""
        ...

    def values(self) -> dict[str, Any]:
        """Return them as numbers; once."""
        ...


class DeviceApi(Protocol):
    """What is asked of a device; tests have one of their own."""

    def pin(self, size: int) -> Any:
        """Return so many bytes of host memory that the device writes to, as a uint8 tensor."""

    def pin_like(self, tensor: Any) -> Any:
        """Return such memory for a tensor, with its shape and type."""

    def mark(self, device: Any) -> Any:
        """Return a uint8 scalar on the device that is 1."""

    def is_capturing(self, device: Any) -> bool:
        """Whether what is queued now becomes part of a graph instead of being run."""


class TorchApi:
    """torch's CUDA, XPU and the like."""

    def pin(self, size: int) -> Any:
        torch = sys.modules["torch"]
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def pin_like(self, tensor: Any) -> Any:
        torch = sys.modules["torch"]
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def mark(self, device: Any) -> Any:
        torch = sys.modules["torch"]
        return torch.ones((), dtype=torch.uint8, device=device)

    def is_capturing(self, device: Any) -> bool:
        kind = getattr(sys.modules["torch"], device.type, None)
        ask = getattr(kind, "is_current_stream_capturing", None)
        return bool(ask is not None and ask())


class Fetch:
    """Values of one event on their way to the host.

    Args:
        parts: The key, and where its value will be, as a tensor in host memory.
        pool: Which the memory goes back to.
        start, end: Where it lies there; the mark is the last slot of it.
    """

    def __init__(self, parts: Mapping[str, Any], pool: _Pool, start: int, end: int) -> None:
        self._parts = parts
        self._pool = pool
        self._at = (start, end)
        self._mark = pool.bytes_at(end - SLOT)

    @property
    def ready(self) -> bool:
        """Whether they have come; looks at host memory only."""
        return self._mark[0] != 0

    def values(self) -> dict[str, Any]:
        """Return them as numbers, and let others have the memory."""
        found = {key: where.item() for key, where in self._parts.items()}
        self._pool.give_back(*self._at)
        return found


class _Late:
    """Values that stay on the device until the writer fetches them: no pinned memory was left."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = parts

    @property
    def ready(self) -> bool:
        return True

    def values(self) -> dict[str, Any]:
        return {key: value.cpu().item() for key, value in self._parts.items()}


class _Chunk:
    """Pinned memory, as a tensor and as bytes that are read without torch."""

    __slots__ = ("raw", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        # NumPy's view of the same memory: torch would be asked through its dispatcher each time
        self.raw = memoryview(tensor.numpy())


class _Pool:
    """Slots in pinned memory for one device."""

    def __init__(self, api: DeviceApi, device: Any) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._chunks: list[_Chunk] = []
        self._free: dict[int, list[int]] = {}
        self._used = CHUNK
        self.mark = api.mark(device)

    def take(self, n: int) -> int | None:
        """Return where n slots in a row are that nobody uses; None when there are none left."""
        size = n * SLOT
        with self._lock:
            free = self._free.get(size)
            if free:
                return free.pop()
            if size > CHUNK:
                return None
            if self._used + size > CHUNK:
                if len(self._chunks) >= CHUNKS:
                    return None
                self._chunks.append(_Chunk(self._api.pin(CHUNK)))
                self._used = 0
            at = (len(self._chunks) - 1) * CHUNK + self._used
            self._used += size
            return at

    def give_back(self, start: int, end: int) -> None:
        with self._lock:
            self._free.setdefault(end - start, []).append(start)

    def bytes_at(self, at: int) -> memoryview:
        """Return a slot's bytes as the host sees them."""
        chunk, offset = divmod(at, CHUNK)
        return self._chunks[chunk].raw[offset : offset + SLOT]

    def slot(self, at: int, dtype: Any) -> Any:
        """Return a slot as a scalar tensor of a type."""
        chunk, offset = divmod(at, CHUNK)
        size: int = dtype.itemsize
        return self._chunks[chunk].tensor[offset : offset + size].view(dtype)[0]


_API: DeviceApi = TorchApi()
_pools: dict[str, _Pool] = {}
_pools_lock = threading.Lock()


def _pool_of(device: Any) -> _Pool:
    name = str(device)
    pool = _pools.get(name)
    if pool is None:
        with _pools_lock:
            pool = _pools.get(name)
            if pool is None:
                pool = _pools[name] = _Pool(_API, device)
    return pool


def part_of(tensor: Any) -> Any:
    """Return a tensor as it is here, out of one that torch spreads over processes (a DTensor).

    Raises:
        DeviceError: Some of it is elsewhere: finding out what it is would be a collective call.
    """
    if not hasattr(tensor, "full_tensor"):
        return tensor
    if not all(place.is_replicate() for place in tensor.placements):
        raise DeviceError(
            "it is spread over processes: log x.full_tensor(), which all of them must call, or "
            "x.to_local() for the part of this one"
        )
    return tensor.to_local()


def fetch(values: Mapping[str, Any]) -> list[Fetched]:
    """Queue copies of scalar tensors to the host; returns at once.

    Args:
        values: Tensors of one element, on devices, without a graph.

    Returns:
        One for each device.

    Raises:
        DeviceError: The stream is being captured into a graph.
    """
    by_device: dict[Any, dict[str, Any]] = {}
    for key, value in values.items():
        by_device.setdefault(value.device, {})[key] = value
    queue = _uncompiled(_fetch_from)
    return [queue(device, mine) for device, mine in by_device.items()]


_outside: dict[str, Callable[..., Any]] = {}


def _uncompiled(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function that `torch.compile` calls as it is.

    In a function that it compiles, it would take the copies and the mark into a graph of its own,
    where their order is its affair.
    """
    if "torch._dynamo" not in sys.modules:  # whoever compiles has it
        return function
    made = _outside.get(function.__name__)
    if made is None:
        disable = sys.modules["torch"].compiler.disable
        made = _outside[function.__name__] = disable(function)
    return made


def _check_capture(device: Any) -> None:
    if _API.is_capturing(device):
        raise DeviceError(
            "a CUDA graph is being captured: what is logged now would become part of it; log "
            "after the capture, or after each replay, from the tensors that the graph writes"
        )


def _fetch_from(device: Any, values: Mapping[str, Any]) -> Fetched:
    _check_capture(device)
    if device.type == "mps":
        # it has no memory that is pinned: a copy on the device, fetched by the writer
        return _Late({key: value.clone() for key, value in values.items()})
    pool = _pool_of(device)
    start = pool.take(len(values) + 1)
    if start is None:
        return _Late({key: value.clone() for key, value in values.items()})
    end = start + (len(values) + 1) * SLOT
    pool.bytes_at(end - SLOT)[0] = 0
    parts = {}
    for at, (key, value) in zip(range(start, end, SLOT), values.items(), strict=False):
        where = pool.slot(at, value.dtype)
        where.copy_(value, non_blocking=True)
        parts[key] = where
    pool.slot(end - SLOT, pool.mark.dtype).copy_(pool.mark, non_blocking=True)
    return Fetch(parts, pool, start, end)


class ArrayFetch:
    """A tensor of any shape on its way to the host.

    Attributes:
        nbytes: Of it.
    """

    def __init__(self, where: Any, pool: _Pool, at: int) -> None:
        self._where = where
        self._pool = pool
        self._at = at
        self._mark = pool.bytes_at(at)
        self.nbytes: int = where.nbytes

    @property
    def ready(self) -> bool:
        """Whether it has come; looks at host memory only."""
        return self._mark[0] != 0

    def array(self) -> Any:
        """Return it as a tensor in host memory, and let others have the mark."""
        self._pool.give_back(self._at, self._at + SLOT)
        return self._where


def fetch_array(tensor: Any) -> Any:
    """Queue the copy of a tensor to the host; returns at once.

    Returns:
        An `ArrayFetch`; a copy on the device where there is no pinned memory for it.

    Raises:
        DeviceError: The stream is being captured into a graph.
    """
    return _uncompiled(_fetch_array)(tensor)


def _fetch_array(tensor: Any) -> Any:
    _check_capture(tensor.device)
    if tensor.device.type == "mps":
        return tensor.clone()
    pool = _pool_of(tensor.device)
    at = pool.take(1)
    if at is None:
        return tensor.clone()
    pool.bytes_at(at)[0] = 0
    where = _API.pin_like(tensor)
    where.copy_(tensor, non_blocking=True)
    pool.slot(at, pool.mark.dtype).copy_(pool.mark, non_blocking=True)
    return ArrayFetch(where, pool, at)


class _JaxFetch:
    """An array of JAX of which the copy to the host was asked for."""

    def __init__(self, key: str, array: Any) -> None:
        self._key = key
        self._array = array

    @property
    def ready(self) -> bool:
        return bool(self._array.is_ready())

    def values(self) -> dict[str, Any]:
        return {self._key: self._array.item()}


def fetch_jax(key: str, array: Any) -> _JaxFetch:
    """Ask for the copy of an array of JAX to the host; returns at once.

    The array is copied on its device first: the program may donate its own to a computation.
    """
    mine = array.copy()
    mine.copy_to_host_async()
    return _JaxFetch(key, mine)

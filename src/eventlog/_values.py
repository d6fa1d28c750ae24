"""What users log, made plain on the spot: the snapshot that later changes cannot reach.

Nothing here raises for a value. What cannot be a value comes back as a reason, in words that say
what to do.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from eventlog._device import DeviceError, part_of
from eventlog.events import Event, Scalar

__all__ = ["PLAIN", "Snapshot", "clean_axes", "clean_event", "is_step", "snapshot"]

PLAIN: Final = frozenset({float, int, bool, str})
"""Types that are taken as they are."""

_DEPTH = 32
_MAX_INT = 2**63 - 1


class Snapshot:
    """Values made plain.

    Attributes:
        values: Flat, plain.
        pending: Tensors on a device, and arrays of JAX, by key: their numbers are not known on
            this side yet.
        rejected: (key, reason, advice) of what cannot be a value.
    """

    __slots__ = ("pending", "rejected", "values")

    def __init__(self) -> None:
        self.values: dict[str, Scalar] = {}
        self.pending: dict[str, Any] = {}
        self.rejected: list[tuple[str, str, str]] = []


RESERVED: Final = frozenset({"axis", "batch", "durable", "epoch", "every", "options"})
"""Names that say something about a call instead of being values of it."""

_SHORT = 1024

_items: dict[type, Callable[[Any], Any] | None] = {}


def plain_in_place(scalars: dict[str, Any]) -> bool:
    """Make the commonest values plain: scalars of NumPy, and of torch where they are at hand.

    Between two steps of work the interpreter's caches are cold, and each line costs ten times
    what it does in a loop; the general way, `snapshot`, takes 30 us there, this one 5.

    Returns:
        False when there is anything else, or a reserved name: then `snapshot` must look.
    """
    if not RESERVED.isdisjoint(scalars):
        return False
    for key, value in scalars.items():
        kind = type(value)
        if kind in PLAIN:
            if kind is str and len(value) > _SHORT:
                return False
            continue
        try:
            item = _items[kind]
        except KeyError:
            item = _items[kind] = _item_of(kind)
        if item is None:
            return False
        try:
            made = item(value)
        except Exception:  # a fake or a batched tensor, say: snapshot will name it
            return False
        if type(made) not in PLAIN:
            return False
        scalars[key] = made
    return True


def _item_of(kind: type) -> Callable[[Any], Any] | None:
    """Return what reads the one element of an array type; None for other types."""
    root = kind.__module__.partition(".")[0]
    # masked arrays, and tensors that are spread over processes, are not what they look like
    if root == "numpy" and hasattr(kind, "item") and not hasattr(kind, "mask"):
        return _numpy_item
    if root == "torch" and hasattr(kind, "is_cpu") and not hasattr(kind, "full_tensor"):
        return _torch_item
    return None


def _numpy_item(value: Any) -> Any:
    return value.item() if value.size == 1 else None


def _torch_item(value: Any) -> Any:
    return value.item() if value.is_cpu and value.numel() == 1 else None


def snapshot(values: Mapping[Any, Any]) -> Snapshot:
    """Flatten a mapping and make its values plain; nested names are joined with ``/``."""
    result = Snapshot()
    _flatten(values, "", result, ())
    return result


def _flatten(
    values: Mapping[Any, Any], prefix: str, result: Snapshot, path: tuple[int, ...]
) -> None:
    if id(values) in path:
        result.rejected.append((prefix, "cycle", "a mapping that holds itself"))
        return
    if len(path) >= _DEPTH:
        result.rejected.append((prefix, "depth", f"mappings nested deeper than {_DEPTH}"))
        return
    path = (*path, id(values))
    try:
        items = list(values.items())
    except Exception as error:  # changed by another thread in the middle, or a mapping of its own
        result.rejected.append((prefix, "mapping", f"{type(error).__name__}: {_text_of(error)}"))
        return
    for key, value in items:
        name = key if type(key) is str else _name(key)
        name = f"{prefix}/{name}" if prefix else name
        _take(name, value, result, path)


def _name(key: Any) -> str:
    try:
        return str.__str__(key) if isinstance(key, str) else str(key)
    except Exception:
        return type(key).__name__


def _take(name: str, value: Any, result: Snapshot, path: tuple[int, ...]) -> None:
    if type(value) in PLAIN:
        result.values[name] = value
        return
    try:
        if isinstance(value, Mapping):
            _flatten(value, name, result, path)
        elif callable(value) and not hasattr(value, "dtype"):
            _call(name, value, result, path)
        else:
            _convert(name, value, result)
    except Exception as error:  # an attribute, a conversion, or a class that raises when looked at
        result.rejected.append((name, "unreadable", f"{type(error).__name__}: {_text_of(error)}"))


def _call(name: str, value: Any, result: Snapshot, path: tuple[int, ...]) -> None:
    try:
        made = value()
    except Exception as error:
        text = f"it raised {type(error).__name__}: {_text_of(error)}"
        result.rejected.append((name, "callable", text))
        return
    if callable(made) and not hasattr(made, "dtype"):
        result.rejected.append((name, "callable", "it returned another callable"))
        return
    _take(name, made, result, path)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return "it has no text"


def _convert(name: str, value: Any, result: Snapshot) -> None:
    if value is None:
        result.rejected.append((name, "none", "None is no value; leave the key out"))
    elif hasattr(value, "dtype"):
        _convert_array(name, value, result)
    elif isinstance(value, bool | int):  # a subclass: IntEnum, or a library's own
        result.values[name] = int(value)
    elif isinstance(value, float):
        result.values[name] = float(value)
    elif isinstance(value, str):
        result.values[name] = str.__str__(value)  # str() of a str Enum would be its name
    elif isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        result.rejected.append((name, "complex", "log its .real and .imag, or abs() of it"))
    elif isinstance(value, bytes | bytearray | memoryview):
        result.rejected.append((name, "bytes", "decode them to a str"))
    elif isinstance(value, list | tuple | set | frozenset | range):
        advice = "log one scalar a key, or run.histogram(...) or run.table(...)"
        result.rejected.append((name, "sequence", advice))
    elif isinstance(value, numbers.Number) or hasattr(value, "__float__"):
        result.values[name] = float(value)
    else:
        advice = f"a {type(value).__name__} is no scalar; log a number or a str"
        result.rejected.append((name, "type", advice))


def _convert_array(name: str, value: Any, result: Snapshot) -> None:
    """Take the one element of an array of NumPy, torch, JAX or the like."""
    shape = tuple(getattr(value, "shape", ()))
    if math.prod(shape) != 1:
        advice = f"an array of shape {shape} is no scalar; log a statistic or run.histogram(...)"
        result.rejected.append((name, "shape", advice))
        return
    try:
        value = part_of(value)
    except DeviceError as error:
        result.rejected.append((name, "sharded", str(error)))
        return
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if device == "meta":
        result.rejected.append((name, "meta", "a tensor on the meta device has no value"))
        return
    if device != "cpu" and hasattr(value, "detach"):
        if getattr(value.dtype, "is_complex", False):
            result.rejected.append((name, "complex", "log its .real and .imag, or abs() of it"))
        else:
            # no copy yet: whoever takes the snapshot has all of an event's copied at once
            result.pending[name] = value.detach().reshape(())
        return
    if hasattr(value, "copy_to_host_async") and hasattr(value, "is_ready"):
        result.pending[name] = value
        return
    if hasattr(value, "detach"):
        value = value.detach()
    elif getattr(value, "mask", False) is not False and value.mask.all():
        result.rejected.append((name, "none", "it is masked; leave the key out"))
        return
    element = value.item()
    if type(element) in PLAIN:
        result.values[name] = element
    elif hasattr(element, "dtype"):  # longdouble gives itself back
        result.values[name] = float(element)
    else:
        _convert(name, element, result)


def clean_axes(event: Event) -> tuple[Event, list[tuple[str, str, str]]]:
    """Return an event without axes that no log can hold, and what was rejected.

    Integers of any library become plain ones; what is no place is left out.
    """
    step, batch, epoch = event.step, event.batch, event.epoch
    if (
        (step is None or (type(step) is int and 0 <= step <= _MAX_INT))
        and (batch is None or (type(batch) is int and 0 <= batch <= _MAX_INT))
        and (epoch is None or (type(epoch) in (int, float) and 0 <= epoch <= _MAX_INT))
        and type(event.axis) is str
    ):
        return event, []
    rejected: list[tuple[str, str, str]] = []
    changes: dict[str, Any] = {}
    for name, given in (("step", step), ("batch", batch), ("epoch", epoch)):
        made: int | float | None = is_step(given)
        if made is None and name == "epoch" and isinstance(given, float) and 0 <= given < 2**63:
            made = float(given)
        if made is None and given is not None:
            advice = f"{name} must be a number from 0 to 2**63 - 1; recorded without"
            rejected.append((name, f"bad_{name}", advice))
        changes[name] = made
    if type(event.axis) is not str:
        changes["axis"] = str.__str__(event.axis) if isinstance(event.axis, str) else "step"
    return msgspec.structs.replace(event, **changes), rejected


def clean_event(event: Event) -> Event:
    """Return an event that msgpack refuses in a form that it takes, changed as little as may be.

    Lone surrogates become ``?``, integers beyond 64 bits floats, and an array's one element its
    number.
    """
    event, _ = clean_axes(event)
    changes = {
        field: _clean(getattr(event, field))
        for field in event.__struct_fields__
        if field not in ("mono", "seq", "wall", "rank", "attempt", "step", "batch")
    }
    return msgspec.structs.replace(event, **changes)


def _clean(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if depth > _DEPTH:
        return f"[nested deeper than {_DEPTH}]"
    if isinstance(value, dict):
        return {_clean_key(k): _clean(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v, depth + 1) for v in value]
    if hasattr(value, "dtype"):
        made = Snapshot()
        _convert_array("value", value, made)
        return made.values.get("value", value)
    return value


def _clean_key(key: Any) -> Any:
    if isinstance(key, str):
        return key.encode("utf-8", "replace").decode("utf-8")
    return key


def is_step(value: object) -> int | None:
    """Return a step, batch or counter as an int, or None where it is none.

    Integers of any library are taken, floats with an integral value, and 0-d arrays of these.
    """
    if type(value) is int:
        return value if 0 <= value <= _MAX_INT else None
    if type(value) is bool or value is None:
        return None
    try:
        if hasattr(value, "dtype"):
            made = Snapshot()
            _convert_array("step", value, made)
            element = made.values.get("step")
            return is_step(element) if isinstance(element, int | float) else None
        if isinstance(value, numbers.Integral):
            return is_step(int(value))
        if isinstance(value, float) and value.is_integer():
            return is_step(int(value))
    except Exception:
        return None
    return None

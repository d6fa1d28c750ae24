"""Media: a snapshot on the emitting thread, the work of encoding on the writer's.

What a snapshot costs the caller: an array or a tensor is copied (about 0.1 ms a MB), a figure is
rendered (tens of ms, since matplotlib's figures cannot be handed to another thread), the rest
costs nothing. Encoding to PNG, binning, hashing and writing the blob happen on the writer's thread.
"""

from __future__ import annotations

import io
import math
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from eventlog._device import ArrayFetch, Fetched, fetch_array, part_of
from eventlog._values import PLAIN, snapshot
from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    Scalar,
)
from eventlog.log.blobs import BlobStore

__all__ = [
    "DeferredArtifact",
    "DeferredFigure",
    "DeferredHistogram",
    "DeferredImage",
    "PendingValues",
    "Sized",
    "copy_array",
    "plain_table",
    "render_figure",
]

_PNG_MODES = frozenset({"1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"})
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


class PendingValues:
    """An event of which some values are still on their way from a device."""

    def __init__(self, event: Event, pending: Sequence[Fetched], size: int = 0) -> None:
        self.event = event
        self._pending = pending
        self.size = size + 256 * len(pending)

    @property
    def ready(self) -> bool:
        """Whether all have come."""
        return all(fetched.ready for fetched in self._pending)

    def resolve(self) -> Event:
        """Take the values over, on the writer's thread."""
        found: dict[str, Any] = {}
        for fetched in self._pending:
            found |= fetched.values()
        made = snapshot(found)
        return msgspec.structs.replace(self.event, values={**self.event.values, **made.values})


class Sized:
    """An event that is larger than most, so that the inbox's bound in bytes knows."""

    ready = True

    def __init__(self, event: Event, size: int) -> None:
        self.event = event
        self.size = size

    def resolve(self) -> Event:
        """Return it."""
        return self.event


def copy_array(value: Any) -> Any:
    """Return a copy of an array or tensor that later changes do not reach; bytes as they are.

    Raises:
        TypeError: It is neither, nor a path, nor a PIL image.
    """
    if isinstance(value, bytes | str | Path):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "detach"):
        value = part_of(value.detach())
        device = getattr(getattr(value, "device", None), "type", "cpu")
        if device == "meta":
            raise ValueError("a tensor on the meta device has no values")
        return value.clone() if device == "cpu" else fetch_array(value)
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        import numpy as np

        return np.array(value)
    if hasattr(value, "save") and hasattr(value, "size"):
        return value.copy()
    if isinstance(value, Sequence):
        import numpy as np

        return np.array(value, dtype=float)
    raise TypeError(
        "must be an array, a tensor, a PIL image, encoded bytes or a path, "
        f"not {type(value).__name__}"
    )


def _numpy(value: Any) -> Any:
    """Return a NumPy array of a copied value; types that NumPy lacks (bf16, fp8) are widened."""
    import numpy as np

    if isinstance(value, ArrayFetch):
        value = value.array()
    if hasattr(value, "detach"):
        value = value.cpu()
        if not value.dtype.is_floating_point or str(value.dtype) in (
            "torch.float16",
            "torch.float32",
            "torch.float64",
        ):
            return value.numpy()
        return value.float().numpy()
    return np.asarray(value)


def _is_here(value: Any) -> bool:
    return not isinstance(value, ArrayFetch) or value.ready


def _size(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    size = getattr(value, "size", None)
    return 4 * math.prod(size) if isinstance(size, tuple) else 0


class DeferredImage:
    """An `ImageEvent` whose pixels are still to be encoded."""

    def __init__(self, event: ImageEvent, images: Sequence[Any], blobs: BlobStore) -> None:
        self.event = event
        self._images = images
        self._blobs = blobs
        self.size = sum(map(_size, images))

    @property
    def ready(self) -> bool:
        """Whether all pixels have come from their device."""
        return all(_is_here(image) for image in self._images)

    def resolve(self) -> Event:
        """Encode the pixels and keep them as blobs."""
        refs, width, height = [], 0, 0
        for image in self._images:
            data, mime, size = encode_image(image)
            refs.append(self._blobs.put(data, mime))
            if len(refs) == 1:
                width, height = size
        return msgspec.structs.replace(self.event, blobs=refs, width=width, height=height)


def encode_image(image: Any) -> tuple[bytes, str, tuple[int, int]]:
    """Return (encoded bytes, media type, (width, height)) of an image of any kind.

    Arrays are (height, width), (height, width, channels) or, with 1, 3 or 4 channels first,
    (channels, height, width); floats are taken as 0 to 1, integers as 0 to 255.

    Raises:
        ValueError: The array's shape is none of these, or the bytes no PNG, JPEG or GIF.
    """
    from PIL import Image

    if isinstance(image, str | Path):
        image = Path(image).read_bytes()
    if isinstance(image, bytes):
        mime = next((m for s, m in _SIGNATURES.items() if image.startswith(s)), None)
        if mime is None:
            raise ValueError("encoded images must be PNG, JPEG or GIF")
        with Image.open(io.BytesIO(image)) as opened:
            return image, mime, opened.size
    if not hasattr(image, "save"):
        image = Image.fromarray(_pixels(_numpy(image)))
    elif image.mode not in _PNG_MODES:
        image = image.convert("RGB")
    out = io.BytesIO()
    image.save(out, format="PNG", compress_level=1)
    return out.getvalue(), "image/png", image.size


def _pixels(array: Any) -> Any:
    import numpy as np

    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ValueError(
            "an image must be of shape (height, width), (height, width, channels) or "
            f"(channels, height, width) with 1, 3 or 4 channels, not {array.shape}"
        )
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if np.issubdtype(array.dtype, np.floating):
        array = np.nan_to_num(array.astype(np.float32, copy=False), posinf=1.0, neginf=0.0)
        return (array.clip(0, 1) * 255 + 0.5).astype(np.uint8)
    return array.clip(0, 255).astype(np.uint8)


class DeferredFigure:
    """A `FigureEvent` whose rendering is still to be kept."""

    ready = True

    def __init__(self, event: FigureEvent, png: bytes, blobs: BlobStore) -> None:
        self.event = event
        self._png = png
        self._blobs = blobs
        self.size = len(png)

    def resolve(self) -> Event:
        """Keep the rendering as a blob."""
        width = int.from_bytes(self._png[16:20], "big")
        height = int.from_bytes(self._png[20:24], "big")
        ref = self._blobs.put(self._png, "image/png")
        return msgspec.structs.replace(self.event, blob=ref, width=width, height=height)


def render_figure(figure: Any) -> bytes:
    """Return a matplotlib figure as PNG.

    Raises:
        TypeError: It is no figure.
    """
    if not hasattr(figure, "savefig"):
        figure = getattr(figure, "figure", figure)  # an Axes
    if not hasattr(figure, "savefig"):
        raise TypeError(f"figure must be a matplotlib figure, not {type(figure).__name__}")
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


class DeferredHistogram:
    """A `HistogramEvent` whose values are still to be binned."""

    def __init__(self, event: HistogramEvent, values: Any, bins: int) -> None:
        self.event = event
        self._values = values
        self._bins = bins
        self.size = _size(values)

    @property
    def ready(self) -> bool:
        """Whether the values have come from their device."""
        return _is_here(self._values)

    def resolve(self) -> Event:
        """Bin the values; the array is let go of."""
        import numpy as np

        array = _numpy(self._values).reshape(-1)
        if np.iscomplexobj(array):
            raise ValueError("complex numbers have no histogram; take one of their abs()")
        # a range of long doubles may be too wide for floats: then they are infinite
        with np.errstate(over="ignore", invalid="ignore"):
            array = array.astype(np.float64)
            finite = array[np.isfinite(array)]
            counts, edges = _bin(finite, self._bins)
            return msgspec.structs.replace(
                self.event,
                edges=edges.tolist(),
                counts=counts.tolist(),
                n=int(finite.size),
                min=float(finite.min()) if finite.size else 0.0,
                max=float(finite.max()) if finite.size else 0.0,
                sum=float(finite.sum()),
                sum_squares=float((finite * finite).sum()),
                nonfinite=int(array.size - finite.size),
            )


def _bin(finite: Any, bins: int) -> tuple[Any, Any]:
    import numpy as np

    if not finite.size:
        return np.zeros(0, dtype=int), np.zeros(1)
    low, high = float(finite.min()), float(finite.max())
    if not math.isfinite(high - low):
        # wider than a float can say: bin the halves, whose range it can
        counts, edges = np.histogram(finite / 2, bins=bins)
        return counts, np.clip(edges, low / 2, high / 2) * 2
    try:
        return np.histogram(finite, bins=bins)
    except ValueError:
        if not isinstance(bins, int) or bins < 1:
            raise
        # neighbouring floats: there are not so many between them
        return np.array([finite.size]), np.array([low, high])


class DeferredArtifact:
    """An `ArtifactEvent` whose file is still to be copied."""

    ready = True
    size = 0

    def __init__(self, event: ArtifactEvent, blobs: BlobStore) -> None:
        self.event = event
        self._blobs = blobs

    def resolve(self) -> Event:
        """Copy the file into the run."""
        path = Path(self.event.path)
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        ref: BlobRef = self._blobs.put_file(path, mime)
        return msgspec.structs.replace(self.event, blob=ref, size=ref.size)


def plain_table(
    columns: Sequence[str] | None, rows: Any
) -> tuple[list[str], list[list[Scalar | None]]]:
    """Return a table's columns and its rows as plain values.

    Args:
        columns: Names; None when `rows` has them.
        rows: Rows of cells, rows as mappings, a mapping of columns, or a data frame.

    Raises:
        ValueError: A row has another number of cells than there are columns.
        TypeError: It is none of these.
    """
    if hasattr(rows, "columns") and hasattr(rows, "to_dict"):
        columns = [str(c) for c in rows.columns]
        rows = list(rows.itertuples(index=False, name=None))
    elif isinstance(rows, Mapping):
        columns = [str(c) for c in rows]
        rows = list(zip(*rows.values(), strict=True))
    else:
        rows = list(rows)
        if rows and all(isinstance(row, Mapping) for row in rows):
            rows = [{str(k): cell for k, cell in row.items()} for row in rows]
            columns = columns or list(dict.fromkeys(k for row in rows for k in row))
            rows = [[row.get(str(c)) for c in columns] for row in rows]
    if columns is None:
        raise TypeError("columns must be given when the rows are plain sequences")
    for name in columns:
        if isinstance(name, list | tuple | Mapping):
            raise TypeError(f"columns must be names, not {name!r}: it is table(tag, rows, columns)")
    table = [[_cell(cell) for cell in row] for row in rows]
    for number, row in enumerate(table):
        if len(row) != len(columns):
            raise ValueError(
                f"row {number} has {len(row)} cells, but there are {len(columns)} columns"
            )
    return [str(c) for c in columns], table


def _cell(cell: Any) -> Scalar | None:
    if cell is None or type(cell) in PLAIN:
        return cell  # type: ignore[no-any-return]
    made = snapshot({"cell": cell}).values
    return made.get("cell", str(cell))

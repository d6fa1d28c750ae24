"""Media on their way into the log: copied when emitted, made on the writer's thread."""

import hashlib
import io
import itertools
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image

from eventlog._media import (
    DeferredArtifact,
    DeferredFigure,
    DeferredHistogram,
    DeferredImage,
    copy_array,
    encode_image,
    plain_table,
    render_figure,
)
from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    StepEvent,
)
from eventlog.log import open_log
from eventlog.log.blobs import BlobStore
from eventlog.recorder import Recorder
from eventlog.testing import FakeClock


def decoded(data: bytes) -> Any:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


SHAPES = [
    ((4, 6), (4, 6)),
    ((4, 6, 1), (4, 6)),
    ((4, 6, 3), (4, 6, 3)),
    ((4, 6, 4), (4, 6, 4)),
    ((1, 4, 6), (4, 6)),
    ((3, 4, 6), (4, 6, 3)),
    ((4, 5, 6), (5, 6, 4)),
    ((3, 4, 3), (3, 4, 3)),
]


@pytest.mark.parametrize(("shape", "stored"), SHAPES, ids=str)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_images_of_any_layout(
    shape: tuple[int, ...], stored: tuple[int, ...], library: str
) -> None:
    """Grey, channels last and channels first, from either library, pixel by pixel."""
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data, mime, size = encode_image(array if library == "numpy" else torch.from_numpy(array))
    assert mime == "image/png"
    pixels = decoded(data)
    assert pixels.shape == stored
    assert size == (stored[1], stored[0])
    expected = array
    if shape != stored:
        expected = array.reshape(stored) if 1 in shape else np.moveaxis(array, 0, 2)
    assert (pixels == expected).all()


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4, 5), (5, 6, 2), (2, 4, 6), (5, 6, 5)])
def test_shapes_that_are_no_image_are_named(shape: tuple[int, ...]) -> None:
    """A batch, a vector, or two channels: the error names the shape."""
    with pytest.raises(ValueError, match="an image must be of shape"):
        encode_image(np.zeros(shape))


@pytest.mark.parametrize(
    ("values", "pixels"),
    [
        (np.array([[0.0, 0.5, 1.0, 2.0, -1.0]]), [0, 128, 255, 255, 0]),
        (np.array([[math.nan, math.inf, -math.inf]]), [0, 255, 0]),
        (np.array([[0.5]], np.float16), [128]),
        (np.array([[-5, 100, 300]]), [0, 100, 255]),
        (np.array([[True, False]]), [255, 0]),
        (torch.tensor([[0.0, 0.5]], dtype=torch.bfloat16), [0, 128]),
        (torch.tensor([[0.5]], dtype=torch.float8_e4m3fn), [128]),
        (torch.tensor([[0.5]], requires_grad=True), [128]),
        (torch.tensor([[True, False]]), [255, 0]),
    ],
)
def test_pixels_of_any_type(values: Any, pixels: list[int]) -> None:
    """Floats are 0 to 1, integers 0 to 255; what lies outside is cut."""
    data, _, _ = encode_image(copy_array(values))
    assert decoded(data).tolist() == [pixels]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "F"])
def test_pil_images_of_any_mode(mode: str) -> None:
    """What PNG cannot hold is converted."""
    image = Image.new(mode, (3, 2))
    data, mime, size = encode_image(copy_array(image))
    assert (mime, size) == ("image/png", (3, 2))
    assert decoded(data).shape[:2] == (2, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
def test_encoded_images_are_kept_as_they_are(tmp_path: Path, kind: str) -> None:
    """Bytes and files of a known format are not encoded again."""
    path = tmp_path / "image"
    Image.new("RGB", (3, 2)).save(path, format=kind)
    data = path.read_bytes()
    for given in (data, path, str(path), bytearray(data)):
        assert encode_image(copy_array(given)) == (data, f"image/{kind.lower()}", (3, 2))


def test_bytes_that_are_no_image_are_refused() -> None:
    """An error names what may be given."""
    with pytest.raises(ValueError, match="must be PNG, JPEG or GIF"):
        encode_image(b"BM")
    with pytest.raises(TypeError, match="not object"):
        copy_array(object())


def test_copies_are_not_reached_by_later_changes() -> None:
    """Arrays, tensors and images may be changed once they were emitted."""
    array, tensor, image = np.zeros(3), torch.zeros(3), Image.new("L", (1, 1))
    copies = [copy_array(array), copy_array(tensor), copy_array(image)]
    array += 1
    tensor += 1
    image.putpixel((0, 0), 9)
    assert copies[0].sum() == copies[1].sum() == copies[2].getpixel((0, 0)) == 0
    assert copy_array([1, 2]).tolist() == [1.0, 2.0]


def histogram(values: Any, bins: int = 4) -> HistogramEvent:
    item = DeferredHistogram(HistogramEvent(tag="h", edges=[], counts=[]), copy_array(values), bins)
    event = item.resolve()
    assert isinstance(event, HistogramEvent)
    assert len(event.edges) == len(event.counts) + 1
    assert sum(event.counts) == event.n
    assert all(a <= b for a, b in itertools.pairwise(event.edges))
    return event


def test_a_histogram_counts_what_is_finite() -> None:
    """NaN and infinities are counted apart; the moments are of the rest."""
    event = histogram([0.0, 1.0, 2.0, 4.0, math.nan, math.inf, -math.inf])
    assert event.edges == [0, 1, 2, 3, 4]
    assert event.counts == [1, 1, 1, 1]
    assert (event.n, event.nonfinite, event.min, event.max) == (4, 3, 0, 4)
    assert (event.sum, event.sum_squares) == (7, 21)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(0),
        [],
        [math.nan],
        [3.0],
        [3.0, 3.0],
        [1e308, -1e308],
        [1.0, np.nextafter(1.0, 2)],
        [5e-324, 0.0],
        [1e-300, 2e-300],
        np.arange(10, dtype=np.int64) + 2**60,
        np.array([True, False]),
        np.array([1, 255], np.uint8),
        np.array([1, 2], np.float16),
        np.array([1, 2], np.longdouble) * np.longdouble(10) ** 400,
        np.zeros((2, 3, 4)),
        torch.randn(5, 5).to(torch.bfloat16),
        torch.randn(5).to(torch.float8_e5m2),
        torch.randn(3, requires_grad=True),
        torch.tensor(2.0),
        torch.tensor([True, False]),
        torch.tensor([1, 2], dtype=torch.int8),
        torch.empty(0),
    ],
    ids=str,
)
def test_histograms_of_any_values(values: Any) -> None:
    """Every shape, type and range has a histogram; its counts add up."""
    event = histogram(values)
    assert event.n + event.nonfinite == np.asarray(copy_array(values).tolist()).size


def test_a_histogram_of_complex_numbers_is_refused() -> None:
    """It says what to take instead."""
    with pytest.raises(ValueError, match="abs"):
        histogram(np.array([1j]))
    with pytest.raises(ValueError, match="bins"):
        histogram([1.0, 2.0], bins=0)


def test_tables_of_any_kind() -> None:
    """Rows, rows as mappings, columns, and frames."""
    rows = [["a", 1], ["b", None]]
    assert plain_table(["k", "v"], rows) == (["k", "v"], rows)
    assert plain_table(None, [{"k": "a", "v": 1}, {"k": "b"}]) == (["k", "v"], rows)
    assert plain_table(None, {"k": ["a", "b"], "v": [1, None]}) == (["k", "v"], rows)
    assert plain_table(["v"], [{"k": "a", "v": 1}]) == (["v"], [[1]])
    assert plain_table(None, [{1: "x"}, {2: "y"}]) == (["1", "2"], [["x", None], [None, "y"]])
    assert plain_table(["a"], []) == (["a"], [])

    class Frame:
        columns = ("k", "v")

        def to_dict(self) -> dict[str, Any]:
            raise AssertionError

        def itertuples(self, index: bool, name: str | None) -> Any:
            return iter([("a", 1), ("b", None)])

    assert plain_table(None, Frame()) == (["k", "v"], rows)


def test_cells_of_any_type_are_plain() -> None:
    """Scalars of any library are numbers; what is none is its text."""
    cells = [np.float32(0.5), torch.tensor(2), 1j, [1], Path("x"), float("inf")]
    _, rows = plain_table(list("abcdef"), [cells])
    assert rows == [[0.5, 2, "1j", "[1]", "x", float("inf")]]


def test_tables_that_are_none_are_refused() -> None:
    """An error names the row, or what is missing."""
    with pytest.raises(ValueError, match="row 1 has 3 cells, but there are 2 columns"):
        plain_table(["a", "b"], [[1, 2], [1, 2, 3]])
    with pytest.raises(TypeError, match="columns must be given"):
        plain_table(None, [[1]])
    with pytest.raises(ValueError, match="argument"):
        plain_table(None, {"a": [1], "b": [1, 2]})


@pytest.fixture
def recorder(tmp_path: Path) -> Any:
    """Return a recorder whose writer is turned by hand."""
    made = Recorder(tmp_path / "run", run_id="r", clock=FakeClock())
    yield made
    made.stop(10)


def stored(recorder: Recorder) -> list[Event]:
    """Let the writer write, and read the log."""
    recorder.writer.turn()
    assert recorder.run_dir is not None
    return list(open_log(recorder.run_dir).events())


def blob(recorder: Recorder, ref: BlobRef) -> bytes:
    """Return what a reference names, checked against it."""
    assert recorder.run_dir is not None
    data = (recorder.run_dir / "blobs" / ref.sha256).read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (ref.size, ref.sha256)
    return data


def test_images_become_blobs(recorder: Recorder) -> None:
    """Each image of an event is a file named by its contents, written before the event."""
    arrays = [np.zeros((4, 6)), np.ones((2, 2, 3))]
    item = DeferredImage(ImageEvent(tag="i", caption="c"), arrays, recorder.blobs)  # type: ignore[arg-type]
    assert item.size == sum(a.nbytes for a in arrays)
    assert recorder.inbox.put(item, size=item.size)
    (event,) = stored(recorder)
    assert isinstance(event, ImageEvent)
    assert (event.width, event.height, event.caption) == (6, 4, "c")
    assert [decoded(blob(recorder, ref)).shape for ref in event.blobs] == [(4, 6), (2, 2, 3)]


def test_equal_blobs_are_kept_once(recorder: Recorder) -> None:
    """A file is named by its contents, and no temporary one is left."""
    store = recorder.blobs
    assert store is not None
    assert store.put(b"x", "a/b") == store.put(b"x", "a/b")
    assert len(list(store.directory.iterdir())) == 1


def test_figures_are_rendered_when_they_are_emitted(recorder: Recorder) -> None:
    """A figure or its axes become a PNG of known size."""
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=50)
    png = render_figure(figure)
    assert render_figure(axes).startswith(b"\x89PNG")
    pyplot.close(figure)
    with pytest.raises(TypeError, match="not int"):
        render_figure(3)
    no_blob = BlobRef(sha256="", size=0, mime="")
    event = FigureEvent(tag="f", blob=no_blob)
    recorder.inbox.put(DeferredFigure(event, png, recorder.blobs))  # type: ignore[arg-type]
    (event,) = stored(recorder)  # type: ignore[assignment]
    assert (event.width, event.height) == (100, 50)
    assert blob(recorder, event.blob) == png


def test_artifacts_are_copied_when_asked(recorder: Recorder, tmp_path: Path) -> None:
    """The copy is whole and keeps the file's mode; a file that has gone is a counted drop."""
    source = tmp_path / "model.json"
    source.write_bytes(b"{}" * 1_000_000)
    source.chmod(0o640)
    gone = tmp_path / "gone"
    for path in (source, gone):
        event = ArtifactEvent(name="m", path=str(path))
        recorder.inbox.put(DeferredArtifact(event, recorder.blobs))  # type: ignore[arg-type]
    (event,) = stored(recorder)  # type: ignore[assignment]
    assert event.blob is not None
    assert (event.size, event.blob.mime) == (2_000_000, "application/json")
    assert blob(recorder, event.blob) == source.read_bytes()
    copy = recorder.blobs.directory / event.blob.sha256  # type: ignore[union-attr]
    assert copy.stat().st_mode & 0o777 == 0o640
    assert recorder.writer.statistics().dropped == {"unresolved": 1}
    assert len(list(copy.parent.iterdir())) == 1


def test_a_store_makes_its_directory_again(tmp_path: Path) -> None:
    """Removing a run's directory does not end its media."""
    store = BlobStore(tmp_path / "run")
    ref = store.put(b"a", "x/y")
    (store.directory / ref.sha256).unlink()
    store.directory.rmdir()
    (tmp_path / "run").rmdir()
    assert store.put(b"a", "x/y") == ref
    assert (store.directory / ref.sha256).read_bytes() == b"a"


def test_an_image_that_cannot_be_made_costs_itself(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong shape is found on the writer's thread: counted and named; what follows is written."""
    bad = DeferredImage(ImageEvent(tag="i", step=7), [np.zeros(3)], recorder.blobs)  # type: ignore[arg-type]
    empty = DeferredImage(ImageEvent(tag="i"), [np.zeros((0, 4))], recorder.blobs)  # type: ignore[arg-type]
    for item in (bad, empty):
        recorder.inbox.put(item)
    recorder.offer(StepEvent(step=1), {"a": 1})
    assert [type(e) for e in stored(recorder)] == [StepEvent]
    assert recorder.writer.statistics().dropped == {"unresolved": 2}
    assert "(unresolved): ImageEvent 'i' at step 7: ValueError: " in caplog.text

"""Finding installed sinks: lazily, whatever other packages do."""

import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import Run
from eventlog.exceptions import SinkLoadError
from eventlog.sinks import available_sinks, load_sink_class

GOOD = """
from eventlog import Sink
class Good(Sink):
    name = "good"
    def write(self, batch): pass
class Needy(Good):
    requires = ("json", "no_such_module_here", "no_such.parent")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the path for made-up distributions."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_up_good.py").write_text(GOOD)
    return tmp_path


def install(site: Path, name: str, entry_points: str, *, metadata: bool = True) -> None:
    info = site / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    if metadata:
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)


def entry(name: str, target: str) -> str:
    return f"[eventlog.sinks]\n{name} = {target}\n"


def test_the_console_is_always_there() -> None:
    """It comes with eventlog."""
    assert available_sinks()["console"].target == "eventlog.sinks.console:ConsoleSink"
    assert load_sink_class("console").name == "console"


def test_a_plugin_is_found_and_loaded_when_it_is_named(site: Path) -> None:
    """Listing imports nothing."""
    install(site, "made-up-good", entry("good", "made_up_good:Good"))
    sys.modules.pop("made_up_good", None)
    found = available_sinks()["good"]
    assert (found.package, found.version) == ("made-up-good", "1.2")
    assert "made_up_good" not in sys.modules
    assert load_sink_class("good").name == "good"
    assert list(available_sinks()) == sorted(available_sinks())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('broken at import')", "RuntimeError: broken at import"),
        ("import sys; sys.exit('not configured')", "SystemExit: not configured"),
        ("import no_such_module_here", "ModuleNotFoundError"),
        ("Broken = 3", "must be a subclass of eventlog.Sink, not 3"),
        ("", "AttributeError"),
    ],
)
def test_a_broken_plugin_costs_nobody_else(
    site: Path, code: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who names it is told which package is at fault; a run goes on with its other sinks."""
    (site / "made_up_broken.py").write_text(code)
    sys.modules.pop("made_up_broken", None)
    install(site, "made-up-good", entry("good", "made_up_good:Good"))
    install(site, "made-up-broken", entry("broken", "made_up_broken:Broken"))
    assert {"broken", "good", "console"} <= set(available_sinks())
    with pytest.raises(SinkLoadError, match="made-up-broken") as caught:
        load_sink_class("broken")
    assert said in str(caught.value)
    sys.modules.pop("made_up_broken", None)
    with Run("p", dir=None, sinks=["broken", "good"]) as run:
        run.step(x=1.0)
    assert run.sink("broken").state == "failed"
    assert run.sink("good").state == "closed"
    assert "the run goes on without it" in caplog.text


def test_missing_requirements_are_named(site: Path) -> None:
    """With the command that brings them; a missing parent package is no traceback."""
    install(site, "made-up-good", entry("needy", "made_up_good:Needy"))
    with pytest.raises(
        SinkLoadError,
        match=r"needs no_such_module_here, no_such\.parent, .*: pip install made-up-good",
    ):
        load_sink_class("needy")


def test_two_packages_with_one_name_are_both_named(site: Path) -> None:
    """Neither is chosen in silence."""
    install(site, "made-up-good", entry("good", "made_up_good:Good"))
    install(site, "made-up-other", entry("good", "made_up_good:Needy"))
    with pytest.raises(SinkLoadError, match=r"made-up-(good|other), made-up-(good|other)"):
        load_sink_class("good")


def test_a_package_that_is_found_twice_counts_once(site: Path, tmp_path: Path) -> None:
    """An editable install beside a wheel of the same package is no conflict."""
    install(site, "made-up-good", entry("good", "made_up_good:Good"))
    second = tmp_path / "second"
    second.mkdir()
    sys.path.append(str(second))
    try:
        install(second, "made_up.good", entry("good", "elsewhere:Good"))
        assert available_sinks()["good"].target == "made_up_good:Good"
    finally:
        sys.path.remove(str(second))


@pytest.mark.parametrize(
    "text", ["[eventlog.sinks]\nno equals sign here\n", "\x00\xff", "[eventlog.sinks\nx = y:z\n"]
)
@pytest.mark.parametrize("metadata", [True, False])
def test_damaged_metadata_hide_no_other_sink(site: Path, text: str, metadata: bool) -> None:
    """One package's broken files are not everybody's."""
    install(site, "made-up-damaged", text, metadata=metadata)
    install(site, "made-up-nameless", entry("nameless", "made_up_good:Good"), metadata=False)
    install(site, "made-up-good", entry("good", "made_up_good:Good"))
    assert {"console", "good"} <= set(available_sinks())


def test_listing_sinks_imports_no_plugin() -> None:
    """Not even the ones that are installed here."""
    code = (
        "import sys, eventlog\n"
        "names = set(eventlog.available_sinks())\n"
        "bad = [m for m in sys.modules if m.startswith(('eventlog_', 'tensorboard', 'torch'))]\n"
        "assert 'console' in names and not bad, (names, bad)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_class_of_one_s_own_that_does_not_load_is_nobody_s_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to reinstall, and no package to name."""
    (tmp_path / "my_broken.py").write_text("1 / 0")
    (tmp_path / "my_sinks.py").write_text(
        "from eventlog import Sink\n"
        "class Needy(Sink):\n    requires = ('no_such_module',)\n"
        "nothing = 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, said in (
        (
            "my_broken:Mine",
            "sink 'my_broken:Mine' does not load: ZeroDivisionError: division by zero",
        ),
        ("my_sinks:nothing", "sink 'my_sinks:nothing' must be a subclass of eventlog.Sink, not 5"),
        ("my_sinks:Needy", "sink 'my_sinks:Needy' needs no_such_module, which is not installed"),
    ):
        with pytest.raises(SinkLoadError) as caught:
            load_sink_class(name)
        assert str(caught.value) == said

"""Options, modes, and whether the sink can work as things stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventlog.events import StepEvent
from eventlog.exceptions import SinkError
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.naming import run_id_of


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "shared"}, "mode must be one of online, offline, disabled, not 'shared'"),
        ({"project": ""}, "project must be a text that is not empty, not ''"),
        ({"run_id": 7}, "run_id must be a text that is not empty, not 7"),
        ({"dir": 3}, "dir must be a path, not 3"),
        ({"artifact_limit": -1}, "artifact_limit must be a number of bytes, not -1"),
        ({"artifact_limit": True}, "artifact_limit must be a number of bytes, not True"),
        ({"init": 1}, "init must be a mapping of wandb.init's arguments, not 1"),
        ({"init": {"mode": "offline"}}, "init must not have 'mode': that is the option mode"),
        ({"init": {"settings": 1}}, r"init\['settings'\] must be a mapping of settings, not 1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    """An option that is wrong raises when the sink is made, and says what it must be."""
    with pytest.raises((TypeError, ValueError), match=message):
        WandbSink(**options)


def test_a_setting_that_the_sdk_lacks_is_named(tmp_path: Path) -> None:
    """A name that `wandb.Settings` does not know is an error at open, not silence."""
    sink = WandbSink(mode="offline", dir=tmp_path, init={"settings": {"nonsense": 1}})
    with pytest.raises(ValueError, match="nonsense"):
        sink.open(RunInfo(run_id="r"))


def test_without_a_key_it_says_what_to_do(tmp_path: Path) -> None:
    """Online without a key neither asks nor writes elsewhere: the ways out are named."""
    why = WandbSink.unready({})
    assert why is not None
    for way in ("wandb login", "WANDB_API_KEY", "mode='offline'"):
        assert way in why
    assert "api.forge.coreweave.com" in why
    with pytest.raises(SinkError, match="wandb login"):
        WandbSink().open(RunInfo(run_id="r", directory=tmp_path / "files"))
    assert not (tmp_path / "files").exists()


def test_a_key_is_found_where_the_sdk_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the environment, and in the netrc file under the server's name or its older one."""
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert WandbSink.unready({}) is None
    monkeypatch.delenv("WANDB_API_KEY")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine api.wandb.ai login user password k\n")
    (home / ".netrc").chmod(0o600)
    assert WandbSink.unready({}) is None
    assert WandbSink.unready({"server": "https://wandb.example.com"}) is not None
    (home / ".netrc").write_text("machine wandb.example.com:8080 login user password k\n")
    assert WandbSink.unready({"server": "https://wandb.example.com:8080"}) is None
    (home / ".netrc").write_text("machine")
    assert WandbSink.unready({}) is not None


def test_the_mode_is_the_option_s_or_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option comes first, then WANDB_MODE, then what `wandb offline` has stored."""
    assert WandbSink.unready({"mode": "offline"}) is None
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    assert WandbSink.unready({}) is None
    assert WandbSink().target().startswith("offline:")
    monkeypatch.setenv("WANDB_MODE", "online")
    assert WandbSink.unready({}) is not None
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert WandbSink.unready({}) is None
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    assert "not 'nonsense'" in str(WandbSink.unready({}))


def test_disabled_counts_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With WANDB_MODE=disabled nothing is written, which is counted."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    sink = WandbSink(dir=tmp_path / "files")
    sink.open(RunInfo(run_id="r", config={"a": 1}))
    sink.write([StepEvent(step=0, values={"v": 1.0}, seq=0)])
    sink.flush()
    assert sink.url is None
    sink.close("finished")
    assert sink.unshown == {"event while W&B is disabled": 1}
    assert not (tmp_path / "files").exists()


def test_another_target_starts_anew(tmp_path: Path) -> None:
    """Server, entity, project and folder tell places apart."""
    options: list[dict[str, Any]] = [
        {"mode": "online"},
        {"mode": "online", "entity": "me"},
        {"mode": "online", "project": "p"},
        {"mode": "online", "server": "https://wandb.example.com"},
        {"mode": "offline"},
        {"mode": "offline", "dir": tmp_path},
    ]
    assert len({WandbSink(**each).target() for each in options}) == len(options)


def test_misuse_is_named() -> None:
    """Closing what was never opened is nothing; writing to it raises."""
    sink = WandbSink(mode="offline")
    sink.close("finished")
    assert sink.state() == {}
    with pytest.raises(RuntimeError, match="must be open"):
        sink.write([StepEvent(seq=0)])


def test_run_ids_are_the_run_s() -> None:
    """W&B's id is eventlog's, made to fit, so that a run is found again without any state."""
    assert run_id_of("abc-1_2.x", 0) == "abc-1_2.x"
    assert run_id_of("abc", 3) == "abc-rank3"
    assert run_id_of("abc", 3, "b") == "abc-b-rank3"
    aliases = [run_id_of("x" * 64, 0, each) for each in ("", "b", "B", "a/b", "a b", "y" * 200)]
    assert len(set(aliases)) == len(aliases)
    assert all(len(each) <= 100 and "/" not in each for each in aliases)
    odd = [run_id_of(each, 0) for each in ("a/b", "a:b", "a b", "", "x" * 200, "\udc80")]
    assert len(set(odd)) == len(odd)
    assert all(0 < len(each) <= 64 and not set(each) & set(":;,#?/'\\ ") for each in odd)

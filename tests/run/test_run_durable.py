"""Durability asked for by name, and the syncs that come by themselves."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import eventlog
from eventlog import _platform


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that were synced, in order."""
    import os

    sizes: list[int] = []
    real = _platform.fdatasync

    def fdatasync(fd: int) -> None:
        sizes.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr(_platform, "fdatasync", fdatasync)
    return sizes


def steps_in(run: eventlog.Run) -> list[int | None]:
    assert run.dir is not None
    return [e.step for e in eventlog.open_log(run.dir).events(types=["step"])]


@pytest.mark.parametrize("how", ["step", "log", "batch", "epoch", "sync"])
def test_durable_returns_once_it_is_on_the_disk(tmp_path: Path, syncs: list[int], how: str) -> None:
    """When the call returns, a sync of a file that holds the event has been done."""
    with eventlog.Run("p", dir=tmp_path) as run:
        before = len(syncs)
        if how == "sync":
            run.step(loss=1.0)
            assert run.sync()
        else:
            getattr(run, how)(loss=1.0, durable=True)
        assert len(syncs) > before
        assert run.dir is not None
        events = list(eventlog.open_log(run.dir).events())
        assert events[-1].values == {"loss": 1.0}


def test_without_a_word_nobody_waits_for_the_disk(tmp_path: Path, syncs: list[int]) -> None:
    """A sync that hangs holds up no call but the durable one, and that one not for ever."""
    hung = threading.Event()

    def hang(fd: int) -> None:
        hung.wait(20)

    with pytest.MonkeyPatch.context() as patch, eventlog.Run("p", dir=tmp_path) as run:
        patch.setattr(_platform, "fdatasync", hang)
        run.step(loss=1.0)
        assert not run.sync(timeout=0.2)
        for _ in range(1000):
            run.step(loss=1.0)
        hung.set()
    assert len(steps_in(run)) == 1001


def test_a_disk_that_refuses_to_sync_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed sync makes the durable call say so; the log goes on in another file."""
    real = _platform.fdatasync
    fails = [True]

    def fdatasync(fd: int) -> None:
        if fails[0]:
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(_platform, "fdatasync", fdatasync)
    with caplog.at_level(logging.WARNING, "eventlog"), eventlog.Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
        assert not run.sync(timeout=5)
        fails[0] = False
        run.step(loss=2.0)
        assert run.sync(timeout=5)
    assert "cannot sync" in caplog.text
    assert steps_in(run) == [0, 1]


def test_an_epoch_s_end_is_synced_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the second to pass."""
    synced = threading.Event()
    real = _platform.fdatasync
    seen: list[int] = []

    def fdatasync(fd: int) -> None:
        real(fd)
        seen.append(fd)
        if armed:
            synced.set()

    armed = False
    monkeypatch.setattr("eventlog.log.writer.SYNC_INTERVAL", 600.0)
    monkeypatch.setattr(_platform, "fdatasync", fdatasync)
    with eventlog.Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
        assert run.sync()
        armed = True
        run.epoch(acc=1.0)
        assert synced.wait(20)

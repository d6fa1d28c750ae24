"""Opening a run of Aim: without a hook left behind, and taken over where a process died."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import socket
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from eventlog.exceptions import RefusedError, UnavailableError
from eventlog_aim.link import Link, bounded
from eventlog_aim.making import make_ready

__all__ = ["Opened", "is_remote", "open_run", "outages"]

_CONNECT = 5.0
_NAP = 2.0


def is_remote(repo: str) -> bool:
    """Whether a repository lies on an Aim server."""
    return repo.startswith("aim://")


class Opened:
    """A run of Aim that is written to, and the way to its server.

    Attributes:
        run: The `aim.Run`.
        link: None where the repository is local.
        resumed: Whether the run was there before.
    """

    def __init__(self, run: Any, link: Link | None, resumed: bool) -> None:
        self.run = run
        self.link = link
        self.resumed = resumed

    @property
    def reports(self) -> bool:
        """Whether Aim's thread is there that tells how the run does.

        A full disk ends it, and what waits for it then waits for ever.
        """
        alive: bool = self.run._checkins.thread.is_alive()
        return alive

    def close(self) -> None:
        """Close the run; it is then marked as ended."""
        client = self.run.repo._client
        handlers = [] if client is None else list(client._resource_pool)
        resources = self.run._resources
        if self.reports:
            resources._close()  # what Aim's own `close` does by way of a finalizer
        else:
            resources.set_run_end_time()
            resources._lock.release()
        self.run.close()
        self.run._tracker = None  # it has the store open, and so locked, as long as it is there
        if self.link is not None:
            self.link.send()
            self.link.close(handlers)

    def abandon(self) -> None:
        """Let go of a run whose server is away, without waiting for it."""
        heartbeat = self.run._heartbeat
        with contextlib.suppress(Exception):
            if hasattr(heartbeat, "stop_signal"):
                heartbeat.stop_signal.set()
                heartbeat.thread.join(_NAP)
            if self.reports:
                self.run._checkins.close()
        if self.link is not None:
            self.link.abandon()


def open_run(
    repo: str | None,
    run_hash: str | None,
    *,
    saved: str | None,
    experiment: str | None,
    options: Mapping[str, Any],
) -> Opened:
    """Open a run, or go on with one.

    Args:
        repo: A folder or the address of a server; None for Aim's own default.
        run_hash: The run that the user wants, which must be there.
        saved: The run of an earlier process, which is taken over, or replaced if it is gone.
        experiment: Its experiment, if it is new.
        options: Arguments of `aim.Run`.

    Raises:
        UnavailableError: The server is away, or another process writes to the run.
        RefusedError: There is no such run, or the server will have none of it.
    """
    link: Link | None = None
    place: Any = repo
    aim = _import()
    with _unhooked():
        if repo is not None and is_remote(repo):
            place = _connect(aim, repo)
            link = Link(place._client)
        elif repo is None or "://" not in repo:
            made = make_ready(aim, repo)
            if made is not None:
                _detach(made)
        try:
            run, resumed = _open(aim, place, run_hash, saved, experiment, options)
            if link is not None:
                link.send()
        except BaseException:
            if link is not None:
                _detach(*_proxies(place))
                link.abandon()
            raise
        _detach(run, *_proxies(run.repo))
    return Opened(run, link, resumed)


def _open(
    aim: Any,
    repo: Any,
    run_hash: str | None,
    saved: str | None,
    experiment: str | None,
    options: Mapping[str, Any],
) -> tuple[Any, bool]:
    errors = importlib.import_module("aim.sdk.errors")
    given: dict[str, Any] = {
        "system_tracking_interval": None,
        "log_system_params": False,
        "capture_terminal_logs": False,
    } | dict(options)
    wanted = saved or run_hash
    try:
        if wanted is not None:
            try:
                return _resume(aim, repo, wanted, saved is not None, given), True
            except errors.MissingRunError as error:
                if saved is None:
                    raise RefusedError(f"run_hash must be a run of {repo}: {error}") from error
        given.pop("force_resume", None)
        return aim.Run(repo=repo, experiment=experiment, **given), False
    except errors.RunLockingError as error:
        raise UnavailableError(f"another process writes to Aim's run {wanted}: {error}") from error
    except RuntimeError as error:
        if str(error):
            raise
        # it says so where a repository, or the format of a run, is not up to date
        raise UnavailableError(f"Aim cannot open {repo} for now: {error!r}") from error
    except importlib.import_module("aimrocks.errors").RocksIOError as error:
        # the store's own lock, which ends with its process; or the disk
        raise UnavailableError(f"Aim's repository {repo} cannot be written: {error}") from error


def _resume(aim: Any, repo: Any, wanted: str, ours: bool, given: Mapping[str, Any]) -> Any:
    """Open a run that is there.

    A process that died leaves Aim's lock. Aim takes it over by itself where the process' number is
    not in use; here also where it is (in containers it often is the same each time), or where a
    server holds it for a client that is gone. A run that is written to cannot be opened all the
    same: the store has a lock that no process survives.
    """
    errors = importlib.import_module("aim.sdk.errors")
    try:
        return aim.Run(wanted, repo=repo, **given)
    except errors.RunLockingError:
        if not ours:
            raise
    log = logging.getLogger("aim.sdk.lock_manager")
    before = log.level
    log.setLevel(logging.ERROR)  # its warning is about what the store's lock rules out
    try:
        return aim.Run(wanted, repo=repo, **(dict(given) | {"force_resume": True}))
    finally:
        log.setLevel(before)


def _connect(aim: Any, address: str) -> Any:
    """Return the repository of a server, of our own: Aim's pool would share its client.

    Raises:
        UnavailableError: Nobody answers there, or an answer says that it is for now.
        RefusedError: What answers is no Aim server.
    """
    _probe(address)
    try:
        with bounded():
            return aim.Repo(address)
    except (OSError, RuntimeError) as error:
        raise UnavailableError(f"the Aim server at {address} does not answer: {error}") from error


def _probe(address: str) -> None:
    """Look for the server, quickly: Aim's own way writes errors to the log."""
    requests = importlib.import_module("requests")
    parts = urlsplit(address)
    if parts.port is not None and parts.hostname is not None:
        try:
            socket.create_connection((parts.hostname, parts.port), _CONNECT).close()
        except OSError as error:
            raise UnavailableError(f"no Aim server listens at {address}: {error}") from error
    where = address.removeprefix("aim://").rstrip("/")
    problem: Exception | None = None
    for scheme in ("http", "https"):
        try:
            answer = requests.get(f"{scheme}://{where}/status/", timeout=_CONNECT)
        except requests.RequestException as error:
            problem = problem or error
            continue
        if answer.status_code < 400:
            return
        text = f"{address} answers {answer.status_code} where an Aim server says that it is there"
        if answer.status_code == 429 or answer.status_code >= 500:
            wait = answer.headers.get("Retry-After", "")
            raise UnavailableError(text, retry_after=float(wait) if wait.isdigit() else None)
        raise RefusedError(text)
    raise UnavailableError(f"the Aim server at {address} does not answer: {problem}") from problem


def _proxies(repo: Any) -> list[Any]:
    """Return the objects that stand for something on a repository's server."""
    return [*repo._client._resource_pool.values(), repo] if repo._client is not None else [repo]


def _detach(*owned: Any) -> None:
    """Have no object of Aim close itself, when it is collected or when the process exits.

    A run would be marked as ended, and a server asked, from any thread and without an end to
    waiting. Closing is delivery's.
    """
    listed = importlib.import_module("aim.ext.cleanup").AutoClean._finalizers
    for instance in owned:
        listed.pop(instance, None)
        if instance._resources is not None:
            instance._resources.finalizer.detach()


def _import() -> Any:
    """Import Aim, which adds filters for warnings, and whose object mapper warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("aim")


@contextlib.contextmanager
def _unhooked() -> Iterator[None]:
    """Open within this: what Aim would have the process do at its exit is taken back."""
    clean: Any = importlib.import_module("aim.ext.cleanup").AutoClean
    hooked = clean._registered_with_atexit
    try:
        yield
    finally:
        if clean._registered_with_atexit and not hooked:
            atexit.unregister(clean.cleanup)
            clean._registered_with_atexit = False


@contextlib.contextmanager
def outages() -> Iterator[None]:
    """Within this, what the store says of its disk is an outage."""
    errors = importlib.import_module("aimrocks.errors")
    try:
        yield
    except errors.RocksIOError as error:
        raise UnavailableError(f"Aim's repository cannot be written: {error}") from error

"""How a command ends: its exit code, and errors as one line without a traceback."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from eventlog._visible import visible
from eventlog.exceptions import CodecError, EventlogError

__all__ = ["FOUND_WRONG", "INTERRUPTED", "OK", "USAGE", "note", "one_line", "reported", "say"]

OK = 0
FOUND_WRONG = 1
USAGE = 2
INTERRUPTED = 130

P = ParamSpec("P")


def note(text: str) -> None:
    """Say something that is no result."""
    typer.echo(visible(f"eventlog: {text}"), err=True)


def say(text: str) -> None:
    """Say a result, in which there may be what a log says."""
    typer.echo(visible(text))


def one_line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    from eventlog.cadence.text import CadenceError

    if isinstance(error, CadenceError):
        return f"cannot read the cadence {error.text!r} at column {error.column}: {error.problem}"
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command's errors lines on standard error and exit codes."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            _let_go_of_stdout()
            raise typer.Exit(OK) from None
        except CodecError as error:
            note(one_line(error))
            raise typer.Exit(FOUND_WRONG) from None
        except (EventlogError, ValueError, OSError) as error:
            note(one_line(error))
            raise typer.Exit(USAGE) from None
        except KeyboardInterrupt:
            note("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return run


def _let_go_of_stdout() -> None:
    """Send what is still in the buffer nowhere: the interpreter flushes it when it exits."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

"""How commands end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer

from eventlog.cli.outcome import reported
from eventlog.exceptions import CodecError, NotALogError


def _raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return reported(command)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (NotALogError("there is\n  none"), 2, "there is none"),
        (ValueError("x must be\ny"), 2, "x must be y"),
        (ValueError(), 2, "ValueError"),
        (PermissionError(13, "Permission denied", "a.elog"), 2, "a.elog: Permission denied"),
        (CodecError("not a list of events"), 1, "not a list of events"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_a_line_and_a_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the user can do something about has no traceback."""
    with pytest.raises(typer.Exit) as ended:
        _raising(error)()
    assert ended.value.exit_code == code
    assert capsys.readouterr() == ("", f"eventlog: {line}\n")


def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    """It is to be reported, with all there is."""
    with pytest.raises(ZeroDivisionError):
        _raising(ZeroDivisionError())()

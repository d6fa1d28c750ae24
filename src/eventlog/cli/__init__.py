"""The command line: what can be asked of a run from outside its process.

Exit codes, for scripts:

==== ==========================================================================================
0    all is well
1    something was found wrong: a replay is incomplete, a log is damaged, a sink does not load
2    wrong usage, no log at the path, or something that is needed for it is not installed
130  interrupted from the keyboard
==== ==========================================================================================

Results go to standard output; notes, progress and errors go to standard error. A reader that
goes away (``| head``) ends a command without a word and with 0.
"""

from __future__ import annotations

__all__ = ["main"]


def main(program: str = "eventlog") -> None:
    """Run the command line with the arguments of this process, and exit."""
    from eventlog.cli.app import run

    run(program)

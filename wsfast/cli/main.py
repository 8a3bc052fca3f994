"""The entry point: it chooses the command, and returns its exit code."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from wsfast.cli import doctor, ping
from wsfast.cli.bench import command as bench
from wsfast.cli.connect import command as connect
from wsfast.cli.load import command as load
from wsfast.cli.outcome import ERRORS, INTERRUPTED, USAGE, MissingExtra, Usage, stdout_ended

_EPILOG = """\
exit codes: 0 all went well, 1 something failed, 2 wrong usage or a missing extra,
130 interrupted by Ctrl-C
Each command has its own --help."""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="wsfast",
        description="Talk to a WebSocket server, measure it, and see what would make it faster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"wsfast {version('wsfast')}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (connect, ping, load, bench, doctor):
        command.add_to(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code.

    :param argv: the arguments behind the program's name; by default those of the process
    :raises SystemExit: argparse refused the arguments, or printed help
    """
    _make_streams_usable()
    try:
        try:
            arguments = parser().parse_args(argv)
            code: int = arguments.run(arguments)
        finally:
            sys.stdout.flush()  # raises here, not at exit, if stdout has no reader or its disk is full
    except (Usage, MissingExtra) as exc:
        print(f"wsfast: {exc}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as exc:
        if not stdout_ended(exc):
            raise
        if not isinstance(exc, BrokenPipeError):  # as in `wsfast doctor | head -1`, which needs no message
            print(f"wsfast: stdout cannot be written: {exc.strerror}", file=sys.stderr)
        # At exit the interpreter flushes stdout once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERRORS
    return code


def _make_streams_usable() -> None:
    """Open stdin, stdout and stderr if the process was started without them, as by ``<&-``. Characters that the
    locale's encoding lacks are escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

"""Exit codes, and the errors that end a command."""

from __future__ import annotations

import errno
import importlib.util
import ssl

from wsfast.exceptions import InvalidStatus, WebSocketException

__all__ = [
    "CANNOT_CONNECT",
    "ERRORS",
    "INTERRUPTED",
    "OK",
    "USAGE",
    "MissingExtra",
    "Usage",
    "cannot_connect",
    "printable",
    "require",
    "stdout_ended",
    "why",
]

OK = 0
ERRORS = 1
USAGE = 2  # as argparse
INTERRUPTED = 130  # as shells report a process that SIGINT ended

# The errors of connecting that the server or the network causes: DNS, TCP, TLS, time-outs, and replies.
CANNOT_CONNECT = (OSError, EOFError, WebSocketException)

# The kernel's errors when stdout takes no more data, because its reader has gone or its disk is full. write_file()
# opens all other files that a command writes.
_STDOUT_ENDED = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Names to install by, where they are not those to import by.
_DISTRIBUTIONS = {"hdrh": "hdrhistogram"}


class Usage(Exception):  # noqa: N818 - the name of a wrong call's section in manuals
    """The arguments are wrong in a way that argparse does not detect."""


class MissingExtra(Exception):  # noqa: N818
    """A package of one of wsfast's extras is not installed."""


def require(*packages: str) -> None:
    """Check that these packages are installed.

    :raises MissingExtra: says which command installs them
    """
    missing = [
        _DISTRIBUTIONS.get(package, package)
        for package in packages
        if importlib.util.find_spec(package) is None
    ]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise MissingExtra(f"{' and '.join(missing)} {verb} not installed: pip install {' '.join(missing)}")


def stdout_ended(exc: BaseException) -> bool:
    """True if this is the error of a write to a stdout that takes no more data."""
    return isinstance(exc, OSError) and exc.errno in _STDOUT_ENDED


def why(exc: BaseException) -> str:
    """An error in one line: its text, or its type if it has none, without control characters."""
    text = " ".join(str(exc).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text or type(exc).__name__


def cannot_connect(url: str, exc: BaseException) -> str:
    """The error of an attempt to connect, in a line, with what may help."""
    text = f"cannot connect to {url}: {why(exc)}"
    if isinstance(exc, ssl.SSLCertVerificationError):
        text += " (--cacert FILE trusts another authority, --insecure any certificate)"
    elif isinstance(exc, InvalidStatus) and exc.response.body:
        body = " ".join(exc.response.body.decode(errors="replace").split())[:200]
        text += f": {printable(body)}"
    return text


def printable(text: str) -> str:
    """Text of a server for a terminal, without characters that would control it; lines and tabs stay."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )

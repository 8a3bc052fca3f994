"""Credentials out of a .netrc file, for a program that asks for them by ``netrc=``."""

from __future__ import annotations

import os
import stat

__all__ = ["NetrcLike", "check_netrc", "from_netrc"]

# A path; True is the file that $NETRC names, or ~/.netrc.
NetrcLike = str | os.PathLike[str] | bool | None


def check_netrc(netrc: NetrcLike) -> None:
    """Refuse other types; None and False use no file."""
    if not (netrc is None or isinstance(netrc, (str, os.PathLike, bool))):
        raise TypeError(f"netrc must be a path or a bool, not {type(netrc).__name__}")


def from_netrc(netrc: str | os.PathLike[str] | bool, host: str) -> tuple[str, str] | None:
    """User name and password for a host, or those of the entry ``default``; None if the file has neither.

    It is read anew for each attempt to connect: tokens expire.

    :raises OSError: the file cannot be read; of True, only if there is one
    :raises ValueError: it is no such file, or a ``~/.netrc`` that Python's netrc refuses because others may read or
        change it; the text repeats nothing of it
    """
    import netrc as parser  # few programs use it

    named = os.environ.get("NETRC") or None if isinstance(netrc, bool) else os.fspath(netrc)
    path = os.path.expanduser("~/.netrc" if named is None else named)
    line = None
    try:
        # The module checks whose file it is, and who may read it, only if it finds the file itself.
        found = parser.netrc(None if named is None else path).authenticators(host)
    except FileNotFoundError:
        if netrc is True:
            return None
        raise
    except parser.NetrcParseError as exc:
        line = exc.lineno or 0
    except UnicodeDecodeError:
        line = 0
    if line is not None:  # outside the handlers: those exceptions may quote a password
        if named is None and _is_open_to_others(path):
            raise ValueError(f"netrc: {path} must be yours, and for you alone: chmod 600 {path}")
        raise ValueError(f"netrc: {path} is no .netrc file: see line {line}")
    if not found or (not found[0] and not found[2]):
        return None
    if ":" in found[0]:
        raise ValueError(
            f"netrc: the login for {host} in {path} has a colon, which Basic authentication cannot send"
        )
    return found[0], found[2] or ""


def _is_open_to_others(path: str) -> bool:
    status = os.stat(path)
    return status.st_uid != os.getuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) != 0

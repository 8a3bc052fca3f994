"""Exit codes, and the errors that end a command."""

from __future__ import annotations

import importlib.util

__all__ = ["ERRORS", "INTERRUPTED", "OK", "USAGE", "MissingExtra", "Usage", "require", "why"]

OK = 0
ERRORS = 1
USAGE = 2  # as argparse
INTERRUPTED = 130  # as shells report a process that SIGINT ended

# The extra that installs each package, by the name to import.
_EXTRAS = {"hdrh": "cli", "prompt_toolkit": "cli", "rich": "cli", "locust": "locust"}
_DISTRIBUTIONS = {"hdrh": "hdrhistogram"}


class Usage(Exception):  # noqa: N818 - the name of a wrong call's section in manuals
    """The arguments are wrong in a way that argparse does not see."""


class MissingExtra(Exception):  # noqa: N818
    """A package is not installed that an extra of wsfast names."""


def require(*packages: str) -> None:
    """Refuse to go on without these packages.

    :raises MissingExtra: says which command installs them
    """
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        names = " and ".join(_DISTRIBUTIONS.get(package, package) for package in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise MissingExtra(f"{names} {verb} not installed: pip install 'wsfast[{_EXTRAS[missing[0]]}]'")


def why(exc: BaseException) -> str:
    """An error in one line: its text, or its type if it has none, without control characters."""
    text = " ".join(str(exc).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text or type(exc).__name__

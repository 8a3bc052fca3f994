"""ConnectionClosed that ``except websockets.exceptions.ConnectionClosed`` catches, too.

Python looks for an except clause's class among the real bases of an exception, not among virtual ones. So in a program
that has imported websockets, what is raised is of a class with both bases, made when it is first needed. It has the
name of wsfast's class, is pickled as that, and takes from websockets' nothing but its place in the tree.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsfast.exceptions import ConnectionClosed

__all__ = ["kin", "look_for_websockets"]

_made: dict[tuple[type, type], type] = {}


def look_for_websockets() -> None:
    """Import the exceptions of websockets if it is imported itself, which does that late.

    To be called before a connection is made.
    """
    if sys.modules.get("websockets") is not None:
        with contextlib.suppress(ImportError):  # the program's own module of that name
            importlib.import_module("websockets.exceptions")


def kin(cls: type[ConnectionClosed]) -> type[ConnectionClosed]:
    """The class to make an exception of: `cls`, or a subclass of it and of websockets' class with the same name."""
    theirs = getattr(sys.modules.get("websockets.exceptions"), cls.__name__, None)
    if not (isinstance(theirs, type) and issubclass(theirs, Exception)):
        return cls
    both = _made.get((cls, theirs))
    if both is None:

        def __reduce__(self: Any) -> tuple[Any, ...]:  # noqa: N807
            return cls, self.args, self.__dict__

        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        both = _made[cls, theirs] = type(cls.__name__, (cls, theirs), {**names, "__reduce__": __reduce__})
    return both

"""Exceptions that an ``except`` clause with websockets' class of the same name catches, too.

Python looks for an except clause's class among the real bases of an exception, not among virtual ones. So in a program
that has imported websockets, an exception of wsfast's is of a class with both bases, which is made when it is first
needed. It has the name of wsfast's class, is pickled as that, and takes from websockets' nothing but its place in the
tree. A class that websockets does not have, InvalidText for instance, gets the next one above it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import inspect

__all__ = ["SignatureOfInit", "look_for_websockets", "with_websockets_base"]

Kind = TypeVar("Kind", bound=BaseException)

# The module of wsfast's exceptions. Subclasses that programs derive stay as they are.
_OURS = "wsfast.exceptions"

_combined: dict[tuple[type, type], type] = {}


def look_for_websockets() -> None:
    """Import the exceptions of websockets if it is imported itself, which does that late.

    To be called before a connection is made.
    """
    if sys.modules.get("websockets") is not None:
        with contextlib.suppress(ImportError):  # the program's own module of that name
            importlib.import_module("websockets.exceptions")


class SignatureOfInit:
    """The signature of a class whose ``__new__`` takes anything, for ``__init__`` to judge."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        import inspect

        signature = inspect.signature(owner.__init__)  # type: ignore[misc]
        return signature.replace(parameters=[*signature.parameters.values()][1:])


def with_websockets_base(cls: type[Kind]) -> type[Kind]:
    """The class to make an exception of: `cls`, or a subclass of it and of websockets' class."""
    module = sys.modules.get("websockets.exceptions")
    if module is None or cls.__module__ != _OURS:
        return cls
    theirs = _namesake(cls, module)
    if theirs is None or issubclass(cls, theirs):
        return cls
    both = _combined.get((cls, theirs))
    if both is None:
        both = _combined.setdefault((cls, theirs), _both(cls, theirs))  # another thread may have made it
    return both


def _namesake(cls: type[BaseException], module: Any) -> type[Exception] | None:
    """Websockets' class with the name of `cls`, or of the next one above it in wsfast's tree."""
    for base in cls.__mro__:
        if base.__module__ == _OURS:
            theirs = getattr(module, base.__name__, None)
            if isinstance(theirs, type) and issubclass(theirs, Exception):
                return theirs
    return None


def _both(cls: type[Kind], theirs: type[Exception]) -> type[Kind]:
    def __reduce__(self: Any) -> tuple[Any, ...]:  # noqa: N807
        reduced: Any = cls.__reduce__(self)
        make, arguments, *state = reduced
        arguments = tuple(cls if argument is type(self) else argument for argument in arguments)
        return (cls if make is type(self) else make), arguments, *state

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, theirs), {**names, "__reduce__": __reduce__})

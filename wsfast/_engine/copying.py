"""Copying and pickling of listeners: as plain objects, unless a compiled class adds state in C."""

from __future__ import annotations

import copyreg
from typing import Any

# Py_TPFLAGS_HEAPTYPE: a class statement of Python made the class; it is not an extension type.
_HEAP_TYPE = 1 << 9


def reduced(listener: Any, base: type) -> tuple[Any, ...]:
    """The result of ``__reduce__`` for a listener whose class derives from `base`; `base` itself has no state.

    :raises TypeError: a class between the listener's class and `base` is an extension type
    """
    for cls in type(listener).__mro__:
        if cls is base:
            break
        if not cls.__flags__ & _HEAP_TYPE:
            raise TypeError(f"cannot pickle '{type(listener).__name__}' object")
    return copyreg.__newobj__, (type(listener),), _state_of(listener)  # type: ignore[attr-defined]


def _state_of(thing: Any) -> Any:
    """The result of ``object.__getstate__()``, which exists from CPython 3.11 on."""
    getstate = getattr(thing, "__getstate__", None)
    if getstate is not None:
        return getstate()
    state = getattr(thing, "__dict__", None)
    names = copyreg._slotnames(type(thing))  # type: ignore[attr-defined]
    slots = {name: getattr(thing, name) for name in names if hasattr(thing, name)}
    return (state, slots) if slots else state

"""``with ws.cork():`` of a blocking connection."""

from __future__ import annotations

from typing import Any

from wsfast.sync._native import lib

__all__ = ["Cork"]


class Cork:
    """May be nested; the outermost one writes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._entered = 0

    def __enter__(self) -> None:
        lib.wst_cork(self._connection._handle, 1)
        self._entered += 1

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        if self._entered == 0:
            raise RuntimeError("cork() was left more often than it was entered")
        self._entered -= 1
        # After an exception nobody is to wait: the rest leaves with the next call.
        self._connection._uncork(exc_type is None)

"""A blocking connection that logs the frames of both directions, at level DEBUG.

Data frames are logged here. The crate answers PINGs, keeps the connection alive and closes it by itself. So it keeps
the control frames of a connection of this class, and they are logged as soon as Python runs. A connection is of this
class only if its logger is enabled for DEBUG when it is made.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from wsfast._engine.frame_log import describe
from wsfast._faces import BYTES_LIKE, State
from wsfast._native import ffi, lib
from wsfast.closing import MAX_CONTROL
from wsfast.logs import guarded

__all__ = ["logged"]

# The first byte of a frame: FIN and opcode (RFC 6455 section 5.2).
_TEXT, _BINARY, _CONTROL_BIT = 0x81, 0x82, 0x08


def _bytes(message: Any) -> bytes:
    return message.encode(errors="replace") if isinstance(message, str) else bytes(message)


class _Logged:
    """In front of a ClientConnection."""

    _base_logger: Any
    _handle: Any
    state: State

    def __init__(self, handle: Any, *args: Any, **options: Any) -> None:
        # The threads in which a frame is being logged. What a log handler sends or receives is not: that would not end.
        self._logging: set[int] = set()
        lib.wst_keep_control(handle)
        super().__init__(handle, *args, **options)  # type: ignore[call-arg]

    def _log(self, arrow: str, head: int, payload: Any) -> None:
        thread = threading.get_ident()
        if thread in self._logging:
            return
        self._logging.add(thread)
        try:
            guarded(self._write, arrow, head, payload)
        finally:
            self._logging.discard(thread)

    def _log_sent(self, head: int, payload: Any) -> None:
        """To be called before the frame leaves, or the log would show the answer first."""
        if self.state is State.OPEN:
            self._log(">", head, payload)

    def _write(self, arrow: str, head: int, payload: Any) -> None:
        self._base_logger.debug("%s %s", arrow, describe(head, _bytes(payload)))

    def _collect(self) -> None:
        payload = ffi.new("char[]", MAX_CONTROL)
        head = ffi.new("int *")
        while (size := lib.wst_take_control(self._handle, payload, head)) >= 0:
            self._log(">" if head[0] & lib.WST_SENT else "<", head[0] & 0xFF, ffi.unpack(payload, size))
        super()._collect()  # type: ignore[misc]

    def recv(self, timeout: float | None = None, decode: Any = None) -> Any:
        message = super().recv(timeout, decode)  # type: ignore[misc]
        self._collect()  # the control frames before it
        self._log("<", _TEXT if isinstance(message, str) else _BINARY, message)
        return message

    def _log_fragment(self, head: int, payload: bytes) -> None:
        """Called for each frame that recv_streaming() gives."""
        self._collect()
        self._log("<", head, payload)

    def send(self, message: Any, *, text: bool | None = None, compress: bool | None = None) -> None:
        if isinstance(message, (str, *BYTES_LIKE)):
            as_text = isinstance(message, str) if text is None else text
            self._log_sent(_TEXT if as_text else _BINARY, message)
        super().send(message, text=text, compress=compress)  # type: ignore[misc]

    def _send_frame(self, head: int, message: Any) -> None:
        if not head & _CONTROL_BIT:
            self._log_sent(head & 0xFF, message)
        super()._send_frame(head, message)  # type: ignore[misc]
        if head & _CONTROL_BIT:
            self._collect()

    def _send_ping(self, payload: bytes) -> None:
        super()._send_ping(payload)  # type: ignore[misc]
        self._collect()


@functools.cache
def logged(kind: type[Any]) -> type[Any]:
    """The class that logs what `kind` sends and receives."""
    return type(
        kind.__name__, (_Logged, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    )

"""A blocking connection that logs the frames of both directions, at level DEBUG.

Data frames are logged here. The crate answers PINGs, keeps the connection alive and closes it by itself. So it keeps
the control frames of a connection of this class, and they are logged as soon as Python runs. A connection is of this
class only if its logger is enabled for DEBUG when it is made.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import Any

from wsfast._common.closing import MAX_CONTROL
from wsfast._common.connection import BYTES_LIKE, State
from wsfast._common.logging import guarded
from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.frames.frame import CONTROL_BIT, FIN_BIT
from wsfast._engine.frames.inspection import describe
from wsfast._rust._native import ffi, lib

__all__ = ["logged"]

_TEXT, _BINARY, _PING = (FIN_BIT | kind for kind in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING))

# So many control frames are kept while a log handler runs, as the crate keeps for Python.
_MOST = 64


def _bytes(message: Any) -> bytes:
    return message.encode(errors="replace") if isinstance(message, str) else bytes(message)


class _Logged:
    """The base that precedes ClientConnection, and logs."""

    _base_logger: Any
    _handle: Any
    state: State

    def __init__(self, handle: Any, *args: Any, **options: Any) -> None:
        # The threads in which a frame is being logged. Frames that a log handler sends are not: that would not end.
        self._logging: set[int] = set()
        # The control frames that were taken from the crate while a log handler ran: they are logged behind its frame.
        self._taken: deque[tuple[str, int, bytes]] = deque(maxlen=_MOST)
        lib.wst_keep_control(handle)
        super().__init__(handle, *args, **options)  # type: ignore[call-arg]

    def _log(self, arrow: str, head: int, payload: Any) -> None:
        thread = threading.get_ident()
        if thread in self._logging:
            return
        self._logging.add(thread)
        try:
            guarded(self._write, arrow, head, payload)
            # Not those that come meanwhile: a handler that waits for a PONG each time would not end.
            for _ in range(len(self._taken)):
                try:
                    frame = self._taken.popleft()
                except IndexError:
                    break  # another thread logs it
                guarded(self._write, *frame)
        finally:
            self._logging.discard(thread)

    def _log_sent(self, head: int, payload: Any) -> None:
        """Log a frame before it leaves; otherwise the log would show the answer first."""
        if self.state is State.OPEN:
            self._log(">", head, payload)

    def _write(self, arrow: str, head: int, payload: Any) -> None:
        self._base_logger.debug("%s %s", arrow, describe(head, _bytes(payload)))

    def _collect(self, *sent: Any) -> None:
        """Log the control frames that the crate has kept. `sent`: the one that the caller has just sent, its first byte
        and its payload. It is not logged if a log handler is the caller."""
        payload = ffi.new("char[]", MAX_CONTROL)
        head = ffi.new("int *")
        is_logging = threading.get_ident() in self._logging
        while (size := lib.wst_take_control(self._handle, payload, head)) >= 0:
            arrow = ">" if head[0] & lib.WST_SENT else "<"
            frame = arrow, head[0] & 0xFF, ffi.unpack(payload, size)
            if not is_logging:
                self._log(*frame)
            elif frame == (">", *sent):
                sent = ()
            else:
                self._taken.append(frame)
        super()._collect()  # type: ignore[misc]

    def recv(self, timeout: float | None = None, decode: Any = None) -> Any:
        message = super().recv(timeout, decode)  # type: ignore[misc]
        self._log_received([message])
        return message

    def recv_many(self, max: int | None = None, **options: Any) -> list[Any]:
        messages: list[Any] = super().recv_many(max, **options)  # type: ignore[misc]
        self._log_received(messages)
        return messages

    def _log_received(self, messages: list[Any]) -> None:
        self._collect()  # the control frames before them
        for message in messages:
            self._log("<", _TEXT if isinstance(message, str) else _BINARY, message)

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
        if not head & CONTROL_BIT:
            self._log_sent(head & 0xFF, message)
        super()._send_frame(head, message)  # type: ignore[misc]
        if head & CONTROL_BIT:
            self._collect(head, message)

    def _send_ping(self, payload: bytes) -> None:
        super()._send_ping(payload)  # type: ignore[misc]
        self._collect(_PING, payload)


@functools.cache
def logged(kind: type[Any]) -> type[Any]:
    """The subclass of `kind` that logs its frames."""
    return type(
        kind.__name__, (_Logged, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    )

"""A blocking connection that logs what the program sends and receives, at level DEBUG.

The crate answers PINGs and keeps the connection alive by itself, and tells nobody, so those frames are not logged. A
connection is of this class only if its logger is enabled for DEBUG when it is made.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from wsfast._engine.frame_log import describe
from wsfast._faces import BYTES_LIKE, State
from wsfast.logs import guarded

__all__ = ["logged"]

# The first byte of a frame: FIN and opcode (RFC 6455 section 5.2).
_TEXT, _BINARY, _PING, _CLOSE = 0x81, 0x82, 0x89, 0x88


def _bytes(message: Any) -> bytes:
    return message.encode(errors="replace") if isinstance(message, str) else bytes(message)


class _Logged:
    """In front of a ClientConnection."""

    _base_logger: Any
    state: State

    def __init__(self, *args: Any, **options: Any) -> None:
        # The threads in which a frame is being logged. What a log handler sends or receives is not: that would not end.
        self._logging: set[int] = set()
        super().__init__(*args, **options)

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

    def recv(self, timeout: float | None = None, decode: Any = None) -> Any:
        message = super().recv(timeout, decode)  # type: ignore[misc]
        self._log("<", _TEXT if isinstance(message, str) else _BINARY, message)
        return message

    def _log_fragment(self, head: int, payload: bytes) -> None:
        """Called for each frame that recv_streaming() gives."""
        self._log("<", head, payload)

    def send(self, message: Any, *, text: bool | None = None, compress: bool | None = None) -> None:
        if isinstance(message, (str, *BYTES_LIKE)):
            as_text = isinstance(message, str) if text is None else text
            self._log_sent(_TEXT if as_text else _BINARY, message)
        super().send(message, text=text, compress=compress)  # type: ignore[misc]

    def _send_frame(self, head: int, message: Any) -> None:
        self._log_sent(head & 0xFF, message)
        super()._send_frame(head, message)  # type: ignore[misc]

    def _send_ping(self, payload: bytes) -> None:
        self._log_sent(_PING, payload)
        super()._send_ping(payload)  # type: ignore[misc]

    def _close(self, code: int, reason: bytes) -> None:
        self._log_sent(_CLOSE, code.to_bytes(2, "big") + reason if code else b"")
        super()._close(code, reason)  # type: ignore[misc]


@functools.cache
def logged(kind: type[Any]) -> type[Any]:
    """The class that logs what `kind` sends and receives."""
    return type(
        kind.__name__, (_Logged, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    )

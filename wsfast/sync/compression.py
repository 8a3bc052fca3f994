"""Compressing for a connection that several threads use: the stream of the other faces, behind a lock.

What a stream makes of a message refers to the messages before, so it must leave in the order of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from wsfast._deflate import TAIL, Deflater
from wsfast.deflate import AgreedDeflate
from wsfast.sync._native import ffi

__all__ = ["LockedDeflater"]

# Bits of the first byte of a frame (RFC 6455 section 5.2).
_FIN, _RSV1, _OPCODE = 0x80, 0x40, 0x0F


class LockedDeflater:
    """Compresses what threads send, one after the other."""

    def __init__(self, agreed: AgreedDeflate) -> None:
        self._deflater = Deflater(agreed) if agreed.can_compress else None
        self._lock = threading.Lock()
        self._sender: int | None = None

    def send(self, head: int, data: Any, put: Callable[[int, Any], None]) -> None:
        """Send a data frame by `put`, compressed if it is to be.

        :param head: the first byte of the frame, and above it the wish to compress it, see _deflate.pxd
        """
        # The handler of a signal that sends in the middle of this: its message is not one of the stream's.
        if self._deflater is None or self._sender == threading.get_ident():
            put(head & 0xFF, data)
            return
        with self._lock:
            self._sender = threading.get_ident()
            try:
                self._send(self._deflater, head, data, put)
            finally:
                self._sender = None

    def _send(self, deflater: Deflater, head: int, data: Any, put: Callable[[int, Any], None]) -> None:
        fin = bool(head & _FIN)
        compressed = deflater.wants(head, len(data))
        try:
            if compressed:
                data = deflater.deflate(ffi.buffer(data) if isinstance(data, ffi.CData) else data, fin)
                data = data[: -len(TAIL)] if fin else data
            begins = head & _OPCODE != 0
            put(head & 0xFF | (_RSV1 if compressed and begins else 0), data)
        except BaseException:
            if compressed:
                deflater.reset()  # the server may not get what the next message would refer to
            raise
        if begins:
            deflater.in_message = compressed and not fin

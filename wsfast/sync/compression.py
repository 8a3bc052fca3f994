"""Compressing for a connection that several threads use: the stream of the other faces, behind a lock.

A compressed message refers to those before it, so messages must leave in the order of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from wsfast._engine.frames.frame import FIN_BIT, OPCODE_BITS, RSV1_BIT
from wsfast._engine.frames.streams import TAIL, Deflater
from wsfast.deflate import AgreedDeflate

__all__ = ["LockedDeflater"]


class LockedDeflater:
    """Compresses the messages of several threads, one after the other."""

    def __init__(self, agreed: AgreedDeflate) -> None:
        self._deflater = Deflater(agreed) if agreed.can_compress else None
        # The handler of a signal may send between any two steps here: it must not wait for its own thread.
        self._lock = threading.RLock()
        self._busy = False

    def send(self, head: int, data: Any, send_plain: Callable[[int, Any], None]) -> None:
        """Send a data frame by `send_plain`, compressed if it is to be.

        :param head: the first byte of the frame, and above it the override of `compress=`, see frames/streams.pxd
        """
        if self._deflater is None:
            send_plain(head & 0xFF, data)
            return
        with self._lock:
            if self._busy:  # in the middle of a message of the same thread: this one is not of the stream
                send_plain(head & 0xFF, data)
                return
            self._busy = True
            try:
                self._send(self._deflater, head, data, send_plain)
            finally:
                self._busy = False

    def _send(self, deflater: Deflater, head: int, data: Any, send_plain: Callable[[int, Any], None]) -> None:
        fin = bool(head & FIN_BIT)
        compressed = deflater.wants(head, len(data))
        try:
            if compressed:
                data = deflater.deflate(data, fin)
                data = data[: -len(TAIL)] if fin else data
            begins = head & OPCODE_BITS != 0
            send_plain(head & 0xFF | (RSV1_BIT if compressed and begins else 0), data)
        except BaseException:
            if compressed:
                deflater.reset()  # the server may not get the bytes that the next message would refer to
            raise
        if begins:
            deflater.in_message = compressed and not fin

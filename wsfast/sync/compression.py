"""permessage-deflate for a connection that several threads use: the streams of the other faces, behind a lock.

The crate carries compressed messages as they are. Who receives inflates: there is one receiver at a time. Senders take
turns, for what a stream makes of a message refers to the messages before, so it must leave in the order of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from wsfast._deflate import TAIL, Deflater, Inflater
from wsfast.deflate import AgreedDeflate
from wsfast.sync._native import ffi

__all__ = ["Compression"]

# Bits of the first byte of a frame (RFC 6455 section 5.2).
_FIN, _RSV1, _OPCODE = 0x80, 0x40, 0x0F

# The largest limit that the streams take; the crate's "none" is more.
_NO_LIMIT = 2**62


class Compression:
    """What a connection needs to inflate and deflate.

    :param max_message, max_fragment: in bytes, inflated
    """

    def __init__(self, agreed: AgreedDeflate, max_message: int, max_fragment: int) -> None:
        self.agreed = agreed
        self._inflater = Inflater(agreed)
        self._deflater = Deflater(agreed) if agreed.can_compress else None
        self._max_message = min(max_message, _NO_LIMIT)
        self._max_fragment = min(max_fragment, _NO_LIMIT)
        self._size = 0  # of the fragments of a message that were inflated
        self._lock = threading.Lock()
        self._sender: int | None = None

    def inflate(self, data: bytes, fin: bool) -> bytes:
        """Inflate a message, or the next fragment of one.

        :param data: with TAIL, if it is the last fragment
        :raises PayloadTooBig, ProtocolError: the connection must fail
        """
        limit = self._max_message - self._size
        if limit > self._max_fragment:
            limit = self._max_fragment
        inflated = self._inflater.inflate(data, len(data), limit, fin, self._size or None)
        self._size = 0 if fin else self._size + len(inflated)
        return inflated

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

"""Frames in plain Python, written from RFC 6455 section 5.2. The module shares no code with wsfast."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class Sent(NamedTuple):
    """A frame that the client sent, unmasked."""

    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0


def header(
    opcode: int, size: int, *, fin: bool = True, rsv: int = 0, mask: bool = False, form: int = 0
) -> bytes:
    """A header. `form` is 7, 16 or 64 to force that length field, or 0 for the shortest."""
    first = fin << 7 | rsv << 4 | opcode
    form = form or (7 if size < 126 else 16 if size < 65536 else 64)
    if form == 7:
        return struct.pack("!BB", first, mask << 7 | size)
    if form == 16:
        return struct.pack("!BBH", first, mask << 7 | 126, size)
    return struct.pack("!BBQ", first, mask << 7 | 127, size)


def frame(opcode: int, payload: bytes | str = b"", *, fin: bool = True, rsv: int = 0, form: int = 0) -> bytes:
    """A frame as a server sends it."""
    payload = payload.encode() if isinstance(payload, str) else payload
    return header(opcode, len(payload), fin=fin, rsv=rsv, form=form) + payload


def text(payload: bytes | str, **options: int) -> bytes:
    return frame(TEXT, payload, **options)


def texts(*messages: object) -> bytes:
    return b"".join(text(str(message)) for message in messages)


def binary(payload: bytes, **options: int) -> bytes:
    return frame(BINARY, payload, **options)


def close(code: int | None = None, reason: bytes | str = b"") -> bytes:
    reason = reason.encode() if isinstance(reason, str) else reason
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


def xor(data: bytes, key: bytes) -> bytes:
    repeated = (key * (len(data) // 4 + 1))[: len(data)]
    size = len(data)
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


def masked(opcode: int, payload: bytes, key: bytes = b"\x01\x02\x03\x04", *, fin: bool = True) -> bytes:
    """A frame as a client sends it."""
    return header(opcode, len(payload), fin=fin, mask=True) + key + xor(payload, key)


class Parser:
    """A parser of the client's bytes. It checks that every header is masked and has the shortest length field."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.keys: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Sent]:
        self.buffer += data
        while (parsed := self._next()) is not None:
            yield parsed

    def _next(self) -> Sent | None:
        data = self.buffer
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        assert data[1] & 0x80, "a client masks every frame (RFC 6455 section 5.3)"
        if size == 126:
            if len(data) < 4:
                return None
            size, at = struct.unpack_from("!H", data, 2)[0], 4
            assert size >= 126, "a length is encoded in the fewest bytes"
        elif size == 127:
            if len(data) < 10:
                return None
            size, at = struct.unpack_from("!Q", data, 2)[0], 10
            assert size >= 65536, "a length is encoded in the fewest bytes"
        if len(data) < at + 4 + size:
            return None
        key = bytes(data[at : at + 4])
        self.keys.append(key)
        sent = Sent(
            data[0] & 0x0F,
            xor(bytes(data[at + 4 : at + 4 + size]), key),
            bool(data[0] & 0x80),
            data[0] >> 4 & 7,
        )
        del data[: at + 4 + size]
        return sent


def parse(data: bytes) -> list[Sent]:
    """All frames in `data`, which must contain nothing else."""
    parser = Parser()
    frames = list(parser.feed(data))
    assert not parser.buffer, f"{len(parser.buffer)} bytes of an incomplete frame"
    return frames


def pattern(size: int, seed: int = 0) -> bytes:
    """`size` bytes that reveal a wrong offset, because their period is prime."""
    period = bytes((i * 7 + seed) % 251 for i in range(251))
    return (period * (size // 251 + 1))[:size]


def parse_close(payload: bytes) -> tuple[int | None, str]:
    if not payload:
        return None, ""
    return struct.unpack_from("!H", payload)[0], payload[2:].decode()

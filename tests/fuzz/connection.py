"""A whole connection, of each face, against wsproto: the same messages, the same answers, the same end.

Input: a byte that picks the face, with compression or not, and seeds the pieces; then what the server says after the
upgrade.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from unittest import mock

from support.frames import CLOSE, PONG, TEXT, Sent, parse, parse_close
from support.listeners import Recorder
from support.mock import Wire
from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed

from fuzz import cut
from fuzz.handshake import ACCEPT, KEY
from wsfast import WSListener, WSMsgType, WSTransport
from wsfast._common.options import Limits, Pinging
from wsfast.asyncio.client import ClientConnection
from wsfast.deflate import AgreedDeflate, PerMessageDeflate
from wsfast.exceptions import ConnectionClosed, WSProtocolError
from wsfast.sync.client import connect

REPLY = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n"
)

# wsproto knows no limit, and waits for what is longer.
MAX_SIZE, TOO_BIG = 1 << 20, 1009

# Of a CLOSE frame: the code 1014, which IANA registered after wsproto was written.
BAD_GATEWAY = b"\x03\xf6"

QUIET = logging.Logger("quiet", logging.CRITICAL)
OPTIONS: Any = {"ping_interval": None, "max_queue": None, "max_size": MAX_SIZE, "logger": QUIET}
CHECKED: Any = {
    "limits": Limits(MAX_SIZE, None, 2**15),
    "pinging": Pinging(None, None),
    "close_timeout": 10,
    "logger": QUIET,
}


class Verdict(NamedTuple):
    messages: list[str | bytes]
    pongs: list[bytes]
    close: tuple[int, str] | None  # of the server: its code and reason
    failed: int | None  # the code with which this side fails the connection


def check(data: bytes) -> None:
    if not data:
        return
    kind, seed = data[0] % 8, data[0] // 8
    stream, pieces = data[1:], list(cut(data[1:], seed))
    if kind < 4:
        check_against_wsproto(FACES[kind], stream, pieces)
    else:
        check_inflated(stream, pieces)


def check_against_wsproto(face: Face, stream: bytes, pieces: list[bytes]) -> None:
    ours = face(pieces)
    # wsproto and the engine look at a header before all of it is there, each as it can; the blocking client does not.
    theirs = judged(stream[: whole_headers(stream)] if ours.failed is None else stream + bytes(16))
    if theirs.failed == 1007 and face is frames_listened:
        return  # who takes frames gets text unread
    if face is awaited and theirs.failed == 1007:
        check_late(ours, theirs)
        return
    if ours.failed == TOO_BIG:
        assert ours.messages == theirs.messages
        return
    if any(head & 0x0F == CLOSE and payload[:2] == BAD_GATEWAY for head, payload in frames_of(stream)):
        assert ours.messages == theirs.messages
        return
    assert ours == theirs, f"{face.__name__}: {ours} instead of {theirs}"


def check_inflated(stream: bytes, pieces: list[bytes]) -> None:
    """With compression, which wsproto forgets at a control frame: the faces are held against each other, and zlib."""
    ours = listened(pieces, deflated=True)
    if ours.failed == 1007:
        check_late(awaited(pieces, deflated=True), ours)
    else:
        assert awaited(pieces, deflated=True) == ours
    # The blocking client looks at a header when all of it is there.
    theirs = blocked(pieces if ours.failed is None else [*pieces, bytes(16)], deflated=True)
    assert theirs == ours, f"blocked: {theirs} instead of {ours}"
    if ours.failed is None:
        assert inflated(stream) in (ours.messages, None)


def check_late(ours: Verdict, theirs: Verdict) -> None:
    """The awaitable client reads text when it is received. What came in the same read may have ended the connection by
    then, in another way."""
    assert ours.messages == theirs.messages
    assert ours.failed is not None or ours.close is not None


def inflated(stream: bytes) -> list[str | bytes] | None:
    """The messages in legal frames, by plain zlib; None if a final block is among them, behind which it stops."""
    messages: list[str | bytes] = []
    inflater = zlib.decompressobj(wbits=-15)
    first, parts = 0, b""
    for head, payload in frames_of(stream):
        if head & 0x0F == CLOSE:
            break
        if head & 0x08:
            continue
        first = head if head & 0x0F else first
        parts += payload
        if head & 0x80:
            whole = inflater.decompress(parts + b"\x00\x00\xff\xff") if first & 0x40 else parts
            if inflater.eof:
                return None
            messages.append(whole.decode() if first & 0x0F == TEXT else whole)
            parts = b""
    return messages


def frames_of(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """The first byte and the payload of each frame whose end is there."""
    at = 0
    while (end := at + whole_frame(stream[at:])) > at:
        yield stream[at], stream[at + header_size(stream[at:]) : end]
        at = end


def whole_headers(stream: bytes) -> int:
    """Where the header begins of which the end is missing; otherwise the end."""
    at = 0
    while size := whole_frame(stream[at:]):
        at += size
    return len(stream) if header_size(stream[at:]) else at


def whole_frame(data: bytes) -> int:
    """The size of the frame that begins here, 0 if its end is missing."""
    size = header_size(data)
    if not size:
        return 0
    length = data[1] & 0x7F
    if length > 125:
        length = int.from_bytes(data[2 : 4 if length == 126 else 10], "big")
    return size + length if size + length <= len(data) else 0


def header_size(data: bytes) -> int:
    """The size of the header that begins here, 0 if its end is missing."""
    if len(data) < 2:
        return 0
    size = 2 + {126: 2, 127: 8}.get(data[1] & 0x7F, 0) + (4 if data[1] & 0x80 else 0)
    return size if size <= len(data) else 0


def judged(stream: bytes) -> Verdict:
    """wsproto's verdict."""
    client = FrameProtocol(client=True, extensions=[])
    client.receive_bytes(stream)
    verdict = Verdict([], [], None, None)
    parts: list[Any] = []
    try:
        for frame in client.received_frames():
            if frame.opcode is Opcode.PING:
                verdict.pongs.append(bytes(frame.payload))
            elif frame.opcode is Opcode.CLOSE:
                return verdict._replace(close=(int(frame.payload[0]), frame.payload[1]))
            elif frame.opcode is not Opcode.PONG:
                parts.append(frame.payload)
                if frame.message_finished:
                    verdict.messages.append(parts[0][:0].join(parts))
                    parts = []
    except ParseFailed as exc:
        return verdict._replace(failed=int(exc.code))
    return verdict


def concluded(
    messages: list[str | bytes], sent: list[Sent], close: tuple[int, str] | None, failed: int | None
) -> Verdict:
    """The verdict of a face, whose answers must fit it: a CLOSE is the last frame, and says the same."""
    pongs = [one.payload for one in sent if one.opcode == PONG]
    closes = [parse_close(one.payload) for one in sent if one.opcode == CLOSE]
    assert all(one.opcode in (PONG, CLOSE) and one.fin and one.rsv == 0 for one in sent)
    assert [one.opcode for one in sent].index(CLOSE) == len(sent) - 1 if closes else True
    if failed is not None:
        assert [code for code, _ in closes] == [failed], f"{closes} for {failed}"
    elif close is not None:
        assert closes == [(None if close[0] == 1005 else close[0], close[1])], f"{closes} for {close}"
    else:
        assert not closes, closes
    return Verdict(messages, pongs, close, failed)


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """One for all inputs: making one costs more than an input does."""
    return asyncio.new_event_loop()


def agreed() -> AgreedDeflate:
    return PerMessageDeflate().accept([])


class Collector(Recorder):
    """Takes messages, and notes nothing but CLOSE of what else comes."""

    payload_type = str

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str | bytes] = []

    def on_ws_message(self, transport: WSTransport, msg_type: WSMsgType, payload: str | bytes) -> None:
        self.messages.append(payload)


def listened(pieces: list[bytes], deflated: bool = False) -> Verdict:
    listener = Collector()
    compression = agreed() if deflated else None
    wire = Wire(loop(), listener, max_frame_size=MAX_SIZE, compression=compression, logger=QUIET)
    wire.feed(*filter(None, pieces))
    close = next((parse_close(got.payload) for got in listener.frames if got.msg_type == CLOSE), None)
    return of_wire(wire, listener.messages, None if close is None else (close[0] or 1005, close[1]))


def of_wire(wire: Wire, messages: list[str | bytes], close: tuple[int, str] | None) -> Verdict:
    sent = wire.sent()
    exc = wire.end()
    assert exc is None or isinstance(exc, WSProtocolError), repr(exc)
    return concluded(messages, sent, close, None if exc is None else int(exc.code))


def frames_listened(pieces: list[bytes]) -> Verdict:
    wire = Wire(loop(), max_frame_size=MAX_SIZE, logger=QUIET)
    wire.feed(*filter(None, pieces))
    messages: list[str | bytes] = []
    close: tuple[int, str] | None = None
    parts: list[bytes] = []
    opcode = 0
    for got in wire.listener.frames:
        assert close is None, "a frame after CLOSE"
        if got.msg_type == CLOSE:
            code, reason = parse_close(got.payload)
            close = (code or 1005, reason)
        elif got.msg_type != PONG:
            opcode = got.msg_type or opcode
            parts.append(got.payload)
            if got.fin:
                whole = b"".join(parts)
                messages.append(whole.decode(errors="replace") if opcode == TEXT else whole)
                parts = []
    return of_wire(wire, messages, close)


def awaited(pieces: list[bytes], deflated: bool = False) -> Verdict:
    return loop().run_until_complete(_awaited(pieces, agreed() if deflated else None))


async def _awaited(pieces: list[bytes], compression: AgreedDeflate | None) -> Verdict:
    made: list[ClientConnection] = []

    def make_listener(transport: WSTransport) -> WSListener:
        made.append(ClientConnection(transport, **CHECKED))
        return made[0].listener

    wire = Wire(asyncio.get_running_loop(), make_listener, compression=compression, logger=QUIET)
    (ws,) = made
    receiving = asyncio.ensure_future(received(ws))
    for piece in filter(None, pieces):
        wire.feed(piece)
        await asyncio.sleep(0)  # the receiver gets its turn
    sent = wire.sent()
    wire.lose()
    messages, closed = await receiving
    return concluded(messages, sent, *end_of(closed))


async def received(ws: ClientConnection) -> tuple[list[str | bytes], ConnectionClosed]:
    messages = []
    try:
        while True:
            messages.append(await ws.recv())
    except ConnectionClosed as closed:
        return messages, closed


def blocked(pieces: list[bytes], deflated: bool = False) -> Verdict:
    """The server speaks first, so that one thread will do: the key of the request is known."""
    ours, theirs = socket.socketpair()
    messages: list[str | bytes] = []
    with theirs:
        extension = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if deflated else b""
        theirs.sendall(b"".join([REPLY, extension, b"\r\n", *pieces[:1]]))
        compression = "deflate" if deflated else None
        with mock.patch("wsfast._opening.http.handshake.generate_nonce", return_value=KEY):
            # While a connection waits for the server to close it, nobody is there to do it: no time for that.
            ws = connect("ws://localhost/", sock=ours, close_timeout=0, compression=compression, **OPTIONS)
        try:
            for piece in pieces[1:]:
                with suppress(TimeoutError):
                    while True:
                        messages.append(ws.recv(timeout=0))
                theirs.sendall(piece)
            theirs.shutdown(socket.SHUT_WR)
            while True:
                messages.append(ws.recv())
        except ConnectionClosed as exc:
            closed = exc
        sent = b""
        while data := theirs.recv(1 << 16):
            sent += data
    return concluded(messages, parse(sent.partition(b"\r\n\r\n")[2]), *end_of(closed))


def end_of(closed: ConnectionClosed) -> tuple[tuple[int, str] | None, int | None]:
    """What the server closed with, or else the code that this side failed the connection with."""
    if closed.rcvd is not None:
        return (int(closed.rcvd.code), closed.rcvd.reason), None
    return None, None if closed.sent is None else int(closed.sent.code)


Face = Callable[[list[bytes]], Verdict]
FACES: tuple[Face, ...] = (listened, awaited, blocked, frames_listened)

"""A whole connection, of each face, against wsproto: the same messages, the same answers, the same end.

Input: a byte that picks the face and seeds the pieces, then what the server says after the upgrade.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from contextlib import suppress
from typing import Any, NamedTuple
from unittest import mock

from support.frames import CLOSE, PONG, TEXT, Sent, parse, parse_close
from support.mock import Wire
from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed

from fuzz.handshake import ACCEPT, KEY
from fuzz.pieces import cut
from wsfast import WSListener, WSTransport
from wsfast.asyncio.client import ClientConnection
from wsfast.exceptions import ConnectionClosed, WSProtocolError
from wsfast.sync.client import connect

REPLY = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n\r\n"
)

# wsproto knows no limit, and waits for what is longer.
MAX_SIZE, TOO_BIG = 1 << 20, 1009

# IANA registered it after wsproto was written.
BAD_GATEWAY = 1014

QUIET = logging.Logger("quiet", logging.CRITICAL)
OPTIONS: Any = {"ping_interval": None, "max_queue": None, "max_size": MAX_SIZE, "logger": QUIET}


class Verdict(NamedTuple):
    messages: list[str | bytes]
    pongs: list[bytes]
    close: tuple[int, str] | None  # of the server: its code and reason
    failed: int | None  # the code with which this side fails the connection


def check(data: bytes) -> None:
    if not data:
        return
    face, stream = FACES[data[0] % 3], data[1:]
    ours = face(list(cut(stream, data[0] // 3)))
    if ours.failed == TOO_BIG:
        theirs = judged(stream)
        assert theirs.failed == 1007 or theirs.messages == ours.messages
        return
    if ours.close is not None and ours.close[0] == BAD_GATEWAY:
        return
    # wsproto looks at a header when all of it is there, and at text before all of its frame is there.
    theirs = judged(stream[: whole_frames(stream)] if ours.failed is None else stream + bytes(16))
    if theirs.failed == 1007 and face is not blocked:
        return  # the listener is given text unread, and the awaitable client reads it when it is received
    assert ours == theirs, f"{face.__name__}: {ours} instead of {theirs}"


def whole_frames(stream: bytes) -> int:
    """Where the first frame begins of which the end is missing."""
    at = 0
    while True:
        second = stream[at + 1] if at + 1 < len(stream) else 0
        size, length = 2, second & 0x7F
        if length > 125:
            size += 2 if length == 126 else 8
            length = int.from_bytes(stream[at + 2 : at + size], "big")
        if second & 0x80:
            size += 4
        if at + size + length > len(stream):
            return at
        at += size + length


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


def listened(pieces: list[bytes]) -> Verdict:
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
    sent = wire.sent()
    exc = wire.end()
    assert exc is None or isinstance(exc, WSProtocolError), repr(exc)
    return concluded(messages, sent, close, None if exc is None else int(exc.code))


def awaited(pieces: list[bytes]) -> Verdict:
    return loop().run_until_complete(_awaited(pieces))


async def _awaited(pieces: list[bytes]) -> Verdict:
    made: list[ClientConnection] = []

    def make_listener(transport: WSTransport) -> WSListener:
        made.append(ClientConnection(transport, **OPTIONS))
        return made[0].listener

    wire = Wire(asyncio.get_running_loop(), make_listener, logger=QUIET)
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


def blocked(pieces: list[bytes]) -> Verdict:
    """The server speaks first, so that one thread will do: the key of the request is known."""
    ours, theirs = socket.socketpair()
    messages: list[str | bytes] = []
    with theirs:
        theirs.sendall(REPLY + pieces[0] if pieces else REPLY)
        with mock.patch("wsfast.handshake.generate_nonce", return_value=KEY):
            # While a connection waits for the server to close it, nobody is there to do it: no time for that.
            ws = connect("ws://localhost/", sock=ours, close_timeout=0, **OPTIONS)
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


FACES = (listened, awaited, blocked)

"""What recv() makes of a message: ``decode=memoryview``, and iterating with ``decode``."""

from __future__ import annotations

import zlib

import pytest
from support import frames
from support.faces import connected
from support.frames import BINARY, CONTINUATION, TEXT
from support.servers import serve

from wsfast import ConnectionClosedError

receiving = pytest.mark.parametrize("face", ["awaitable", "blocking"])

MESSAGES = [(TEXT, "smörgås".encode()), (BINARY, b"\x00\xff"), (TEXT, b""), (BINARY, bytes(70_000))]
PAYLOADS = [payload for _, payload in MESSAGES]
PLAIN, DEFLATED = b"", b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


def encoded(compressed, fragmented):
    """The messages as frames."""
    deflater = zlib.compressobj(wbits=-15)
    for opcode, payload in MESSAGES:
        if compressed:
            payload = (deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
        rsv = 4 if compressed else 0
        if fragmented:
            half = len(payload) // 2
            yield frames.frame(opcode, payload[:half], fin=False, rsv=rsv)
            yield frames.frame(CONTINUATION, payload[half:])
        else:
            yield frames.frame(opcode, payload, rsv=rsv)


END = frames.close(1000)


def sending(pieces, headers=PLAIN, end=END):
    async def handler(peer):
        await peer.accept(headers=headers)
        for piece in (*pieces, end):
            peer.send(piece)
        await peer.frame()

    return serve(handler)


async def all_of(handle, decode):
    if handle.face == "blocking":
        return await handle.call(lambda: list(handle.own.messages(decode)))
    return [message async for message in handle.own.messages(decode)]


@receiving
@pytest.mark.parametrize("fragmented", [False, True], ids=["whole", "fragments"])
@pytest.mark.parametrize("headers", [PLAIN, DEFLATED], ids=["plain", "deflated"])
async def test_a_view_has_the_bytes_of_its_message(face, headers, fragmented):
    async with (
        sending(encoded(headers == DEFLATED, fragmented), headers) as server,
        connected(face, server.url, compression="deflate") as handle,
    ):
        views = await all_of(handle, memoryview)
        assert [(type(view), view.readonly) for view in views] == [(memoryview, True)] * len(MESSAGES)
        assert [bytes(view) for view in views] == PAYLOADS  # after all that was received later, too


@receiving
async def test_iterating_decodes_as_it_is_told(face):
    sent = [frames.text("é"), frames.binary(b"b")]
    for decode, messages in ((None, ["é", b"b"]), (False, ["é".encode(), b"b"]), (True, ["é", "b"])):
        async with sending(sent) as server, connected(face, server.url) as handle:
            assert await all_of(handle, decode) == messages


@receiving
async def test_iterating_ends_with_the_error_of_the_connection(face):
    async with sending([], end=frames.close(1011)) as server, connected(face, server.url) as handle:
        with pytest.raises(ConnectionClosedError):
            await all_of(handle, memoryview)


@receiving
async def test_fragments_can_be_views(face):
    sent = [frames.frame(TEXT, b"\xc3", fin=False), frames.frame(CONTINUATION, b"\xa9")]
    async with sending(sent) as server, connected(face, server.url) as handle:
        if face == "blocking":
            parts = await handle.call(lambda: list(handle.own.recv_streaming(memoryview)))
        else:
            parts = [part async for part in handle.own.recv_streaming(memoryview)]
        await handle.client.close()
        assert [(type(part), bytes(part)) for part in parts] == [(memoryview, b"\xc3"), (memoryview, b"\xa9")]


@receiving
@pytest.mark.parametrize(
    "pieces", [[frames.text(b"\xff")], [frames.text("x"), frames.text(b"\xff")]], ids=len
)
async def test_a_view_of_text_is_utf_8(face, pieces):
    async with sending(pieces, end=b"") as server, connected(face, server.url) as handle:
        with pytest.raises(ConnectionClosedError) as caught:
            await all_of(handle, memoryview)
        assert caught.value.sent.code == 1007


async def test_a_view_lies_in_the_read_buffer():
    """A task that waits gets the messages of a read without a copy."""

    async def handler(peer):
        await peer.accept()
        await peer.frame()
        peer.send(frames.binary(b"one") + frames.binary(b"two"))
        await peer.answer_close()

    async with serve(handler) as server, connected("awaitable", server.url) as handle:
        await handle.own.send("go")
        one, two = [await handle.own.recv(decode=memoryview) for _ in range(2)]
        await handle.client.close()
        assert type(one.obj).__name__ == type(two.obj).__name__ == "WSFrame"
        assert (bytes(one), bytes(two)) == (b"one", b"two")

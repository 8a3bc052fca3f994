"""Records of TLS however they come, and every end that TLS has: for each client, by rustls and by OpenSSL."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support import HUNG, certificates, frames
from support.faces import FACES, End
from support.servers import Peer, serve
from support.tls_peer import ALERT, DATA, HANDSHAKE, WRONG, Forger, TLSPeer, cut, text, until_it_ends

WAYS = {"rustls": certificates.client_settings, "openssl": certificates.client_context}

pytestmark = [
    pytest.mark.asyncio(loop_factories=["asyncio"]),
    pytest.mark.parametrize("face", FACES),
    pytest.mark.parametrize("way", WAYS),
]

Script = Callable[[TLSPeer], Awaitable[Any]]


@functools.cache
def server_context(old: bool = False) -> ssl.SSLContext:
    context = certificates.server_context.__wrapped__()
    if old:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


async def trade(
    face: str, way: str, script: Script, *, context: ssl.SSLContext | None = None, count: int = 0
) -> tuple[list[str | bytes], End, Any]:
    """Connect to a server that goes on with `script`, which returns when it has ended TLS. The client answers message
    `count` by "thanks".

    Returns the messages, the end, and the result of the script.
    """

    async def handler(peer: Peer) -> Any:
        secure = TLSPeer(peer, context or server_context())
        await secure.accept()
        assert await secure.frames(1) == [b"go"]
        result = await script(secure)
        with contextlib.suppress(ConnectionError):
            await peer.writer.drain()
        return result

    async with serve(handler) as served:
        url = served.url.replace("ws:", "wss:")
        async with FACES[face](url, context=WAYS[way](), close_timeout=HUNG) as client:
            await client.send("go")
            messages = [await client.recv() for _ in range(count)]
            if count:
                await client.send("thanks")
            rest, end = await client.rest()
        return messages + rest, end, await served.result()


async def finish(server: TLSPeer) -> None:
    """The closing handshake, which the server begins, and the end of TLS."""
    server.send(server.records(frames.close(1000)))
    await server.frames(1)
    server.send(server.end())


LONG = frames.pattern(50_000)
BOTH = [False, True]


@pytest.mark.parametrize("old", BOTH, ids=["1.3", "1.2"])
@pytest.mark.parametrize("size", [1, 4099, 1 << 20])
async def test_records_however_they_are_cut(face, way, old, size):
    async def script(server):
        small = LONG[:500] if size == 1 else LONG
        wire = b"".join(server.records(text(f"{number}")) for number in range(50 if size > 1 else 3))
        wire += server.records(frames.binary(small)) + server.records(text("last"))
        for place in range(0, len(wire), size):
            server.send(wire[place : place + size])
            await asyncio.sleep(0)
        await finish(server)

    messages, end, _ = await trade(face, way, script, context=server_context(old))
    numbers = [str(number) for number in range(50 if size > 1 else 3)]
    assert messages == [*numbers, LONG[:500] if size == 1 else LONG, "last"]
    assert (end.received, end.sent, end.cause) == (1000, 1000, None)


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_a_key_update_in_the_midst_of_a_frame(face, way, size):
    async def script(server):
        whole = frames.binary(LONG[:1000])
        wire = server.records(whole[:1]) + server.key_update() + server.records(whole[1:300])
        wire += server.key_update() + server.key_update() + server.records(whole[300:])
        for place in range(0, len(wire), size):
            server.send(wire[place : place + size])
            await asyncio.sleep(0)
        assert await server.frames(1) == [b"thanks"], "with the client's new key"
        await finish(server)

    messages, end, _ = await trade(face, way, script, count=1)
    assert messages == [LONG[:1000]]
    assert end.cause is None


async def test_padded_records(face, way):
    async def script(server):
        server.pad(1 << 14)
        server.send(server.records(text("a")) + server.records(frames.binary(LONG)))
        await finish(server)

    messages, end, _ = await trade(face, way, script)
    assert messages == ["a", LONG]
    assert end.cause is None


async def test_tickets_between_fragments_and_behind_close(face, way):
    async def script(server):
        server.send(server.records(frames.text("a", fin=False)))
        for piece in cut(server.ticket(512)):
            server.send(piece)
            await asyncio.sleep(0)
        server.send(server.records(frames.frame(frames.CONTINUATION, b"b")))
        assert await server.frames(1) == [b"thanks"]
        server.send(server.records(frames.close(1000)) + server.ticket(512))
        await server.frames(1)
        server.send(server.ticket(512) + server.end())

    messages, end, _ = await trade(face, way, script, count=1)
    assert messages == ["ab"]
    assert (end.received, end.sent, end.cause) == (1000, 1000, None)


def by_aiofastnet(face: str, way: str) -> bool:
    """aiofastnet 1.2 drops what it has decrypted if the record behind it is broken, and tells the server nothing."""
    return way == "openssl" and face != "blocking"


# ---- ends


@pytest.mark.parametrize("old", BOTH, ids=["1.3", "1.2"])
@pytest.mark.parametrize("notify", [True, False], ids=["close_notify", "cut"])
async def test_an_end_between_two_fragments(face, way, old, notify):
    """What follows close_notify means nothing, whatever it is."""

    async def script(server):
        first = server.records(text("whole") + frames.text("a", fin=False))
        if notify:
            server.send(first + server.end() + b"what follows means nothing")
            await until_it_ends(server)
        else:
            server.send(first + server.records(frames.frame(frames.CONTINUATION, b"b"))[:10])
            server.peer.writer.close()

    messages, end, _ = await trade(face, way, script, context=server_context(old))
    assert messages == ["whole"]
    assert (end.received, type(end.cause)) == (None, EOFError)


@pytest.mark.parametrize("old", BOTH, ids=["1.3", "1.2"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_no_record_ends_the_connection(face, way, wrong, old):
    async def script(server):
        server.send(server.records(text("good")) + WRONG[wrong](server))
        return await until_it_ends(server)

    messages, end, told = await trade(face, way, script, context=server_context(old))
    assert (end.received, type(end.cause)) == (None, ssl.SSLError)
    if by_aiofastnet(face, way):
        assert set(messages) <= {"good"}
    else:
        assert set(messages) == {"good"}
        assert "alert" in told, "the server is told why"


# ---- records that no TLS library makes: TLS 1.3 alone


async def forged(face: str, way: str, tmp_path: Any, script: Callable[[TLSPeer, Forger], Any]) -> Any:
    context = server_context()
    context.keylog_filename = str(tmp_path / "keys")

    async def with_forger(server: TLSPeer) -> Any:
        forger = Forger(server, str(tmp_path / "keys"))
        server.send(forger.start)
        return await script(server, forger)

    try:
        return await trade(face, way, with_forger, context=context)
    finally:
        context.keylog_filename = None  # it keeps the file open


async def test_empty_records_and_padding_alone(face, way, tmp_path):
    async def script(server, forger):
        whole = text("x" * 300)
        server.send(forger.record(b"") + forger.record(whole[:100]) + forger.record(b"", padding=1000))
        server.send(forger.record(whole[100:], padding=1 << 13) + forger.record(b""))
        server.send(forger.record(frames.close(1000)))
        await server.frames(1)
        server.send(forger.record(b"\x01\x00", ALERT))  # close_notify

    messages, end, _ = await forged(face, way, tmp_path, script)
    assert messages == ["x" * 300]
    assert (end.received, end.sent, end.cause) == (1000, 1000, None)


FORGED: dict[str, Callable[[Forger], bytes]] = {
    "no content": lambda forger: forger.raw(bytes(100)),
    "nothing at all": lambda forger: forger.raw(b""),
    "an unknown kind": lambda forger: forger.record(b"x", 99),
    "too much content": lambda forger: forger.record(bytes((1 << 14) + 1)),
    "too much content in the longest record": lambda forger: forger.record(bytes((1 << 14) + 239)),
    "data within a handshake message": lambda forger: (
        forger.record(b"\x04\x00\x10\x00", HANDSHAKE) + forger.record(b"x", DATA)
    ),
    "an unknown KeyUpdate": lambda forger: forger.record(b"\x18\x00\x00\x01\x02", HANDSHAKE),
    "a CertificateRequest": lambda forger: forger.record(b"\x0d\x00\x00\x03\x00\x00\x00", HANDSHAKE),
    "a fatal alert": lambda forger: forger.record(b"\x02\x50", ALERT),
    "half an alert": lambda forger: forger.record(b"\x02", ALERT),
}


@pytest.mark.parametrize("wrong", FORGED)
async def test_what_no_server_may_send_ends_the_connection(face, way, wrong, tmp_path):
    async def script(server, forger):
        server.send(forger.record(text("good")) + FORGED[wrong](forger))
        return await until_it_ends(server)

    messages, end, _ = await forged(face, way, tmp_path, script)
    assert messages == ["good"] or by_aiofastnet(face, way)
    assert (end.received, type(end.cause)) == (None, ssl.SSLError)


async def test_a_stream_of_empty_records_ends_the_connection(face, way, tmp_path):
    async def script(server, forger):
        with contextlib.suppress(ConnectionError):
            server.send(b"".join(forger.record(b"") for _ in range(1000)))
            await until_it_ends(server)

    messages, end, _ = await forged(face, way, tmp_path, script)
    assert (messages, type(end.cause)) == ([], ssl.SSLError)

"""A hostile reply to the upgrade request costs little: processor time per read, memory, time until the end."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from contextlib import suppress

import pytest
from support import all_at_once, certificates, proxies
from support.faces import FACES
from support.servers import serve
from support.tls_peer import TLSPeer, ticket

from wsfast import InvalidHandshake, InvalidStatus, Tuning, connect
from wsfast._opening.http.exchange import MAX_BODY, MAX_HEADER
from wsfast._opening.http.handshake import ClientHandshake
from wsfast._opening.proxy import negotiation
from wsfast._opening.tls import handshake as tls_handshake
from wsfast._opening.uri import parse_uri
from wsfast.exceptions import InvalidProxyStatus
from wsfast.sync.client import connect as sync_connect

URI = parse_uri("ws://localhost/")

# Bytes of one read of the blocking client; the event loop reads a quarter of it while a connection is opened.
READ = 16 * 1024

# Seconds of this thread's own time that one read may take. It costs a tenth of that, and cost h11 several times as much
# on the same machine, so neither a slow machine nor a busy one fails.
LIMIT = 0.02

CHUNKED = b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZE = 2 * MAX_BODY
HOSTILE = {
    "chunks of a byte": CHUNKED + b"1\r\nx\r\n" * (SIZE // 6),
    "extensions": CHUNKED + b"1;a=b;c=d;e\r\nx\r\n" * (SIZE // 16),
    "an endless extension": CHUNKED + b"1;" + b"a" * SIZE,
    "trailers": CHUNKED + b"0\r\n" + b"A: b\r\n" * (SIZE // 6),
    "an endless trailer": CHUNKED + b"0\r\nA: " + b"b" * SIZE,
    "an endless size": CHUNKED + b"0" * SIZE,
    "interim replies": b"HTTP/1.1 103\r\n\r\n" * (SIZE // 16),
    "interim replies with headers": b"HTTP/1.1 103\r\nA:b\r\n\r\n" * (SIZE // 21),
    "headers": b"HTTP/1.1 200\r\n" + b"A:\r\n" * (SIZE // 4),
    "folded lines": b"HTTP/1.1 200\r\nA: b" + b"\r\n " * (READ // 3 - 10) + b"\r\n\r\n",
    "ends of lines": b"HTTP/1.1 200\r\nA: b\r\n" + b"\r" * SIZE,
    "a line": b"HTTP/1.1 200 " + b"a" * SIZE,
    "a body": b"HTTP/1.1 403 No\r\n\r\n" + b"x" * SIZE,
}


def cost(data, step):
    """Seconds of processor time that the slowest read takes, and how many bytes were kept."""
    handshake, slowest, at = ClientHandshake(URI), 0.0, 0
    while at < len(data):
        begin = time.thread_time()
        try:
            handshake.feed(data[at : at + step])
        except InvalidHandshake:
            return max(slowest, time.thread_time() - begin), at + step
        slowest = max(slowest, time.thread_time() - begin)
        at += step
    return slowest, at


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("step", [READ, 1000])
def test_a_read_is_cheap_and_their_number_is_bounded(name, step):
    results = [cost(HOSTILE[name], step) for _ in range(3)]
    assert min(seconds for seconds, _ in results) < LIMIT
    assert results[0][1] <= MAX_BODY + 3 * MAX_HEADER


@pytest.mark.parametrize("name", HOSTILE)
def test_byte_by_byte_costs_what_bytes_cost(name):
    data = HOSTILE[name][:20_000]
    begin = time.thread_time()
    cost(data, 1)
    assert time.thread_time() - begin < 2.0


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_is_bounded(name):
    cost(HOSTILE[name], READ)  # imports, caches
    tracemalloc.start()
    try:
        cost(HOSTILE[name], READ)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_BODY


@pytest.mark.parametrize("face", FACES)
async def test_a_refusal_without_end_ends(face):
    async def handler(peer):
        await peer.read_request()
        peer.send(CHUNKED)
        while not peer.writer.is_closing():
            peer.send(b"1\r\nx\r\n" * 10_000)
            await asyncio.sleep(0)
            if peer.writer.transport.get_write_buffer_size() > 1 << 20:
                try:
                    await peer.writer.drain()
                except ConnectionError:
                    return

    async with serve(handler) as server:
        with pytest.raises(InvalidStatus) as caught:
            async with FACES[face](server.url):
                pass
    assert set(caught.value.response.body) == {ord("x")}


async def test_a_refusal_that_takes_too_long_is_a_refusal():
    """With as much of its body as came before the deadline."""

    async def handler(peer):
        await peer.read_request()
        peer.send(b"HTTP/1.1 429 Slow down\r\nRetry-After: 9\r\nContent-Length: 100\r\n\r\npart")
        await peer.reader.read()

    async def refuses(face):
        async with serve(handler) as server:
            with pytest.raises(InvalidStatus) as caught:
                async with FACES[face](server.url, open_timeout=2):
                    pass
        assert caught.value.response.body == b"part"
        assert caught.value.retry_after == 9

    await all_at_once(refuses, zip(FACES))


@pytest.mark.parametrize("max_read_size", [None, 1000])
async def test_the_event_loop_reads_a_reply_in_small_pieces(monkeypatch, max_read_size):
    """So that other callbacks, such as that of the deadline, get their turn."""
    sizes = []
    feed = ClientHandshake.feed

    def count(handshake, data):
        sizes.append(len(data))
        return feed(handshake, data)

    async def handler(peer):
        await peer.read_request()
        peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000))
        await peer.writer.drain()

    monkeypatch.setattr(ClientHandshake, "feed", count)
    async with serve(handler) as server:
        with pytest.raises(InvalidStatus):
            await connect(server.url, tuning=Tuning(max_read_size=max_read_size))
    assert max(sizes) <= (max_read_size or 4096)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_the_event_loop_runs_between_two_reads_of_a_proxy_with_tls(monkeypatch):
    """All that has arrived is read at once: endless tickets, for example, held the loop for seconds."""
    loop = asyncio.get_running_loop()
    iterations, reads, receive = 0, [], loop.sock_recv

    def count():
        nonlocal iterations
        iterations += 1
        loop.call_soon(count)

    async def sock_recv(sock, size):
        reads.append(iterations)
        return await receive(sock, size)

    monkeypatch.setattr(loop, "sock_recv", sock_recv)
    for module in (negotiation, tls_handshake):
        monkeypatch.setattr(module, "_READ", 64)
    refusal = b"HTTP/1.1 407 No\r\nContent-Length: 8000\r\n\r\n" + bytes(8000)
    with proxies.http(certificates.server_context(), refusal=refusal) as proxy:
        count()
        with pytest.raises(InvalidProxyStatus):
            await connect("ws://exchange.test/", proxy=proxy.url, proxy_ssl=certificates.client_settings())
    assert len(reads) > 100
    # CONNECT follows the TLS handshake in the same iteration.
    assert len(set(reads)) >= len(reads) - 1


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize(
    "kind", [certificates.client_settings, certificates.client_context], ids=["rustls", "openssl"]
)
@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["negotiation", "upgrade"])
async def test_the_blocking_client_leaves_a_proxy_that_sends_tickets_without_end(kind, reply):
    """Bytes are always there, and they are never an answer."""

    async def handler(peer):
        secure = TLSPeer(peer)
        await secure.read()
        secure.send(secure.records(reply))
        with suppress(ConnectionError):
            while True:
                for _ in range(50):
                    ticket(secure.tls)
                secure.send(secure.records(b""))
                await peer.writer.drain()

    async with serve(handler) as server:
        proxy = f"https://localhost:{server.port}"
        with pytest.raises(TimeoutError, match="open_timeout"):
            await asyncio.to_thread(
                sync_connect, "ws://exchange.test/", proxy=proxy, proxy_ssl=kind(), open_timeout=0.5
            )

"""ws_connect(): which socket, which address, which transports and which loop."""

from __future__ import annotations

import asyncio
import socket

import pytest
from support import frames
from support.frames import text
from support.listeners import Recorder
from support.servers import Peer, echo, is_fast, serve

from wsfast import WebSocketURI, WSMsgType, WSTransport, ws_connect


async def hello(peer: Peer) -> bytes:
    """Accept, greet, and close when asked; the result is the request."""
    await peer.accept()
    peer.send(text("hello"))
    await peer.answer_close()
    return peer.request


async def finish(transport: WSTransport) -> None:
    transport.disconnect()
    await transport.wait_disconnected()


async def test_the_local_address_can_be_chosen():
    async with serve(hello) as server:
        transport, _ = await ws_connect(Recorder, server.url, local_addr=("127.0.0.2", 0))
        assert transport.underlying_transport.get_extra_info("sockname")[0] == "127.0.0.2"
        await finish(transport)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
async def test_ipv6_works():
    async with serve(hello, host="::1") as server:
        transport, listener = await ws_connect(Recorder, server.url)
        await listener.received(1)
        assert transport.underlying_transport.get_extra_info("peername")[0] == "::1"
        await finish(transport)
        assert f"Host: [::1]:{server.port}".encode() in await server.result()


def connected(uri: WebSocketURI) -> socket.socket:
    return socket.create_connection((uri.host, uri.port))


def unconnected(uri: WebSocketURI) -> socket.socket:
    return socket.socket()


async def connected_later(uri: WebSocketURI) -> socket.socket:
    await asyncio.sleep(0)
    return connected(uri)


async def unconnected_later(uri: WebSocketURI) -> socket.socket:
    return socket.socket()


def nothing(uri: WebSocketURI) -> None:
    return None


async def nothing_later(uri: WebSocketURI) -> None:
    return None


FACTORIES = [connected, unconnected, connected_later, unconnected_later, nothing, nothing_later]


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_a_socket_factory_gives_a_socket_or_leaves_it_to_us(factory, use_aiofastnet):
    seen = []

    def noting(uri):
        seen.append(uri)
        return factory(uri)

    async with serve(hello) as server:
        transport, listener = await ws_connect(
            Recorder, server.url, socket_factory=noting, use_aiofastnet=use_aiofastnet
        )
        await listener.received(1)
        assert [uri.port for uri in seen] == [server.port]
        await finish(transport)


@pytest.mark.parametrize("made", ["socket", 5, object()])
async def test_a_socket_factory_that_returns_something_else_is_told_so(made):
    with pytest.raises(TypeError, match="socket_factory must return a socket or None"):
        await ws_connect(Recorder, "ws://127.0.0.1:1/", socket_factory=lambda uri: made)


async def test_an_exception_of_a_socket_factory_gets_out():
    def fail(uri):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await ws_connect(Recorder, "ws://127.0.0.1:1/", socket_factory=fail)


async def test_a_socket_of_a_factory_that_cannot_connect_is_closed():
    made = []

    def factory(uri):
        made.append(socket.socket())
        return made[0]

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await ws_connect(Recorder, f"ws://127.0.0.1:{taken.getsockname()[1]}/", socket_factory=factory)
    assert made[0].fileno() == -1


@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_a_unix_socket_pair_will_do(use_aiofastnet):
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    served = asyncio.ensure_future(hello(Peer(reader, writer)))
    transport, listener = await ws_connect(
        Recorder, "ws://localhost/", socket_factory=lambda uri: ours, use_aiofastnet=use_aiofastnet
    )
    await listener.received(1)
    transport.disconnect()
    assert b"Host: localhost\r\n" in await served
    writer.close()
    await transport.wait_disconnected()
    await writer.wait_closed()


# Loops and transports


@pytest.mark.parametrize("size", [1, 200_000, 2_000_000])
async def test_the_loop_s_own_transports_will_do(size):
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, use_aiofastnet=False)
        assert not is_fast(transport)
        with transport.cork():
            transport.send(WSMsgType.BINARY, frames.pattern(size))
            transport.send(WSMsgType.TEXT, "end")
            assert transport.write_buffer_size >= 9
        await listener.received(2)
        assert listener.payloads == [frames.pattern(size), b"end"]
        await finish(transport)


class WithoutReaders(asyncio.SelectorEventLoop):
    """Refuses what asyncio's Proactor loop refuses; its own transports use private methods."""

    def add_reader(self, fd, callback, *args):
        raise NotImplementedError

    def remove_reader(self, fd):
        raise NotImplementedError


@pytest.mark.parametrize("size", [1, 500_000])
def test_a_loop_without_add_reader_is_served_through_its_own_transports(size):
    async def main():
        async with serve(echo) as server:
            transport, listener = await ws_connect(Recorder, server.url)
            assert not is_fast(transport)
            transport.send(WSMsgType.BINARY, frames.pattern(size))
            assert (await listener.received(1))[0].payload == frames.pattern(size)
            await finish(transport)

    loop = WithoutReaders()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


class Picky(asyncio.SelectorEventLoop):
    """Takes descriptors only, as numbers, and no others: as rloop."""

    def remove_reader(self, fd):
        if fd.__index__() < 0:
            raise OverflowError("can't convert negative int to unsigned")
        return super().remove_reader(fd)


def test_a_loop_is_asked_for_readers_with_a_real_descriptor():
    async def main():
        async with serve(echo) as server:
            transport, _ = await ws_connect(Recorder, server.url)
            assert is_fast(transport)
            await finish(transport)

    loop = Picky()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


async def test_fast_transports_are_the_default():
    async with serve(echo) as server:
        transport, _ = await ws_connect(Recorder, server.url)
        assert is_fast(transport)
        await finish(transport)

"""ws_connect(): what can be asked for, and that nothing which arrives early is lost."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket

import pytest
from support import frames
from support.frames import text
from support.listeners import Recorder, Scripted
from support.servers import Peer, echo, is_fast, serve

import wsfast
from wsfast import Tuning, WebSocketURI, WSListener, WSMsgType, WSTransport, ws_connect
from wsfast._common.option_names import names_of


async def hello(peer: Peer) -> bytes:
    """Accept, greet, and close when asked; the result is the request."""
    await peer.accept()
    peer.send(text("hello"))
    await peer.answer_close()
    return peer.request


async def finish(transport: WSTransport) -> None:
    transport.disconnect()
    await transport.wait_disconnected()


async def test_a_connection_opens_trades_and_closes():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        assert type(transport) is WSTransport
        assert type(listener) is Recorder
        assert listener.events == ["connected"]
        transport.send(WSMsgType.TEXT, "Grüße")
        await listener.received(1)
        assert listener.payloads == ["Grüße".encode()]
        await finish(transport)
        assert listener.events == ["connected", "frame", "disconnected"]


async def test_the_transport_has_the_request_and_the_response():
    async def handler(peer: Peer) -> None:
        await peer.accept(headers=b"X-Server: test\r\n")
        await peer.answer_close()

    async with serve(handler) as server:
        transport, _ = await ws_connect(Recorder, server.url + "path?q=1", extra_headers={"X-Mine": "1"})
        assert transport.request.path == b"/path?q=1"
        assert transport.request.headers["x-mine"] == "1"
        assert transport.response.status == 101
        assert transport.response.headers["X-SERVER"] == "test"
        assert transport.is_secure is False
        assert transport.subprotocol is None
        assert transport.underlying_transport.get_extra_info("peername")[1] == server.port
        await finish(transport)


async def test_nagle_s_algorithm_is_off():
    async with serve(echo) as server:
        transport, _ = await ws_connect(Recorder, server.url)
        sock = transport.underlying_transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await finish(transport)


# The listener's factory


class TwoArguments(Recorder):
    def __init__(self, request, response) -> None:
        super().__init__()
        self.seen = request.method, response.status


def two_arguments(request, response) -> Recorder:
    listener = Recorder()
    listener.seen = request.method, response.status
    return listener


class CallableFactory:
    def __call__(self, request, response) -> Recorder:
        return two_arguments(request, response)

    def method(self, request, response) -> Recorder:
        return two_arguments(request, response)


TWO = {
    "class": TwoArguments,
    "function": two_arguments,
    "lambda": lambda request, response: two_arguments(request, response),
    "callable": CallableFactory(),
    "method": CallableFactory().method,
}


@pytest.mark.parametrize("factory", TWO.values(), ids=TWO)
async def test_a_factory_that_takes_two_arguments_gets_the_request_and_the_response(factory):
    async with serve(hello) as server:
        transport, listener = await ws_connect(factory, server.url)
        assert listener.seen == (b"GET", 101)
        await finish(transport)


class OptionalArgument(Recorder):
    def __init__(self, name: str = "default") -> None:
        super().__init__()
        self.name = name


@pytest.mark.parametrize(
    "factory",
    [Recorder, WSListener, lambda: Recorder(), OptionalArgument],
    ids=lambda factory: factory.__name__,
)
async def test_a_factory_that_takes_no_arguments_gets_none(factory):
    async with serve(hello) as server:
        transport, listener = await ws_connect(factory, server.url)
        assert isinstance(listener, WSListener)
        assert getattr(listener, "name", "default") == "default"
        await finish(transport)


async def test_a_typeerror_of_the_factory_itself_gets_out():
    """It is not taken for a wrong number of arguments."""

    def factory():
        calls.append(True)
        raise TypeError("mine")

    calls: list[bool] = []
    async with serve(Peer.accept) as server:
        with pytest.raises(TypeError, match="mine"):
            await ws_connect(factory, server.url)
    assert calls == [True]


@pytest.mark.parametrize("made", [None, object(), Recorder])
async def test_a_factory_that_returns_no_listener_is_told_so(made):
    async with serve(Peer.accept) as server:
        with pytest.raises(TypeError, match="ws_listener_factory must return a WSListener"):
            await ws_connect(lambda: made, server.url)


async def test_an_exception_of_on_ws_connected_ends_the_connection_and_reaches_the_waiter():
    def fail(self, transport):
        raise LookupError("mine")

    async def handler(peer: Peer) -> object:
        await peer.accept(glued=text("early"))
        return (await peer.answer_close()).payload

    async with serve(handler) as server:
        transport, listener = await ws_connect(lambda: Scripted(on_ws_connected=fail), server.url)
        with pytest.raises(LookupError, match="mine"):
            await transport.wait_disconnected()
        assert listener.payloads == []
        assert await server.result() == b"\x03\xf3"


# The reply and what is glued to it


async def test_frames_glued_to_the_reply_are_delivered_wherever_it_is_cut():
    """One connection for every split, so that the reply, its end, and the frames are each cut everywhere."""
    glued = text("a") + frames.frame(frames.PING, b"?") + text("bc", fin=False) + frames.frame(0, b"d")

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        data = peer.reply() + glued
        at = cuts.pop(0)
        if at is None:
            peer.send(data)
        else:
            peer.send(data[:at])
            await peer.writer.drain()
            # The client has read the first part when it runs, which it does before its loop sleeps.
            for _ in range(3):
                await asyncio.sleep(0)
            peer.send(data[at:])
        assert (await peer.frame()).payload == b"?"
        await peer.answer_close()

    length = 129 + len(glued)
    wanted: list[int | None] = [None, *range(1, 20), *range(100, length + 1)]
    cuts = list(wanted)
    async with serve(handler) as server:
        for at in wanted:
            transport, listener = await ws_connect(Recorder, server.url)
            await listener.received(3)
            assert listener.payloads == [b"a", b"bc", b"d"], at
            assert listener.events[0] == "connected"
            await finish(transport)


async def test_a_reply_that_comes_byte_by_byte_is_read():
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        for byte in peer.reply() + text("a"):
            peer.send(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        await peer.answer_close()

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        await listener.received(1)
        await finish(transport)


async def test_a_large_frame_glued_to_the_reply_arrives_intact():
    async def handler(peer: Peer) -> None:
        await peer.accept(glued=text("a") + frames.binary(frames.pattern(500_000)) + text("b"))
        await peer.answer_close()

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        await listener.received(3)
        assert listener.payloads == [b"a", frames.pattern(500_000), b"b"]
        await finish(transport)


async def test_a_close_glued_to_the_reply_is_no_failure_of_the_handshake():
    async def handler(peer: Peer) -> object:
        await peer.accept(glued=frames.close(1013, "busy"))
        return (await peer.frame()).payload

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        await transport.wait_disconnected()
        assert transport.close_info == ("remote", 1013, "busy", None)
        assert listener.events == ["connected", "frame", "disconnected"]
        assert await server.result() == b"\x03\xf5busy"


async def test_a_violation_glued_to_the_reply_reaches_the_waiter():
    async def handler(peer: Peer) -> None:
        await peer.accept(glued=text("a") + b"\xff\xff")
        await peer.frames_until_close()

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        with pytest.raises(wsfast.ProtocolError):
            await transport.wait_disconnected()
        assert listener.payloads == [b"a"]


# Options


@pytest.mark.parametrize(
    "extra_headers",
    [{"X-One": "1", "X-Two": "2"}, [("X-One", "1"), ("X-Two", "2")]],
    ids=["mapping", "pairs"],
)
async def test_extra_headers_are_sent(extra_headers):
    async with serve(hello) as server:
        transport, _ = await ws_connect(Recorder, server.url, extra_headers=extra_headers)
        await finish(transport)
        request = await server.result()
    assert b"\r\nX-One: 1\r\nX-Two: 2\r\n" in request


async def test_credentials_of_the_url_go_into_authorization_and_not_into_host():
    async with serve(hello) as server:
        url = server.url.replace("ws://", "ws://user:secret@")
        transport, _ = await ws_connect(Recorder, url)
        await finish(transport)
        request = await server.result()
    assert b"Authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in request
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in request


async def test_a_subprotocol_is_negotiated():
    async def handler(peer: Peer) -> bytes:
        await peer.accept(headers=b"Sec-WebSocket-Protocol: two\r\n")
        await peer.answer_close()
        return peer.request

    async with serve(handler) as server:
        transport, _ = await ws_connect(Recorder, server.url, subprotocols=["one", "two"])
        assert transport.subprotocol == "two"
        await finish(transport)
        assert b"Sec-WebSocket-Protocol: one, two\r\n" in await server.result()


@pytest.mark.parametrize("negotiated", [False, True])
async def test_reserved_bits_may_be_used_only_by_an_extension_negotiated_by_hand(negotiated):
    async def handler(peer: Peer) -> None:
        await peer.accept(headers=b"Sec-WebSocket-Extensions: mine\r\n" if negotiated else b"")
        await peer.answer_close()

    async with serve(handler) as server:
        transport, _ = await ws_connect(
            Recorder, server.url, extra_headers={"Sec-WebSocket-Extensions": "mine"}
        )
        if negotiated:
            transport.send(WSMsgType.TEXT, "x", rsv1=True)
        else:
            with pytest.raises(ValueError, match="rsv1"):
                transport.send(WSMsgType.TEXT, "x", rsv1=True)
        await finish(transport)


# (logger_name, the name of the logger that is used)
NAMES = [
    (None, "wsfast.client"),
    ("", "wsfast.client"),
    ("bot", "wsfast.bot"),
    (logging.getLogger("my.own"), "my.own"),
]


@pytest.mark.parametrize(("logger_name", "name"), NAMES, ids=[row[1] for row in NAMES])
async def test_the_logger_is_chosen_by_name_or_given(logger_name, name, caplog):
    caplog.set_level(logging.INFO)
    async with serve(echo) as server:
        transport, _ = await ws_connect(Recorder, server.url, logger_name=logger_name)
        await finish(transport)
    records = [record for record in caplog.records if record.name == name]
    assert any(
        "connected" in record.getMessage() and wsfast.mask_kernel in record.getMessage() for record in records
    )


async def test_a_logger_adapter_will_do(caplog):
    caplog.set_level(logging.INFO)

    class Adapter(logging.LoggerAdapter):
        def process(self, msg, kwargs):
            return f"[bot 7] {msg}", kwargs

    async with serve(echo) as server:
        adapter = Adapter(logging.getLogger("my.own"), {})
        transport, _ = await ws_connect(Recorder, server.url, logger_name=adapter)
        await finish(transport)
    assert "[bot 7] connected" in caplog.text


@pytest.mark.parametrize("write_policy", ["immediate", "gather"])
async def test_the_write_policy_says_when_frames_leave(write_policy):
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, tuning=Tuning(write_policy=write_policy))
        with transport.cork():
            assert transport.write_buffer_size == 0
        transport.send(WSMsgType.TEXT, "a")
        transport.send(WSMsgType.TEXT, "b")
        assert transport.write_buffer_size == (7 if write_policy == "gather" else 0)
        await listener.received(2)
        assert listener.payloads == [b"a", b"b"]
        await finish(transport)


async def test_max_frame_size_limits_what_is_received_and_not_what_is_sent():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, max_frame_size=100)
        transport.send(WSMsgType.BINARY, bytes(100))
        transport.send(WSMsgType.BINARY, bytes(101))
        with pytest.raises(wsfast.PayloadTooBig):
            await transport.wait_disconnected()
        assert [len(payload) for payload in listener.payloads] == [100]
        assert transport.close_info.code == 1009


@pytest.mark.parametrize("limit", [None, 11 << 20])
async def test_the_limit_is_10_mib_unless_another_is_set(limit):
    async def handler(peer: Peer) -> None:
        await peer.accept()
        peer.send(frames.binary(bytes(10 << 20)) + frames.binary(bytes((10 << 20) + 1)))
        with_close = await peer.frame()
        assert with_close.opcode == frames.CLOSE

    async with serve(handler) as server:
        options = {} if limit is None else {"max_frame_size": limit}
        transport, listener = await ws_connect(Recorder, server.url, **options)
        if limit is None:
            with pytest.raises(wsfast.PayloadTooBig):
                await transport.wait_disconnected()
            assert [len(payload) for payload in listener.payloads] == [10 << 20]
        else:
            await listener.received(2)
            await finish(transport)


async def test_no_limit_can_be_asked_for():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, max_frame_size=None)
        transport.send(WSMsgType.TEXT, "x")
        await listener.received(1)
        await finish(transport)


async def test_auto_pong_can_be_turned_off():
    async def handler(peer: Peer) -> list[int]:
        await peer.accept()
        peer.send(frames.frame(frames.PING, b"?"))
        return [sent.opcode for sent in await peer.frames_until_close()]

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, enable_auto_pong=False)
        await listener.received(1)
        assert listener.frames[0].msg_type is WSMsgType.PING
        await finish(transport)
        assert await server.result() == [frames.CLOSE]


def test_every_keyword_of_picows_that_concerns_a_client_is_accepted():
    import picows

    ours = names_of(ws_connect)
    missing = [name for name in inspect.signature(picows.ws_connect).parameters if name not in ours]
    assert missing in (["kwargs"], ["conn_kwargs"])


# Arguments that are refused: (arguments, exception, what it names)
BAD = [
    ({"url": "http://127.0.0.1/"}, wsfast.InvalidURI, "http"),
    ({"url": "ws://"}, wsfast.InvalidURI, ""),
    ({"busy_poll": 1}, TypeError, "busy_poll is a field of Tuning: tuning=Tuning(busy_poll=...)"),
    ({"netrc": True}, TypeError, "netrc is a field of Network: network=Network(netrc=...)"),
    ({"max_frame_sise": 5}, TypeError, "'max_frame_sise'. Did you mean 'max_frame_size'?"),
    ({"tuning": 5}, TypeError, "tuning must be Tuning"),
    ({"network": 5}, TypeError, "network must be Network"),
    ({"max_frame_size": 0}, ValueError, "max_frame_size"),
    ({"max_frame_size": -1}, ValueError, "max_frame_size"),
    ({"max_frame_size": "1"}, TypeError, ""),
    ({"max_redirects": -1}, ValueError, "max_redirects"),
    ({"open_timeout": -1}, ValueError, "open_timeout"),
    ({"close_timeout": -0.1}, ValueError, "close_timeout"),
    ({"websocket_handshake_timeout": -5}, ValueError, "websocket_handshake_timeout"),
    ({"auto_ping_idle_timeout": 0}, ValueError, "auto_ping_idle_timeout"),
    ({"auto_ping_idle_timeout": float("nan")}, ValueError, "auto_ping_idle_timeout"),
    ({"auto_ping_reply_timeout": 0}, ValueError, "auto_ping_reply_timeout"),
    ({"auto_ping_idle_timeout": 1, "auto_ping_reply_timeout": 2}, ValueError, "auto_ping_reply_timeout"),
    ({"auto_ping_strategy": 5}, ValueError, "WSAutoPingStrategy"),
    ({"proxy": False}, TypeError, "proxy"),
    ({"proxy_ssl_context": ...}, TypeError, "proxy_ssl_context"),
    ({"sock": None}, TypeError, "socket_factory"),
    ({"extra_headers": {"X": "a\r\nb"}}, ValueError, "extra_headers"),
    ({"extra_headers": {"Upgrade": "x"}}, ValueError, "extra_headers"),
    ({"extra_headers": 5}, TypeError, "extra_headers"),
    ({"subprotocols": "chat"}, TypeError, "subprotocols"),
    ({"subprotocols": ["a b"]}, ValueError, "subprotocols"),
    ({"no_such_option": 1}, TypeError, "no_such_option"),
]


@pytest.mark.parametrize(("arguments", "error", "named"), BAD, ids=[repr(row[0]) for row in BAD])
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_wrong_argument_is_refused_by_name(arguments, error, named):
    arguments = {"url": "ws://127.0.0.1:1/", **arguments}
    with pytest.raises(error) as info:
        await ws_connect(Recorder, **arguments)
    assert named in str(info.value)


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

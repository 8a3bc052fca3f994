"""Every option of every face: a wrong value is refused by the option's name, before anything is connected, and a right
one is not. A value that is set later counts or is refused: nothing is ignored.

The options are those that each face takes, and the fields of Tuning and Network, so one without a row here fails.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import socket
import ssl
from contextlib import nullcontext, suppress
from fractions import Fraction

import pytest
from support import frames
from support.blocking import echo, scripted
from support.blocking import echo as blocking_echo
from support.kinds import kind_of
from support.servers import serve

import wsfast.asyncio.client
import wsfast.sync.client
from wsfast import TLS, AddressCache, Network, Tuning, WSListener, WSMsgType, ws_connect
from wsfast._common.option_names import names_of
from wsfast.asyncio.client import connect
from wsfast.sync.client import reconnect

# Nobody listens there: whoever gets as far as to connect is refused.
PLAIN, SECURE = "ws://127.0.0.1:1/", "wss://127.0.0.1:1/"


def listener(url=PLAIN, ws_listener_factory=WSListener, **options):
    async def connect():
        transport, _ = await ws_connect(ws_listener_factory, url, **options)
        transport.send(WSMsgType.TEXT, "x")
        transport.send_close(1000)
        await transport.wait_disconnected()

    asyncio.run(connect())


def awaitable(uri=PLAIN, **options):
    async def connect():
        async with wsfast.asyncio.client.connect(uri, **options) as ws:
            await ws.send("x")
            assert await ws.recv() == "x"

    asyncio.run(connect())


def blocking(uri=PLAIN, **options):
    with wsfast.sync.client.connect(uri, **options) as ws:
        ws.send("x")
        assert ws.recv() == "x"


FACES = {
    "listener": (listener, ws_connect),
    "awaitable": (awaitable, wsfast.asyncio.client.connect),
    "blocking": (blocking, wsfast.sync.client.reconnect),
}

NAN, INF, HUGE = math.nan, math.inf, 10**400


class Two:
    """As numpy's numbers: no int, and as good as one."""

    def __index__(self):
        return 2

    def __repr__(self):
        return "Two()"


NO_NUMBERS = ["x", b"1", True, [], 1j]
# What is wrong, and what is right.
TIMEOUT = ([*NO_NUMBERS, -1, -0.5, NAN, -INF, -HUGE], [None, 0.0, 1, 5.5, Fraction(11, 2), INF, HUGE])
PING = ([*NO_NUMBERS, 0, 0.0, -1, NAN, -INF, -HUGE], [None, 1e-3, 20, INF, HUGE])
NUMBER = [*NO_NUMBERS, 1.5, NAN, INF, -1]
SIZE = (
    [*NUMBER, 0, (1, -1), (1, "x"), (1, 2, 3), ()],
    [None, 1, Two(), 2**70, HUGE, (1, None), (None, 1), (None, None)],
)
MARKS = (
    [*NUMBER, (1, 2), (2, -1), (1.5, None), (1, 2, 3)],
    [0, 1, Two(), 2**70, HUGE, (4, 2), (4, None), (None, 2), (None, 2**70)],
)
BOOL = ([None, 0, 1, "no", 1.0], [True, False])
CALLABLE = [5, "x", object()]
TEXT = ([b"x", 5, "a\r\nb", "\0"], [None, "x"])
HEADERS = (
    ["X: 1", 0, False, 5, {"X": "a\r\nb"}, {"a b": "x"}, [("X",)], {1: "x"}],
    [None, {}, {"X": "1"}, [("X", "1")]],
)
LOGGER = ([5, object(), b"x"], [None, "x", logging.getLogger("x")])
ADDRESS = (
    ["127.0.0.1", 5, [], ("127.0.0.1",), ("127.0.0.1", None, 0), (5, 0), ("127.0.0.1", 1.5)],
    [None, ("127.0.0.1", 0)],
)
CREATE_CONNECTION = {
    "host": ([5, b"x", []], ["127.0.0.1"]),
    "port": ([1.5, b"x", True], []),
    "family": ([*NUMBER, None], [0, socket.AF_INET]),
    "proto": ([*NUMBER, None], [0]),
    "flags": ([*NUMBER, None], [0]),
    "local_addr": ADDRESS,
    "happy_eyeballs_delay": (TIMEOUT[0], [None, 0.25]),
    "interleave": (NUMBER, [None, 1]),
    "server_hostname": ([5, b"x", False], [None, "localhost"]),
    "ssl_handshake_timeout": (PING[0], [None, 5]),
    "ssl_shutdown_timeout": (PING[0], [None, 5]),
    "ssl_incoming_bio_size": ([*NUMBER, 0], [None]),
    "ssl_outgoing_bio_size": ([*NUMBER, 0], [None]),
}
CONTEXT = [5, "x", False, object()]
SECONDS = ([*NO_NUMBERS, None, 0, -1, NAN, -INF], [10.5, INF])

OBJECTS = {field.name: kind for kind in (Tuning, Network) for field in dataclasses.fields(kind)}

ALL = {
    "tuning": ([5, "x", {}], [None, Tuning()]),
    "network": ([5, "x", {}], [None, Network()]),
    "write_policy": (["later", 1], [None, "immediate"]),
    "open_timeout": TIMEOUT,
    "close_timeout": TIMEOUT,
    "subprotocols": (["chat", 0, False, 5, [1], ["a b"], ["a", "a"]], [None, [], ["a", "b"]]),
    "compression": ([5, "gzip", True, b"deflate"], [None]),
    "busy_poll": ([*NO_NUMBERS, None, -1, NAN, -INF], [0, 1, 1e-6, Fraction(1, 1000), INF]),
    "origin": TEXT,
    "extensions": ([5, [5], "deflate"], [None, []]),
    "additional_headers": HEADERS,
    "extra_headers": HEADERS,
    "user_agent_header": TEXT,
    "ping_interval": PING,
    "ping_timeout": PING,
    "logger": LOGGER,
    "logger_name": LOGGER,
    "ssl": (CONTEXT, [None, True, TLS(), ssl.create_default_context()]),
    "ssl_context": (CONTEXT, [None, True, TLS(), ssl.create_default_context()]),
    "timestamps": (["x", 5, True], [None, "user"]),
    "max_read_size": ([*NUMBER, 0], [None, 1, Two(), HUGE]),
    "quickack": BOOL,
    "so_busy_poll": ([*NUMBER, None], [0]),
    "sockopts": ([5, None, [5], [(1, 2)], [(1, "2", 3)]], [(), []]),
    "ping_histogram": ([5, object()], [None]),
    "host": CREATE_CONNECTION["host"],
    "port": CREATE_CONNECTION["port"],
    "family": CREATE_CONNECTION["family"],
    "local_addr": ADDRESS,
    "source_address": ADDRESS,
    "happy_eyeballs_delay": CREATE_CONNECTION["happy_eyeballs_delay"],
    "server_hostname": CREATE_CONNECTION["server_hostname"],
}
CONNECT = {
    "uri": ([5, None, b"ws://a", "http://a/", "x"], [PLAIN]),
    "process_exception": (CALLABLE, [lambda exc: exc]),
    "reconnect_delays": (CALLABLE, [lambda: iter([0])]),
    "max_size": SIZE,
    "max_frame_size": SIZE,
    "max_queue": (MARKS[0], [None, *MARKS[1]]),
    "create_connection": (CALLABLE, [None]),
}
PROXY = {
    "resolver": (CALLABLE, [None, lambda host, port: "127.0.0.1"]),
    "address_cache": ([5, "x", {}], [None, AddressCache()]),
    "netrc": ([5, b"x", ["x"]], [None, False, True]),
    "proxy_ssl": (CONTEXT, [None, True, TLS(), ssl.create_default_context()]),
    "proxy_ssl_context": (CONTEXT, [None, True, TLS(), ssl.create_default_context()]),
    "proxy": ([False, 5, b"http://proxy"], [None, True]),
    "proxy_server_hostname": ([5, b"x", False], [None, "proxy"]),
    "proxy_headers": ([5, [1], {"x": 1}, {"Host": "x"}, {"x": "a\r\nb"}], [None, {"x": "y"}]),
}
ROWS = {
    "listener": {
        **ALL,
        **PROXY,
        "ws_listener_factory": ([None, *CALLABLE], [WSListener]),
        "url": CONNECT["uri"],
        "disconnect_on_exception": BOOL,
        "websocket_handshake_timeout": TIMEOUT,
        "enable_auto_ping": BOOL,
        "auto_ping_idle_timeout": SECONDS,
        "auto_ping_reply_timeout": (SECONDS[0] + [11], [10, 1e-3]),
        "auto_ping_strategy": ([None, 0, 3, "x", NAN], [1, 2]),
        "enable_auto_pong": BOOL,
        "max_frame_size": ([*NUMBER, 0, (1, 1)], [None, 1, 2**70, HUGE]),
        "max_size": ([*NUMBER, 0, (1, 1)], [None, 1, 2**70, HUGE]),
        "max_redirects": ([*NUMBER, None], [0, 5]),
        "read_buffer_init_size": ([*NUMBER, None], [0, 1]),
        "socket_factory": (CALLABLE, [None]),
        "use_aiofastnet": ([0, "x"], [None, True]),
        **CREATE_CONNECTION,
    },
    "awaitable": {
        **ALL,
        **CONNECT,
        **PROXY,
        "write_limit": (MARKS[0], MARKS[1]),
        "overflow": ([None, 5, "x", "conflate"], ["pause", "drop_oldest", "drop_newest", "fail"]),
        "conflate_key": ([*CALLABLE, len], [None]),
        "on_high_water": (CALLABLE, [None, print]),
        **CREATE_CONNECTION,
        "sock": ([5, "x", False], [None]),
    },
    "blocking": {
        **ALL,
        **CONNECT,
        **PROXY,
        "sock": ([5, "x", False], [None]),
        "client_cert": ([5, 0, b"x", (5, "x"), ("x", 5), (None, "x"), ("x",)], [None]),
        "address": (ADDRESS[0], [None]),
    },
}
# Options whose wrong values are asked for elsewhere, and by which test.
ELSEWHERE = {
    "all_errors": "accepted for websockets' sake, and ignored",
}

NEEDS_TLS = {
    "client_cert",
    *(name for rows in ROWS.values() for name in rows if name.startswith(("ssl", "server_"))),
}


def cases(which):
    for face, rows in ROWS.items():
        for name, values in rows.items():
            for value in values[which]:
                shown = ascii(value)[:24].partition(" at 0x")[0]
                yield pytest.param(face, name, value, id=f"{face}-{name}-{shown}")


def call(face, name, value, url=None):
    kind = OBJECTS.get(name)
    options = {kind.__name__.lower(): kind(**{name: value})} if kind else {name: value}
    if url is not None:
        options["url" if face == "listener" else "uri"] = url
    if name in NEEDS_TLS and (value is not None or name in CREATE_CONNECTION):
        options["url" if face == "listener" else "uri"] = SECURE
    if name == "quickack" and value is True and not hasattr(socket, "TCP_QUICKACK"):
        pytest.skip("no TCP_QUICKACK")
    FACES[face][0](**options)


@pytest.mark.parametrize("face", FACES)
def test_every_option_has_a_row(face):
    options = {*names_of(FACES[face][1]), *OBJECTS}
    assert options - set(ROWS[face]) == options & set(ELSEWHERE)


# An error calls an option by its own name, which may be another than the program's.
OTHER_NAMES = {"url": "uri", "source_address": "local_addr"}
for _name, _other in [
    ("max_size", "max_frame_size"),
    ("additional_headers", "extra_headers"),
    ("ssl", "ssl_context"),
    ("proxy_ssl", "proxy_ssl_context"),
    ("logger", "logger_name"),
]:
    OTHER_NAMES |= {_name: _other, _other: _name}


@pytest.mark.parametrize(("face", "name", "value"), list(cases(0)))
def test_a_wrong_value_is_refused_by_name(face, name, value):
    with pytest.raises((TypeError, ValueError, wsfast.InvalidURI)) as caught:
        call(face, name, value)
    names = {name, OTHER_NAMES.get(name, name)}
    if isinstance(caught.value, wsfast.InvalidURI):
        names = {"isn't a valid URI"}
    assert any(name in str(caught.value) for name in names), caught.value
    assert kind_of(caught.value) in (TypeError, ValueError, wsfast.InvalidURI)


# There is no time to connect in.
NO_TIME = [("open_timeout", 0.0), ("websocket_handshake_timeout", 0.0)]


@pytest.mark.parametrize(("face", "name", "value"), list(cases(1)))
def test_a_right_value_is_taken_and_does_no_harm(face, name, value):
    if name in ("url", "uri", *NEEDS_TLS) or (name, value) in NO_TIME:
        with pytest.raises((ConnectionRefusedError, TimeoutError)):
            call(face, name, value)
        return
    # A server that is not waited for may find the connection gone when it answers.
    with suppress(ConnectionError) if name == "close_timeout" else nullcontext():
        with scripted(echo) as server:
            call(face, name, value, server.url)


@pytest.mark.parametrize(("face", "name"), [("awaitable", "ping_interval"), ("blocking", "ping_interval")])
def test_who_wants_no_pings_is_told_how(face, name):
    with pytest.raises(ValueError, match=r"ping_interval must be positive, or None to send no pings, not 0"):
        call(face, name, 0)


def test_the_same_option_is_judged_alike_by_every_face():
    """A name that two faces have has the same rows, but for what only one of them can be told."""
    seen = {}
    for rows in ROWS.values():
        for name, (wrong, _) in rows.items():
            if name not in ("max_size", "max_frame_size"):  # of frames there is one limit
                assert [ascii(value) for value in seen.setdefault(name, wrong)] == [
                    ascii(value) for value in wrong
                ]


def test_the_blocking_client_cannot_gather():
    with pytest.raises(ValueError, match=r"write_policy='gather': .* cork\(\)"):
        wsfast.sync.client.connect(PLAIN, tuning=Tuning(write_policy="gather"))


URI = "ws://127.0.0.1:1/"
COUNT = {
    "additional_headers": {"X-Token": "new"},
    "user_agent_header": "me/1",
    "open_timeout": 3,
    "close_timeout": 3,
    "process_exception": lambda exc: exc,
    "reconnect_delays": lambda: iter([0]),
}


@pytest.mark.parametrize("make", [connect, reconnect])
@pytest.mark.parametrize("name", COUNT)
def test_what_counts_can_be_changed(make, name):
    connecter = make(URI)
    setattr(connecter, name, COUNT[name])
    assert getattr(connecter, name) == COUNT[name]


@pytest.mark.parametrize("make", [connect, reconnect])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("additional_headers", {"X": "\n"}),
        ("user_agent_header", 5),
        ("open_timeout", -1),
        ("close_timeout", "x"),
        ("process_exception", 5),
        ("reconnect_delays", 5),
        ("logger", 5),
    ],
)
def test_a_wrong_value_is_refused_and_leaves_the_right_one(make, name, value):
    connecter = make(URI)
    before = getattr(connecter, name)
    with pytest.raises((TypeError, ValueError), match=name):
        setattr(connecter, name, value)
    assert getattr(connecter, name) == before


@pytest.mark.parametrize("make", [connect, reconnect])
def test_what_does_not_count_is_refused(make):
    connecter = make(URI)
    for name in sorted(names_of(make) - {*COUNT, "logger"}):
        with pytest.raises(AttributeError):
            setattr(connecter, name, None)


@pytest.mark.parametrize("make", [connect, reconnect])
def test_subclasses_have_attributes_of_their_own(make):
    class Mine(make):
        def __init__(self, uri, token):
            super().__init__(uri)
            self.token = token

    connecter = Mine(URI, "secret")
    connecter.anything = 1
    assert (connecter.token, connecter.anything) == ("secret", 1)
    with pytest.raises(AttributeError, match="origin cannot be changed"):
        connecter.origin = "x"


@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [
        ("additional_headers", {"X-Token": "new"}, b"X-Token: new\r\n"),
        ("user_agent_header", "me/1", b"User-Agent: me/1\r\n"),
    ],
)
async def test_headers_that_were_changed_are_sent(name, value, sent):
    async def handler(peer):
        await peer.accept()
        await peer.answer_close()
        return peer.request

    async with serve(handler) as server:
        connecter = connect(server.url, additional_headers={"X-Token": "old"})
        setattr(connecter, name, value)
        for _ in range(2):
            async with connecter:
                pass
            assert sent in await server.result()


async def test_close_timeout_of_a_connection_counts():
    async def handler(peer):
        await peer.accept()
        await peer.frames_until_close()  # and no answer
        await peer.rest()

    async with serve(handler) as server:
        ws = await connect(server.url, close_timeout=1000)
        ws.close_timeout = 0.05
        assert ws.close_timeout == 0.05
        with pytest.raises(ValueError, match="close_timeout"):
            ws.close_timeout = -1
        await ws.close()  # a test that takes longer than the deadline fails


async def test_ping_interval_and_ping_timeout_of_a_connection_count():
    async def handler(peer):
        await peer.accept()
        assert (await peer.frame()).opcode == frames.PING
        got = await peer.frames_until_close()  # no PONG
        return got[-1].payload[:2]

    async with serve(handler) as server:
        ws = await connect(server.url, ping_interval=None, close_timeout=0.05)
        ws.ping_interval, ws.ping_timeout = 0.01, 0.02
        assert (ws.ping_interval, ws.ping_timeout) == (0.01, 0.02)
        for value in (0, -1, "x"):
            with pytest.raises((TypeError, ValueError), match="ping_interval"):
                ws.ping_interval = value
        await ws.wait_closed()
        assert await server.result() == (1011).to_bytes(2, "big")
        ws.ping_interval = 5  # nothing to ping any more


async def test_what_an_awaitable_connection_keeps_is_refused():
    async def handler(peer):
        await peer.accept()
        await peer.answer_close()

    async with serve(handler) as server, connect(server.url) as ws:
        for name in ("max_size", "max_queue", "write_limit"):
            assert not hasattr(ws, name)
            with pytest.raises(AttributeError, match=name):
                setattr(ws, name, 5)
        ws.mine = 1


def test_what_a_blocking_connection_keeps_is_refused():
    with scripted(blocking_echo) as server, wsfast.sync.client.connect(server.url) as ws:
        for name in ("max_size", "max_queue"):
            with pytest.raises(AttributeError, match=name):
                setattr(ws, name, 5)
        ws.mine = 1
        assert ws.protocol.state is ws.state


def test_times_of_a_blocking_connection_count():
    def script(peer):
        peer.accept()
        ping = peer.frame()
        assert ping.opcode == frames.PING
        got = peer.rest()
        return got[0].payload[:2]

    with scripted(script) as server:
        ws = wsfast.sync.client.connect(server.url, ping_interval=None, close_timeout=1000)
        assert (ws.ping_interval, ws.ping_timeout, ws.close_timeout) == (None, 20, 1000)
        ws.ping_interval, ws.ping_timeout, ws.close_timeout = 0.01, 0.05, 0.06
        assert (ws.ping_interval, ws.ping_timeout, ws.close_timeout) == (0.01, 0.05, 0.06)
        for name in ("ping_interval", "ping_timeout", "close_timeout"):
            with pytest.raises((TypeError, ValueError), match=name):
                setattr(ws, name, "x")
        with pytest.raises(wsfast.ConnectionClosed) as caught:
            ws.recv()
        assert isinstance(caught.value.__cause__, wsfast.KeepaliveTimeout)
        ws.ping_interval = 5  # nothing to ping any more
    assert server.result() == (1011).to_bytes(2, "big")


def test_the_close_timeout_of_a_blocking_connection_counts():
    def script(peer):
        peer.accept()
        peer.rest()  # no answer

    with scripted(script) as server:
        ws = wsfast.sync.client.connect(server.url, close_timeout=1000)
        ws.close_timeout = 0.05
        ws.close()  # a test that takes longer than the deadline fails

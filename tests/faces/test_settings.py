"""What is set on a connection, or on what makes one, counts or is refused: nothing is ignored."""

from __future__ import annotations

import pytest
from support import frames
from support.blocking import echo as blocking_echo
from support.blocking import scripted
from support.servers import serve

import wsfast.asyncio.client
import wsfast.sync.client
from wsfast._common.option_names import names_of
from wsfast.asyncio.client import connect
from wsfast.sync.client import reconnect

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

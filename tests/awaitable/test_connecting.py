"""connect(): its forms, its options, reconnecting, and what it refuses."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import socket
import uuid
from contextlib import asynccontextmanager, suppress

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
import websockets.client
from support import frames
from support.awaiting import awaitable, compares, turns
from support.certificates import WAYS, client_context, server_context
from support.servers import PEERS, echo, serve, websockets_echo

import wsfast
import wsfast.asyncio
from wsfast.asyncio.client import ClientConnection, backoff, connect, process_exception, unix_connect
from wsfast.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus, InvalidURI

# The three forms


async def test_await():
    async with websockets_echo() as url:
        ws = await connect(url)
        await ws.send("x")
        assert await ws.recv() == "x"
        await ws.close()


async def test_async_with():
    async with websockets_echo() as url:
        async with connect(url) as ws:
            await ws.send("x")
            assert await ws.recv() == "x"
        assert ws.close_code == 1000


async def test_a_connect_object_can_be_used_again_but_not_inside_itself():
    async with websockets_echo() as url:
        connecting = connect(url)
        for _ in range(2):
            async with connecting as ws:
                await ws.send("x")
                assert await ws.recv() == "x"
                with pytest.raises(RuntimeError, match="reentrant"):
                    await connecting.__aenter__()
        first, second = await connecting, await connecting
        assert first is not second
        await asyncio.gather(first.close(), second.close())


async def test_an_open_connection_is_a_context_manager_too():
    async with websockets_echo() as url:
        async with await connect(url) as ws:
            pass
        assert ws.close_code == 1000


@pytest.mark.parametrize("peer", PEERS)
async def test_peers_plain_and_tls(peer):
    for tls in WAYS.values():
        context = tls and server_context()
        options = {"ssl": tls()} if tls else {}
        async with PEERS[peer](context) as url, connect(url, max_size=None, **options) as ws:
            for payload in ("text", b"bytes", frames.pattern(200_000)):
                await ws.send(payload)
                assert await ws.recv() == payload
            for number in range(100):
                await ws.send(str(number))
            assert [await ws.recv() for _ in range(100)] == [str(number) for number in range(100)]


async def test_the_names_are_where_they_are_looked_for():
    assert wsfast.connect is wsfast.asyncio.connect is connect
    assert wsfast.asyncio.unix_connect is unix_connect
    assert "connect" in wsfast.__all__
    assert asyncio.sleep.__module__ == "asyncio.tasks"  # the package of that name hides nothing


@compares
def test_the_signatures_are_websockets_and_more():
    ours = dict(inspect.signature(connect).parameters)
    theirs = dict(inspect.signature(websockets.asyncio.client.connect).parameters)
    assert list(ours)[: len(theirs) - 1] == list(theirs)[:-1]
    for name in list(theirs)[:-1]:
        assert ours[name].kind == theirs[name].kind, name
        if name not in ("user_agent_header", "process_exception", "reconnect_delays"):
            assert ours[name].default == theirs[name].default, name
    mine, peers = (set(dir(c)) for c in (ClientConnection, websockets.asyncio.client.ClientConnection))
    assert {name for name in peers if not name.startswith("_")} - mine <= {
        # asyncio's callbacks, and what websockets calls private
        "acknowledge_pings", "close_exc", "connection_lost", "connection_made", "data_received", "drain",
        "eof_received", "handshake", "keepalive", "pause_writing", "process_event", "resume_writing",
        "send_context", "send_data", "set_connection_exc", "start_keepalive", "terminate_pending_pings",
    }  # fmt: skip


def signature(method):
    """Of a compiled method it stands in the first line of the docstring."""
    try:
        return inspect.signature(method)
    except ValueError:
        parameters = method.__doc__.splitlines()[0].partition("(")[2].removesuffix(")")
        return inspect.signature(eval(f"lambda {parameters}: None"))


@compares
@pytest.mark.parametrize(
    "name",
    ["recv", "recv_streaming", "send", "close", "wait_closed", "ping", "pong", "__aiter__", "__aexit__"],
)
def test_the_signatures_of_methods_are_websockets(name):
    new = {"send": ["compress"]}
    ours, theirs = (
        {
            p.name: (p.kind, p.default)
            for p in signature(getattr(kind, name)).parameters.values()
            if p.name != "self"
        }
        for kind in (ClientConnection, websockets.asyncio.client.ClientConnection)
    )
    assert {name: ours.pop(name) for name in new.get(name, [])}.keys() == set(new.get(name, []))
    assert list(ours.items()) == list(theirs.items())


def test_the_signature_of_unix_connect_is_websockets():
    ours, theirs = (inspect.signature(module.unix_connect).parameters for module in (
        wsfast.asyncio.client, websockets.asyncio.client))  # fmt: skip
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


# Options


async def test_headers_and_origin():
    seen = []

    async def handler(peer):
        seen.append(await peer.read_request())
        peer.send(peer.reply())
        await peer.answer_close()

    async with serve(handler) as served:
        url = f"ws://user:secret@127.0.0.1:{served.port}/path?query=1"
        options = {"origin": "https://example.com", "additional_headers": [("X-A", "1"), ("X-A", "2")]}
        async with connect(url, **options, user_agent_header="mine/1") as ws:
            assert ws.request.path == "/path?query=1"
            assert ws.request.headers.getall("X-A") == ["1", "2"]
        async with connect(served.url, user_agent_header=None):
            pass
        async with connect(served.url, additional_headers={"User-Agent": "other/2"}):
            pass
    lines = seen[0].split(b"\r\n")
    assert lines[0] == b"GET /path?query=1 HTTP/1.1"
    for line in (b"Origin: https://example.com", b"X-A: 1", b"X-A: 2", b"User-Agent: mine/1"):
        assert line in lines
    assert b"Authorization: Basic dXNlcjpzZWNyZXQ=" in lines
    assert b"secret" not in seen[0]
    assert b"user-agent" not in seen[1].lower()
    assert b"User-Agent: other/2" in seen[2].split(b"\r\n")


async def test_no_extension_is_offered():
    async def handler(peer):
        assert b"sec-websocket-extensions" not in (await peer.read_request()).lower()
        peer.send(peer.reply())
        await peer.answer_close()

    async with serve(handler) as served, connect(served.url, compression=None):
        pass


async def test_a_socket_of_the_user():
    async with serve(echo) as served:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", served.port))
        async with connect("ws://elsewhere/", sock=sock) as ws:
            await ws.send("x")
            assert await ws.recv() == "x"
            assert ws.request.headers["Host"] == "elsewhere"


async def test_a_socket_serves_one_connection():
    async with serve(echo) as served:
        sock = socket.create_connection(("127.0.0.1", served.port))
        connecting = connect("ws://elsewhere/", sock=sock)
        async with await connecting as ws:
            with pytest.raises(ValueError, match="used for another connection"):
                await connecting
            await ws.send("x")
            assert await ws.recv() == "x"


async def test_another_host_and_port_than_the_uri_s():
    async with serve(echo) as served:
        async with connect("ws://elsewhere/", host="127.0.0.1", port=served.port) as ws:
            assert ws.remote_address == ("127.0.0.1", served.port)
            assert ws.request.headers["Host"] == "elsewhere"
        async with connect(served.url, local_addr=("127.0.0.2", 0)) as ws:
            assert ws.local_address[0] == "127.0.0.2"


async def test_tls_to_another_host_name():
    async with serve(echo, ssl_context=server_context("example.com")) as served:
        options = {"ssl": client_context(), "server_hostname": "example.com"}
        async with connect(served.url, **options) as ws:
            await ws.send("x")
            assert await ws.recv() == "x"


@asynccontextmanager
async def unix_server(path):
    async def handler(ws):
        async for message in ws:
            await ws.send(message)

    async with websockets.asyncio.server.unix_serve(handler, str(path), compression=None):
        yield


async def test_unix_sockets(tmp_path):
    path = tmp_path / "socket"
    async with unix_server(path):
        async with unix_connect(path) as ws:
            await ws.send("x")
            assert await ws.recv() == "x"
            assert ws.request.headers["Host"] == "localhost"
        async with unix_connect(str(path), uri="ws://example.com/path") as ws:
            assert ws.request.path == "/path"
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        async with unix_connect(sock=sock) as ws:
            await ws.send("x")
            assert await ws.recv() == "x"
    with pytest.raises(OSError):  # noqa: PT011
        await unix_connect(tmp_path / "nothing")
    with pytest.raises(ValueError, match="path or sock"):
        unix_connect()


async def test_a_class_of_the_user_s():
    class Mine(ClientConnection):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.mine = True

        async def shout(self, text):
            await self.send(text.upper())

    async with websockets_echo() as url, connect(url, create_connection=Mine) as ws:
        assert isinstance(ws, Mine)
        await ws.shout("x")
        assert await ws.recv() == "X"


async def test_loggers_and_ids(caplog):
    caplog.set_level(logging.DEBUG)
    mine = logging.getLogger("mine")
    async with websockets_echo() as url, connect(url, logger=mine) as ws, connect(url) as other:
        assert isinstance(ws.id, uuid.UUID)
        assert ws.id == ws.id != other.id
        ws.logger.info("said")
        assert other.logger.logger.name == "wsfast.client"
    record = next(record for record in caplog.records if record.getMessage() == "said")
    assert record.name == "mine"
    assert record.websocket is not None


# What is refused


@pytest.mark.parametrize(
    ("options", "exception", "match"),
    [
        ({"compression": "gzip"}, ValueError, "unsupported compression: gzip"),
        ({"extensions": [object()]}, TypeError, "extensions"),
        ({"write_policy": "gather"}, TypeError, r"tuning=Tuning\(write_policy=\.\.\.\)"),
        ({"max_queue": (1, 2)}, ValueError, "max_queue"),
        ({"max_queue": (2, -1)}, ValueError, "max_queue"),
        ({"max_queu": 5}, TypeError, "'max_queu'. Did you mean 'max_queue'?"),
        ({"open_timeout": -1}, ValueError, "open_timeout"),
        ({"close_timeout": -1}, ValueError, "close_timeout"),
        ({"ssl": True}, ValueError, "ssl"),
        ({"server_hostname": "x"}, ValueError, "server_hostname"),
        ({"subprotocols": "chat"}, TypeError, "subprotocols"),
        ({"additional_headers": {"X": "a\r\nb"}}, ValueError, "control character"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_wrong_arguments_raise_at_once(options, exception, match):
    with pytest.raises(exception, match=match):
        connect("ws://localhost/", **options)


def test_wrong_uris_raise_at_once():
    with pytest.raises(InvalidURI):
        connect("http://localhost/")
    with pytest.raises(ValueError, match="ssl=None"):
        connect("wss://localhost/", ssl=None)


# Failures leave nothing behind


async def test_cancelled_at_each_step_of_connecting():
    async def slow(peer):
        with suppress(EOFError, ConnectionError):
            await peer.read_request()
            await turns(5)
            peer.send(peer.reply())
            await peer.answer_close()

    async with serve(slow) as served:
        for steps in range(40):
            connecting = asyncio.ensure_future(connect(served.url)._connect())
            await turns(steps)
            connecting.cancel()
            try:
                ws = await connecting
            except asyncio.CancelledError:
                continue
            await ws.close()


async def test_messages_glued_to_the_reply():
    async def handler(peer):
        await peer.accept(glued=frames.text("1") + frames.text("2"))
        await peer.answer_close()

    async with serve(handler) as served, connect(served.url) as ws:
        assert [await ws.recv(), await ws.recv()] == ["1", "2"]


# Reconnecting


async def first_of(connecting):
    async for ws in connecting:
        return ws
    raise AssertionError


async def test_async_for_connects_again():
    served_connections = 0

    async def handler(ws):
        nonlocal served_connections
        served_connections += 1
        await ws.send(str(served_connections))
        await ws.close(1001 if served_connections % 2 else 1011)

    async with websockets.asyncio.server.serve(handler, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        received, connections = [], []
        async for ws in connect(url, reconnect_delays=lambda: itertools.repeat(0)):
            connections.append(ws)
            try:
                async for message in ws:
                    received.append(message)
            except ConnectionClosed:
                continue
            if len(received) >= 5:
                break
        assert received == ["1", "2", "3", "4", "5"]
        assert all(ws.close_code is not None for ws in connections[:-1])
        await connections[-1].close()


@asynccontextmanager
async def flaky_server(*statuses):
    """Answers with these statuses first (None: nothing at all), and accepts then."""
    remaining = iter(statuses)

    async def handler(peer):
        await peer.read_request()
        status = next(remaining, 101)
        if status == 101:
            peer.send(peer.reply())
            await peer.answer_close()
        elif status is not None:
            peer.send(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)

    async with serve(handler) as served:
        yield served.url


async def test_transient_errors_are_retried_after_delays(caplog):
    caplog.set_level(logging.INFO)
    made = 0

    def delays():
        nonlocal made
        made += 1
        yield from itertools.repeat(0)

    async with flaky_server(500, 502, None, 503, 504) as url:
        ws = await first_of(connect(url, reconnect_delays=delays))
        await ws.close()
    assert made == 1
    assert sum("reconnecting in 0.0 seconds" in record.getMessage() for record in caplog.records) == 5


async def test_a_fatal_error_ends_the_iteration():
    async with flaky_server(404) as url:
        with pytest.raises(InvalidStatus, match="404"):
            await first_of(connect(url))


async def test_process_exception_decides():
    async with flaky_server(404, 404) as url:
        options = {"process_exception": lambda exc: None, "reconnect_delays": lambda: itertools.repeat(0)}
        ws = await first_of(connect(url, **options))
        await ws.close()
    for how in ("returned", "raised"):

        def verdict(exc, how=how):
            if how == "raised":
                raise LookupError("mine")
            return LookupError("mine")

        async with flaky_server(500) as url:
            with pytest.raises(LookupError, match="mine") as caught:
                await first_of(connect(url, process_exception=verdict))
            assert isinstance(caught.value.__cause__, InvalidStatus)


@compares
def test_process_exception_is_websockets():
    def rejected(status, kind):
        response = type("Response", (), {"status_code": status})()
        return kind(response)

    ours = [OSError(), TimeoutError(), ValueError(), InvalidMessage("x")]
    ours[-1].__cause__ = EOFError()
    ours += [InvalidMessage("x")] + [
        rejected(status, InvalidStatus) for status in (400, 500, 501, 502, 503, 504)
    ]
    their = websockets.exceptions
    theirs = [OSError(), TimeoutError(), ValueError(), their.InvalidMessage("x")]
    theirs[-1].__cause__ = EOFError()
    theirs += [their.InvalidMessage("x")]
    theirs += [rejected(status, their.InvalidStatus) for status in (400, 500, 501, 502, 503, 504)]
    retried = [process_exception(exc) is None for exc in ours]
    assert retried == [websockets.client.process_exception(exc) is None for exc in theirs]
    assert all(process_exception(exc) in (None, exc) for exc in ours)


def test_backoff():
    ours = list(itertools.islice(backoff(), 20))
    theirs = list(itertools.islice(websockets.client.backoff(), 20))
    assert 0 <= ours[0] < 5
    assert ours[1:] == pytest.approx(theirs[1:])
    assert len({next(backoff()) for _ in range(5)}) == 5


async def test_leaving_the_iteration_closes_the_connection():
    async with websockets_echo() as url:
        connections = connect(url).__aiter__()
        ws = await connections.__anext__()
        await connections.aclose()
        assert ws.close_code == 1011


@pytest.mark.parametrize("tls", WAYS.values(), ids=WAYS)
async def test_many_connections_leave_nothing(tls):
    import gc

    context, options = (server_context(), {"ssl": tls()}) if tls else (None, {})
    async with websockets_echo(context) as url:
        for _ in range(30 if tls else 100):
            async with connect(url, **options) as ws:
                await ws.send("x")
                await ws.recv()
        del ws
        gc.collect()
        kinds = [type(thing).__name__ for thing in gc.get_objects()]
        assert "ClientConnection" not in kinds
        assert "Inbox" not in kinds
        assert "TLSSession" not in kinds


async def test_an_idle_connection_is_small():
    async with awaitable() as (ws, _):
        import sys

        assert sys.getsizeof(ws) + sys.getsizeof(ws.__dict__) < 1000

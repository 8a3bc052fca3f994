"""One surface: what every face has, by the same names."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import pickle
import pydoc
import socket
import subprocess
import sys
from contextlib import aclosing, suppress

import pytest
import websockets.exceptions
import websockets.frames
from hdrh.histogram import HdrHistogram
from support import frames
from support.awaiting import awaitable, compares
from support.blocking import scripted
from support.faces import FACES, End, connected
from support.frames import texts
from support.mock import Wire
from support.servers import echo, serve, websockets_echo

import wsfast
import wsfast.sync.client
from wsfast import (
    ConnectionClosed,
    KeepaliveTimeout,
    PayloadTooBig,
    Tuning,
    WSDisconnectInfo,
    WSListener,
    WSStats,
    ws_connect,
)
from wsfast._engine.frames.inspection import describe
from wsfast._engine.threads import run_soon
from wsfast._opening.route import Route, Routing
from wsfast._opening.uri import parse_uri
from wsfast.deflate import PerMessageDeflate

every_face = pytest.mark.parametrize("face", FACES)


async def one_after_the_other(peer):
    """Answers each message by how many frames came in one piece."""
    await peer.accept()
    with suppress(ConnectionError):
        while data := await peer.reader.read(1 << 20):
            got = list(peer._parser.feed(data))
            *others, last = got if got[-1].opcode == frames.CLOSE else (*got, None)
            if others:
                peer.send(frames.text(" ".join(sent.payload.decode() for sent in others)))
            if last is not None:
                peer.send(frames.frame(frames.CLOSE, last.payload))
                return


@every_face
async def test_stats_are_counted_alike(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        assert isinstance(before, WSStats)
        await handle.client.send("x" * 200)
        assert await handle.client.recv() == "x" * 200
        after = handle.own.stats
        counted = WSStats(*(late - early for early, late in zip(before, after)))
        assert counted._replace(poll_hits=0, poll_misses=0) == WSStats(
            frames_received=1,
            bytes_received=204,
            reads=1,
            frames_sent=1,
            bytes_sent=208,
            writes=1,
            frames_gathered=0,
            longest_backlog=0,
            poll_hits=0,
            poll_misses=0,
            empty_wakeups=0,
        )
        assert before.bytes_received > 100  # the server's reply
        await handle.client.close()
        assert handle.own.stats.frames_sent == after.frames_sent + 1


@every_face
async def test_what_the_kernel_does_not_take_is_the_longest_backlog(face):
    async def handler(peer):
        await peer.accept()
        await go_on.wait()
        await peer.frame()

    go_on = asyncio.Event()
    async with serve(handler, receive_buffer=4096) as server, connected(face, server.url) as handle:
        sending = asyncio.ensure_future(handle.client.send(bytes(20_000_000)))
        await asyncio.sleep(0)
        go_on.set()
        with suppress(End):
            await sending
        assert handle.own.stats.longest_backlog > 100_000


@every_face
async def test_corked_messages_leave_together(face):
    async with serve(one_after_the_other) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        await handle.send_corked("a", "b", "c")
        assert await handle.client.recv() == "a b c"
        after = handle.own.stats
        assert (after.frames_gathered - before.frames_gathered, after.writes - before.writes) == (3, 1)
        await handle.client.send("d")
        assert await handle.client.recv() == "d"


@every_face
async def test_many_messages_leave_in_one_write(face):
    async with serve(one_after_the_other) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        await handle.send_many(str(i) for i in range(20))
        assert await handle.client.recv() == " ".join(map(str, range(20)))
        assert handle.own.stats.writes - before.writes == 1
        with pytest.raises(TypeError, match="int"):
            await handle.send_many(["x", 5])
        assert await handle.client.recv() == "x"
        await handle.send_many([])


@every_face
async def test_more_than_64_kib_leave_in_several_writes(face):
    async def handler(peer):
        await peer.accept()
        got = [await peer.frame() for _ in range(300)]
        peer.send(frames.text(str(sum(len(sent.payload) for sent in got))))
        await peer.rest()

    async with serve(handler) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        await handle.send_many("x" * 1000 for _ in range(300))
        assert 4 <= handle.own.stats.writes - before.writes <= 6
        assert await handle.client.recv() == "300000"


@every_face
async def test_close_info_says_who_closed_and_how(face):
    async def handler(peer):
        await peer.accept()
        peer.send(frames.close(4001, "enough"))
        await peer.frames_until_close()

    async with serve(handler) as server, connected(face, server.url) as handle:
        while True:
            if handle.own.close_info is not None:
                break
            with pytest.raises(End):
                await handle.client.recv()
        assert handle.own.close_info == WSDisconnectInfo("remote", 4001, "enough", None)


@every_face
async def test_who_aborts_has_ended_it(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        assert handle.own.close_info is None
        handle.own.abort()
        handle.own.abort()
        with pytest.raises(End) as caught:
            await handle.client.recv()
        assert (caught.value.received, caught.value.sent, caught.value.cause) == (None, None, None)
        await handle.ended()
        assert handle.own.close_info == WSDisconnectInfo("local", 1006, "", None)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_abort_wakes_a_thread_that_waits():
    async with serve(echo) as server, connected("blocking", server.url) as handle:
        receiving = asyncio.ensure_future(handle.client.recv())
        while not (before := handle.own.stats).frames_sent:
            await asyncio.to_thread(handle.own.send, "x")
        assert await receiving == "x"
        receiving = asyncio.ensure_future(handle.client.recv())
        await asyncio.sleep(0)
        await asyncio.to_thread(handle.own.abort)
        with pytest.raises(End):
            await receiving
        assert before.reads >= 1


async def test_an_awaitable_connection_polls():
    async with awaitable() as (ws, far):
        assert ws.poll(0) is False
        far.sock.send(texts("a", "b"))
        assert ws.poll(1) is True
        assert [await ws.recv(), await ws.recv()] == ["a", "b"]
        with ws.cork():
            await ws.send("held back")
            assert ws.poll(0) is False  # and it is sent
            assert (await far.frames(1))[0].payload == b"held back"
        ws.abort()
        with pytest.raises(ConnectionClosed):
            ws.poll(1)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_blocking_cork_is_nested_and_pulled_by_who_waits():
    async with serve(one_after_the_other) as server, connected("blocking", server.url) as handle:

        def program():
            ws = handle.own
            with ws.cork():
                with ws.cork():
                    ws.send("a")
                ws.send("b")
            assert ws.recv() == "a b"
            with ws.cork():
                ws.send("c")
                ws.send("d")
                assert ws.recv() == "c d"  # it would wait without end
                ws.send("e")
                ws.pong()  # control frames do not wait
                assert ws.recv().split()[0] == "e"
            with suppress(ZeroDivisionError), ws.cork():
                ws.send("f")
                raise ZeroDivisionError
            assert ws.recv() == "f"
            cork = ws.cork()
            with pytest.raises(RuntimeError, match="more often"):
                cork.__exit__(None, None, None)
            with ws.cork():
                ws.send("g")
                ws.close()
            assert ws.recv() == "g"
            with pytest.raises(ConnectionClosed), ws.cork():
                ws.send("h")

        await handle.call(program)


# ---- options


async def tell_request(peer):
    await peer.accept()
    with suppress(EOFError, ConnectionError):
        await peer.answer_close()
    return peer.request.decode()


async def request_of(face, server, **options):
    async with connected(face, server.url, **options) as handle:
        await handle.client.close()
    return await server.result()


@every_face
async def test_headers_by_either_name(face):
    async with serve(tell_request) as server:
        for name in ("additional_headers", "extra_headers"):
            request = await request_of(
                face, server, **{name: {"X-Key": "1"}}, origin="http://a", user_agent_header="me/1"
            )
            assert "X-Key: 1\r\n" in request
            assert "Origin: http://a\r\n" in request
            assert "User-Agent: me/1\r\n" in request
        assert "User-Agent" not in await request_of(face, server, user_agent_header=None)


ALIASES = [
    ("ssl", "ssl_context", None),
    ("max_size", "max_frame_size", 5),
    ("additional_headers", "extra_headers", {}),
    ("logger", "logger_name", None),
    ("local_addr", "source_address", ("127.0.0.1", 0)),
]
CONNECT = {
    "listener": lambda url, **options: asyncio.run(ws_connect(WSListener, url, **options)),
    "awaitable": wsfast.connect,
    "blocking": wsfast.sync.client.connect,
}


@pytest.mark.parametrize("face", CONNECT)
@pytest.mark.parametrize(("one", "other", "value"), ALIASES)
def test_both_names_at_once_are_refused(face, one, other, value):
    with pytest.raises(TypeError, match=rf"{one}.*{other}|{other}.*{one}"):
        CONNECT[face]("ws://127.0.0.1:1/", **{one: value, other: value})


@pytest.mark.parametrize("first", ["ping_interval", "ping_timeout"])
@pytest.mark.parametrize(
    "second", ["enable_auto_ping", "auto_ping_idle_timeout", "auto_ping_reply_timeout", "auto_ping_strategy"]
)
def test_pings_are_asked_for_in_one_way(first, second):
    with pytest.raises(TypeError, match=f"{first}.*{second}"):
        CONNECT["listener"]("ws://127.0.0.1:1/", **{first: 1, second: 1})


@every_face
async def test_a_server_that_answers_no_ping_is_left_in_time(face):
    async def handler(peer):
        await peer.accept()
        got = await peer.frames_until_close()
        return got[0].opcode, got[-1].payload[:2]

    async with (
        serve(handler) as server,
        connected(face, server.url, ping_interval=0.01, ping_timeout=0.05, close_timeout=0.1) as handle,
    ):
        with pytest.raises(End) as caught:
            await handle.client.recv()
        assert isinstance(caught.value.cause, KeepaliveTimeout)
        assert await server.result() == (frames.PING, (1011).to_bytes(2, "big"))


async def fail_here(handle):
    if handle.face == "listener":
        handle.own.disconnect()
    elif handle.face == "awaitable":
        await handle.own.send(["a", 5])
    else:  # in another thread than that which waits for the PONG
        await asyncio.to_thread(handle.own.send, ["a", 5])


@every_face
@pytest.mark.parametrize("end", ["here", "violation", "close"])
async def test_a_ping_fails_as_soon_as_no_frame_is_looked_at_any_more(face, end):
    """The server neither answers nor closes the connection, and closing has no deadline."""

    async def handler(peer):
        await peer.accept()
        assert (await peer.frame()).opcode == frames.PING
        pinged.set()
        if end != "here":
            peer.send(
                frames.frame(frames.CONTINUATION, b"of nothing") if end == "violation" else frames.close(1000)
            )
        await over.wait()

    pinged, over = asyncio.Event(), asyncio.Event()
    async with (
        serve(handler) as server,
        connected(face, server.url, close_timeout=None, ping_interval=None) as handle,
    ):
        measuring = asyncio.ensure_future(handle.call(handle.own.measure_roundtrip_time, 1))
        await pinged.wait()
        failing = asyncio.ensure_future(fail_here(handle)) if end == "here" else None
        with pytest.raises(ConnectionClosed) as caught:
            await measuring
        codes = [
            None if close is None else int(close.code) for close in (caught.value.rcvd, caught.value.sent)
        ]
        if end == "close":
            assert codes == [1000, 1000]
        else:
            assert codes == [None, 1002 if end == "violation" else 1000 if face == "listener" else 1011]
        assert handle.own.close_info is None  # it has not ended
        over.set()
        handle.own.abort()
        if failing is not None:
            await asyncio.gather(failing, return_exceptions=True)


@every_face
async def test_max_size_is_that_of_a_message(face):
    async def handler(peer):
        await peer.accept()
        peer.send(frames.text("x" * 10) + frames.text("x" * 11))
        await peer.rest()

    async with serve(handler) as server, connected(face, server.url, max_size=10) as handle:
        assert await handle.client.recv() == "x" * 10
        with pytest.raises(End) as caught:
            await handle.client.recv()
        assert isinstance(caught.value.cause, PayloadTooBig)


@every_face
async def test_extensions_are_offered_and_agreed(face):
    async with websockets_echo(compress=True) as url:
        offer = PerMessageDeflate(server_no_context_takeover=True)
        async with connected(face, url, extensions=[offer]) as handle:
            assert handle.client.compression.server_no_context_takeover
            await handle.client.send("x" * 1000)
            assert await handle.client.recv() == "x" * 1000


@every_face
async def test_where_to_connect_can_be_another_place(face):
    async with serve(tell_request) as server:
        place = {"host": "127.0.0.1", "port": server.port, "family": socket.AF_INET}
        async with connected(face, "ws://example.invalid:9/path", **place) as handle:
            await handle.client.close()
        request = await server.result()
        assert request.startswith("GET /path HTTP/1.1\r\nHost: example.invalid:9\r\n")


@every_face
async def test_the_source_address_is_bound(face):
    async def handler(peer):
        await tell_request(peer)
        return peer.writer.get_extra_info("peername")[0]

    async with serve(handler) as server:
        for name in ("local_addr", "source_address"):
            assert await request_of(face, server, **{name: ("127.0.0.2", 0)}) == "127.0.0.2"


def socket_of(handle):
    if handle.face == "blocking":
        return handle.own.socket
    transport = handle.own.underlying_transport if handle.face == "listener" else handle.own.transport
    return transport.get_extra_info("socket")


@every_face
async def test_options_of_the_socket_are_set(face):
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)]
    async with serve(echo) as server:
        async with connected(
            face, server.url, tuning=Tuning(sockopts=options, quickack=True, max_read_size=7)
        ) as handle:
            sock = socket_of(handle)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            before = handle.own.stats
            await handle.client.send("x" * 68)
            assert await handle.client.recv() == "x" * 68
            after = handle.own.stats
            assert after.bytes_received - before.bytes_received == 70
            assert after.reads - before.reads >= 10
        with pytest.raises(OSError, match="setsockopt"):
            async with connected(face, server.url, tuning=Tuning(sockopts=[(socket.SOL_SOCKET, 999, 1)])):
                pass


@every_face
@pytest.mark.parametrize("delay", [0.01, 30])
async def test_happy_eyeballs(face, delay, monkeypatch):
    """The first address does not answer, the second refuses, and the third is the server's."""
    async with serve(tell_request) as server:
        silent = socket.socket()
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:  # its queue is full: who connects now waits
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        ports = [1, silent.getsockname()[1], server.port] if delay == 0.01 else [1, server.port]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *a, **k: found if host == "many" else real(host, *a, **k)
        )
        try:
            async with connected(face, "ws://many/", happy_eyeballs_delay=delay) as handle:
                await handle.client.close()
            assert "Host: many\r\n" in await server.result()
        finally:
            for sock in (silent, *fillers):
                sock.close()


def test_address_is_host_and_port_at_once():
    with pytest.raises(TypeError, match="address and host"):
        wsfast.sync.client.connect("ws://a/", address=("127.0.0.1", 1), host="b")


def test_help_shows_the_parameters_of_every_face():
    for connect in (ws_connect, wsfast.connect, wsfast.sync.client.connect):
        assert {"open_timeout", "proxy", "tuning", "network"} <= set(inspect.signature(connect).parameters)
    assert "happy_eyeballs_delay" in pydoc.render_doc(wsfast.sync.client.connect)


@every_face
async def test_headers_are_made_for_each_attempt(face):
    numbers = itertools.count(1)

    def headers():
        return {"X-Number": str(next(numbers))}

    async with serve(tell_request) as server:
        for name in ("additional_headers", "extra_headers"):
            request = await request_of(face, server, **{name: headers})
        assert "X-Number: 2\r\n" in request
        with pytest.raises(ValueError, match="control character"):
            await request_of(face, server, additional_headers=lambda: {"X": "a\r\nb"})
        with pytest.raises(TypeError, match="mapping or pairs"):
            await request_of(face, server, additional_headers=lambda: 5)
        with pytest.raises(ZeroDivisionError):
            await request_of(face, server, additional_headers=lambda: 1 / 0)


@pytest.mark.parametrize("face", ["listener", "awaitable"])
async def test_headers_are_made_by_a_coroutine_function(face):
    async def headers():
        await asyncio.sleep(0)
        return {"X-Number": str(next(numbers))}

    async def stall():
        await asyncio.get_running_loop().create_future()

    async def fail():
        raise TimeoutError("of the program")

    numbers = itertools.count(1)
    async with serve(tell_request) as server:
        for name in ("additional_headers", "extra_headers"):
            request = await request_of(face, server, **{name: headers})
        assert "X-Number: 2\r\n" in request
        with pytest.raises(TimeoutError, match="making the headers took too long: open_timeout is 0.01"):
            await request_of(face, server, additional_headers=stall, open_timeout=0.01)
        with pytest.raises(TimeoutError, match="of the program"):
            await request_of(face, server, additional_headers=fail)


def test_a_blocking_client_cannot_await_headers():
    async def headers():
        return {}

    with pytest.raises(TypeError, match="no event loop to await them in"):
        wsfast.sync.client.connect("ws://127.0.0.1:1/", additional_headers=headers)


async def test_a_loop_over_connections_makes_headers_anew():
    numbers = itertools.count(1)
    async with serve(tell_request) as server:
        connecting = wsfast.connect(
            server.url,
            additional_headers=lambda: {"X-Number": str(next(numbers))},
            reconnect_delays=lambda: itertools.repeat(0),
        )
        async with aclosing(connecting.__aiter__()) as connections:
            async for ws in connections:
                await ws.close()
                if "X-Number: 3\r\n" in await server.result():
                    break
        connecting.additional_headers = lambda: {"X-Number": "changed"}
        async with connecting as ws:
            assert ws.request.headers["X-Number"] == "changed"
            assert (ws.request.method, ws.request.protocol) == ("GET", "HTTP/1.1")


@every_face
async def test_round_trips_are_measured(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        times = await handle.call(handle.own.measure_roundtrip_time, 3)
        assert len(times) == 3
        assert all(0 < seconds < 10 for seconds in times)
        assert await handle.call(handle.own.measure_roundtrip_time, 0) == []
        handle.own.abort()
        with pytest.raises(ConnectionClosed):
            await handle.call(handle.own.measure_roundtrip_time, 1)


def test_backoff_as_websockets_has_it():
    delays = wsfast.asyncio.client.backoff(1, 2, 10, 3)
    assert 0 <= next(delays) <= 1
    assert list(itertools.islice(delays, 4)) == [2, 6, 10, 10]
    assert wsfast.sync.client.backoff is wsfast.asyncio.client.backoff


async def test_an_iteration_is_closed_as_a_generator_is():
    async with awaitable() as (ws, far):
        far.sock.send(texts("a", "b"))
        async with aclosing(ws.__aiter__()) as messages:
            assert await messages.__anext__() == "a"
        with pytest.raises(StopAsyncIteration):
            await messages.__anext__()
        assert [message async for message in messages] == []
        assert await ws.recv() == "b"


def test_picows_pair_of_a_response_and_a_listener():
    reply, no = (wsfast.UpgradeResponse(b"HTTP/1.1", status, "", b"") for status in (101, 404))
    pair = wsfast.WSUpgradeResponseWithListener(reply, WSListener())
    assert (pair.response, type(pair.listener)) == (reply, WSListener)
    for response, listener in ((reply, None), (no, WSListener())):
        with pytest.raises(ValueError, match="listener"):
            wsfast.WSUpgradeResponseWithListener(response, listener)


# ---- exceptions


@every_face
async def test_websockets_except_clauses_catch_what_is_raised(face):
    theirs = websockets.exceptions
    async with serve(echo) as server, connected(face, server.url) as handle:
        await handle.client.close()
        send = handle.own.send
        arguments = (wsfast.WSMsgType.TEXT, "x") if face == "listener" else ("x",)
        for caught in (theirs.ConnectionClosedOK, theirs.ConnectionClosed, wsfast.ConnectionClosedOK):
            with pytest.raises(caught) as raised:
                await handle.call(send, *arguments)
            exc = raised.value
            assert not isinstance(exc, (theirs.ConnectionClosedError, wsfast.ConnectionClosedError))
        assert (exc.code, exc.reason, exc.rcvd.code, exc.rcvd_then_sent) == (1000, "", 1000, False)
        assert str(exc) == "sent 1000 (OK); then received 1000 (OK)"
        assert (type(exc).__module__, type(exc).__qualname__) == ("wsfast.exceptions", "ConnectionClosedOK")
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            pickled = pickle.dumps(exc, protocol)
            assert b"wsfast.exceptions" in pickled
            assert b"websockets" not in pickled
            again = pickle.loads(pickled)
            assert type(again) is type(exc)
            assert (again.args, str(again)) == (exc.args, str(exc))


@every_face
async def test_websockets_except_clauses_catch_failures_of_the_opening(face):
    theirs = websockets.exceptions

    async def refuse(peer):
        await peer.read_request()
        peer.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno")

    async with serve(refuse) as server:
        for caught in (theirs.InvalidStatus, theirs.InvalidHandshake, theirs.WebSocketException):
            with pytest.raises(caught) as raised:
                async with connected(face, server.url):
                    pass
        response = raised.value.response
        assert (response.status_code, response.reason_phrase, response.body) == (503, "Busy", b"no")
        assert response.headers["Retry-After"] == "7"
    with pytest.raises(theirs.InvalidURI) as raised:
        async with connected(face, "http://a/"):
            pass
    assert raised.value.uri == "http://a/"


def test_without_websockets_there_is_no_trace_of_it():
    program = """
import sys, wsfast
from wsfast._common.closing import connection_closed
from wsfast._common.websockets_exceptions import look_for_websockets
look_for_websockets()
assert type(connection_closed(None, None, None)) is wsfast.ConnectionClosedError
assert not any(name.startswith("websockets") for name in sys.modules)
import websockets  # which imports its exceptions when they are first asked for
look_for_websockets()
try:
    raise connection_closed(None, None, None)
except websockets.ConnectionClosedError as exc:
    assert isinstance(exc, wsfast.ConnectionClosedError)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


@pytest.mark.parametrize("found", ["None", "types.ModuleType('websockets')", "MagicMock()"])
def test_another_module_of_the_name_of_websockets(found):
    program = f"""
import sys, types, wsfast
from unittest.mock import MagicMock
from wsfast._common.closing import connection_closed
from wsfast._common.websockets_exceptions import look_for_websockets
sys.modules["websockets"] = {found}
if {found} is not None:
    sys.modules["websockets.exceptions"] = {found}
look_for_websockets()
assert type(connection_closed(None, None, None)) is wsfast.ConnectionClosedError
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_no_python_runs_where_a_signal_would_leave_a_blocking_connection_corked():
    async with serve(one_after_the_other) as server, connected("blocking", server.url) as handle:
        ran = []

        def program():
            cork = handle.own.cork()
            sys.settrace(lambda frame, event, argument: ran.append(frame.f_code.co_filename))
            try:
                with cork:
                    pass
            finally:
                sys.settrace(None)

        await handle.call(program)
        assert ran == []


# ---- threads


@pytest.mark.parametrize("face", ["listener", "awaitable"])
async def test_another_thread_sends(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        kind = (wsfast.WSMsgType.TEXT,) if face == "listener" else ()
        sent = await asyncio.to_thread(handle.own.send_threadsafe, *kind, "x")
        assert await asyncio.wrap_future(sent) is None
        assert await handle.client.recv() == "x"
        buffer = bytearray(b"abc")
        kind = (wsfast.WSMsgType.BINARY,) if face == "listener" else ()
        sent = handle.own.send_threadsafe(*kind, buffer)
        buffer[:] = b"..."
        await asyncio.wrap_future(sent)
        assert await handle.client.recv() == b"abc"
        wrong = handle.own.send_threadsafe(*kind, 5)
        with pytest.raises(TypeError):
            await asyncio.wrap_future(wrong)
        dropped = handle.own.send_threadsafe(*kind, b"not sent")
        assert dropped.cancel()
        handle.own.abort()
        with pytest.raises(ConnectionClosed):
            await asyncio.wrap_future(handle.own.send_threadsafe(*kind, b"x"))


@pytest.mark.parametrize("face", ["listener", "awaitable"])
def test_a_loop_that_is_closed_sends_nothing(face):
    async def connect(url):
        async with connected(face, url) as handle:
            return handle.own

    def script(peer):
        peer.accept()
        peer.rest()

    with scripted(script) as server:
        own = asyncio.run(connect(server.url))
    with pytest.raises(RuntimeError, match="closed"):
        own.send_threadsafe(*((wsfast.WSMsgType.TEXT,) if face == "listener" else ()), "x")


def test_a_loop_that_is_closed_before_it_sends_says_so(loop):
    wire = Wire(loop)
    sent = wire.transport.send_threadsafe(wsfast.WSMsgType.TEXT, "x")
    loop.close()
    with pytest.raises(RuntimeError, match="closed before"):
        sent.result(0)


@pytest.mark.parametrize("began", [False, True])
def test_a_loop_that_is_closed_while_an_awaitable_connection_sends_says_so(began):
    async def never():
        await blocked

    loop = asyncio.new_event_loop()
    blocked = loop.create_future()  # which keeps the task alive, as a connection does
    ended = run_soon(loop, never)
    if began:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with pytest.raises(RuntimeError, match="closed before"):
        ended.result(0)
    blocked.get_loop().set_exception_handler(
        lambda *_: None
    )  # a task is left over, which is the test's purpose


@every_face
async def test_every_round_trip_is_in_the_histogram(face):
    histogram = HdrHistogram(1, 60_000_000_000, 3)

    async def handler(peer):
        await peer.accept()
        for _ in range(3):
            peer.send(frames.frame(frames.PONG, (await peer.frame()).payload))
        peer.send(frames.text("done"))
        await peer.rest()

    async with (
        serve(handler) as server,
        connected(
            face, server.url, ping_interval=0.02, ping_timeout=1, tuning=Tuning(ping_histogram=histogram)
        ) as handle,
    ):
        assert await handle.client.recv() == "done"
    assert histogram.get_total_count() == 3
    assert histogram.get_min_value() > 1000


# ---- logging


@every_face
async def test_frames_are_logged_as_websockets_logs_them(face, caplog):
    async def handler(peer):
        await peer.accept()
        await peer.frame()
        peer.send(frames.frame(frames.PING, "are you there?") + frames.text("hello"))
        peer.send(
            frames.binary(bytes(range(256))) + frames.frame(frames.PONG, b"\xff") + frames.text("x" * 100)
        )
        await peer.answer_close()

    caplog.set_level(logging.DEBUG, "wsfast.test")
    async with serve(handler) as server, connected(face, server.url, logger="test") as handle:
        await handle.client.send("ü")
        for _ in range(3):
            await handle.client.recv()
        await handle.client.close()
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    opening = [line.split(":")[0] for line in logged[:11]]
    assert opening == [
        "> GET / HTTP/1.1",
        "> Host",
        "> Upgrade",
        "> Connection",
        "> Sec-WebSocket-Key",
        "> Sec-WebSocket-Version",
        "> User-Agent",
        "< HTTP/1.1 101 Switching Protocols",
        "< Upgrade",
        "< Connection",
        "< Sec-WebSocket-Accept",
    ]
    logged = logged[len(opening) :]
    assert logged == [
        "> TEXT 'ü' [2 bytes]",
        "< PING 'are you there?' [text, 14 bytes]",
        "> PONG 'are you there?' [text, 14 bytes]",
        "< TEXT 'hello' [5 bytes]",
        f"< BINARY {bytes(range(16)).hex(' ')} ... f8 f9 fa fb fc fd fe ff [256 bytes]",
        "< PONG ff [binary, 1 byte]",
        f"< TEXT '{'x' * 47}...{'x' * 23}' [100 bytes]",
        "> CLOSE 1000 (OK) [2 bytes]",
        "< CLOSE 1000 (OK) [2 bytes]",
    ]


@every_face
async def test_the_opening_is_logged_without_secrets(face, caplog):
    async def refuse(peer):
        await peer.read_request()
        peer.send(
            b"HTTP/1.1 418 Tea\x80pot\r\nSet-Cookie: hidden=1\r\nX-Note: hidden\r\nServer: nginx\r\n"
            b"Location: ws://me:hidden@a/;jwt=hidden?page=2&access_token=hidden#id_token=hidden\r\n"
            b"Content-Length: 4\r\n\r\nbody"
        )

    caplog.set_level(logging.DEBUG, "wsfast.test")
    headers = {"Authorization": "hidden", "COOKIE": "hidden", "X-API-Key": "hidden", "X-Ticket": "hidden"}
    subprotocols = ["chat", "base64url.bearer.hidden"]
    async with serve(refuse) as server:
        url = (
            server.url.replace("//", "//user:hidden@")
            + "x?symbol=btc&Signature=hidden&b&sig=hidden&%74oken=hidden"
        )
        options = {"additional_headers": headers, "subprotocols": subprotocols, "logger": "test"}
        with pytest.raises(wsfast.InvalidStatus):
            async with connected(face, url, **options):
                pass
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert "hidden" not in caplog.text
    assert logged[0] == "> GET /x?*** HTTP/1.1"
    for line in (
        "> Authorization: ***",
        "> COOKIE: ***",
        "> X-Ticket: ***",
        "> Sec-WebSocket-Protocol: chat, ***",
    ):
        assert line in logged
    assert logged[-7:] == [
        "< HTTP/1.1 418 Tea\\x80pot",
        "< Set-Cookie: ***",
        "< X-Note: ***",
        "< Server: nginx",
        "< Location: ***",
        "< Content-Length: 4",
        "< [body] (4 bytes)",
    ]


def test_what_is_said_to_a_proxy_is_logged_without_secrets(caplog):
    caplog.set_level(logging.DEBUG, "wsfast.test")
    route = Route(Routing(parse_uri("ws://a/"), None, "http://user:hidden@proxy:1"))
    route.log(logging.getLogger("wsfast.test"))
    tunnel = route.new_tunnel("a")
    assert tunnel.feed(b"HTTP/1.1 200 Fine\r\n\r\n") is not None
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert logged[0] == "> CONNECT a:80 HTTP/1.1"
    assert logged[-2:] == ["> Proxy-Authorization: ***", "< HTTP/1.1 200 Fine"]


@compares
@pytest.mark.parametrize("size", [0, 1, 5, 70, 120, 300, 1000])
@pytest.mark.parametrize("opcode", [0, 1, 2, 9, 10])
@pytest.mark.parametrize("fin", [True, False])
def test_a_frame_is_described_as_websockets_describes_it(opcode, size, fin):
    if opcode & 8 and (size > 125 or not fin):
        return
    for payload in (b"a" * size, bytes(i * 7 % 256 for i in range(size)), "€".encode() * (size // 3)):
        theirs = websockets.frames.Frame(websockets.frames.Opcode(opcode), payload, fin)
        assert describe(fin << 7 | opcode, payload) == str(theirs)


def test_a_close_frame_is_described_as_websockets_describes_it():
    for payload in (b"", b"\x03\xe8", b"\x0f\xa1why", b"\x03\xe8\xff"):
        theirs = websockets.frames.Frame(websockets.frames.Opcode.CLOSE, payload)
        assert describe(0x88, payload) == str(theirs)


@every_face
async def test_nothing_is_logged_when_it_is_off(face, caplog):
    caplog.set_level(logging.INFO, "wsfast.test")
    async with serve(echo) as server, connected(face, server.url, logger="test") as handle:
        caplog.set_level(logging.DEBUG, "wsfast.test")  # what counts is when the connection was made
        await handle.client.send("x")
        await handle.client.recv()
    assert not [record for record in caplog.records if record.levelno == logging.DEBUG]

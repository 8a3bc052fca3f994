"""Opening: parameters, rejections, deadlines in each phase, and servers that break off."""

import functools
import os
import socket
import threading

import pytest
from support.blocking import echo, in_thread, scripted
from support.certificates import WAYS, client_context, server_context

from wsfast.exceptions import (
    InvalidHeader,
    InvalidMessage,
    InvalidStatus,
    InvalidUpgrade,
    InvalidURI,
    NegotiationError,
)
from wsfast.sync.client import ClientConnection, connect, reconnect, unix_connect, unix_reconnect


def refused(reply, error, **options):
    """The result of connecting to a server that sends `reply`, a function of the reply that would be right."""

    def script(peer):
        peer.read_request()
        peer.send(reply(peer.reply()))

    with scripted(script) as server, pytest.raises(error) as raised:
        connect(server.url, **options)
    return raised.value


def test_a_rejection_has_status_headers_and_body():
    reply = b"HTTP/1.1 520 Odd\r\nContent-Length: 4\r\nX-Why: because\r\n\r\nbody"
    error = refused(lambda right: reply, InvalidStatus)
    assert (error.response.status_code, error.response.reason_phrase) == (520, "Odd")
    assert (error.response.headers["x-why"], error.response.body) == ("because", b"body")


def test_a_rejection_whose_body_ends_with_the_connection():
    error = refused(lambda right: b"HTTP/1.1 403 No\r\n\r\nbody", InvalidStatus)
    assert error.response.body == b"body"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (b"Upgrade: websocket", b"Upgrade: h2c", InvalidUpgrade),
        (b"Connection: Upgrade", b"Connection: close", InvalidUpgrade),
        (b"Sec-WebSocket-Accept: ", b"Sec-WebSocket-Accept: x", InvalidHeader),
        (
            b"Switching Protocols\r\n",
            b"Switching Protocols\r\nSec-WebSocket-Protocol: x\r\n",
            NegotiationError,
        ),
        (
            b"Switching Protocols\r\n",
            b"Switching Protocols\r\nSec-WebSocket-Extensions: x\r\n",
            NegotiationError,
        ),
        (b"HTTP/1.1", b"SSH-2.0", InvalidMessage),
        (b"HTTP/1.1", b"HTTP/1.0", InvalidMessage),
    ],
)
def test_wrong_replies(old, new, error):
    refused(lambda right: right.replace(old, new), error)


def test_right_replies_of_odd_servers():
    for old, new in ((b" Switching Protocols", b" null"), (b"Upgrade: websocket", b"UPGRADE: WebSocket")):

        def script(peer, old=old, new=new):
            peer.read_request()
            peer.send(peer.reply().replace(old, new))
            peer.answer_close()

        with scripted(script) as server, connect(server.url, subprotocols=["a"]) as ws:
            assert ws.subprotocol is None


def test_a_server_that_closes_or_resets_during_the_opening():
    def closes(peer):
        peer.read_request()

    def closes_half_way(peer):
        peer.read_request()
        peer.send(peer.reply()[:50])

    for script in (closes, closes_half_way):
        with scripted(script) as server, pytest.raises(InvalidMessage) as raised:
            connect(server.url)
        assert isinstance(raised.value.__cause__, EOFError)

    def resets(peer):
        peer.read_request()
        peer.reset()

    with scripted(resets) as server, pytest.raises(ConnectionResetError):
        connect(server.url)


def test_wrong_arguments_are_refused_before_anything_is_sent():
    for uri in ("http://localhost", "ws://", "localhost", "ws://localhost/#fragment"):
        with pytest.raises(InvalidURI):
            connect(uri)
    uri = "ws://127.0.0.1:1"
    wrong = {
        "compression": "snappy",
        "max_size": -1,
        "max_queue": -1,
        "ping_interval": 0,
        "ping_timeout": -1,
        "close_timeout": -1,
        "open_timeout": -1,
        "ssl": client_context(),
        "server_hostname": "localhost",
        "client_cert": "file",
        "subprotocols": ["a b"],
        "additional_headers": {"X": "a\r\nb"},
        "origin": "\n",
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match="."):
            connect(uri, **{name: value})
    with pytest.raises(TypeError, match="nonsense"):
        connect(uri, nonsense=1)


def test_defaults_of_websockets_can_be_given():
    with (
        scripted(echo) as server,
        connect(
            server.url, compression=None, proxy=True, extensions=None, max_queue=(16, 4), legacy=True
        ) as ws,
    ):
        ws.send("x")
        assert ws.recv() == "x"


def test_credentials_and_hosts():
    def script(peer):
        peer.accept()
        peer.answer_close()
        return peer.request

    with (
        scripted(script) as server,
        connect(server.url.replace("//", "//user:pass@"), user_agent_header=None),
    ):
        pass
    request = server.result().decode()
    assert f"Host: 127.0.0.1:{server.port}\r\n" in request
    assert "Authorization: Basic dXNlcjpwYXNz\r\n" in request
    assert "User-Agent" not in request


def test_address_and_source_address():
    with (
        scripted(lambda peer: echo(peer) or peer.sock.getpeername()) as server,
        connect(
            "ws://example.com/", address=("127.0.0.1", server.port), source_address=("127.0.0.1", 0)
        ) as ws,
    ):
        assert ws.request.headers["Host"] == "example.com"


def test_nobody_listens():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            connect(f"ws://127.0.0.1:{sock.getsockname()[1]}/")
    with pytest.raises(OSError, match="."):
        connect("ws://host.invalid/")


def test_a_socket_of_the_users():
    with scripted(echo) as server:
        sock = socket.create_connection(("127.0.0.1", server.port))
        with connect("ws://localhost/", sock=sock) as ws:
            ws.send("x")
            assert ws.recv() == "x"
        assert sock.fileno() == -1
    with pytest.raises(ValueError, match="closed"):
        connect("ws://localhost/", sock=sock)


def test_unix_sockets(tmp_path):
    import websockets.asyncio.server

    path = str(tmp_path / "socket")

    async def handler(connection):
        async for message in connection:
            await connection.send(message)

    for context in (None, server_context()):
        with in_thread(functools.partial(websockets.asyncio.server.unix_serve, handler, path, ssl=context)):
            options = {"ssl": client_context()} if context else {}
            with unix_connect(path, **options) as ws:
                ws.send("x")
                assert ws.recv() == "x"
                assert ws.remote_address == path
            with unix_reconnect(path, **options) as ws:
                assert ws.request.headers["Host"] == "localhost"
        if os.path.exists(path):
            os.unlink(path)
    with pytest.raises(ValueError, match="path"):
        unix_connect()


def test_a_subclass():
    class Mine(ClientConnection):
        pass

    with scripted(echo) as server, connect(server.url, create_connection=Mine) as ws:
        assert type(ws) is Mine


def test_a_connection_that_the_program_never_got_is_not_called_unclosed():
    """Its object may end before connect() aborts it, as when a signal handler raises just after it was made."""

    def interrupted(*args, **kwargs):
        ClientConnection(*args, **kwargs)
        raise KeyboardInterrupt

    def script(peer):
        peer.accept()
        return peer.rest()

    with scripted(script) as server, pytest.raises(KeyboardInterrupt):
        connect(server.url, create_connection=interrupted)
    assert server.result() == []


def test_a_connection_that_is_forgotten_warns_and_is_closed():
    def script(peer):
        peer.accept()
        return peer.rest()

    with scripted(script) as server:
        ws = connect(server.url)
        with pytest.warns(ResourceWarning, match="unclosed connection"):
            del ws
    assert server.result() == []


# ---- reconnecting


def test_reconnect():
    def script(peer):
        if len(server.results) == 1:
            return peer.read_request() and peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        peer.accept()
        peer.answer_close()
        return None

    delays = []

    def no_delays():
        while True:
            delays.append(0)
            yield 0

    opened = 0
    with scripted(script, connections=3) as server:
        for ws in reconnect(server.url, reconnect_delays=no_delays):
            opened += 1
            assert ws.state.name == "OPEN"
            if opened == 2:
                ws.close()
                break
    assert (opened, len(delays)) == (2, 2)


def test_reconnect_raises_what_is_fatal():
    def script(peer):
        peer.read_request()
        peer.send(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as server, pytest.raises(InvalidStatus):
        next(iter(reconnect(server.url)))

    def verdict(exc):
        raise KeyError(type(exc).__name__)

    with scripted(script) as server, pytest.raises(KeyError, match="InvalidStatus"):
        next(iter(reconnect(server.url, process_exception=verdict)))


def test_reconnect_is_a_context_manager_and_legacy_false_gives_it():
    with scripted(echo) as server:
        connecter = connect(server.url, legacy=False)
        assert isinstance(connecter, reconnect)
        with connecter as ws:
            with pytest.raises(RuntimeError, match="reentrant"):
                connecter.__enter__()
            ws.send("x")
            assert ws.recv() == "x"


# ---- deadlines


def test_tcp_that_stalls():
    """A listening socket whose queue is full answers nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = []
        try:
            for _ in range(3):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(address)
            with pytest.raises(TimeoutError):
                connect(f"ws://127.0.0.1:{address[1]}/", open_timeout=0.1)
        finally:
            for sock in waiting:
                sock.close()


@pytest.mark.parametrize("tls", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("phase", ["before", "half"])
def test_the_opening_stalls(tls, phase):
    done = threading.Event()

    def script(peer):
        if phase == "half":
            peer.read_request()
            peer.send(peer.reply()[:30])
        done.wait()

    with scripted(script, ssl_context=server_context() if tls and phase == "half" else None) as server:
        uri = server.url.replace("ws://", "wss://") if tls and phase == "before" else server.url
        options = {"ssl": tls()} if tls else {}
        with pytest.raises(TimeoutError):
            connect(uri, open_timeout=0.1, **options)
        done.set()


def test_a_rejection_whose_body_stalls():
    done = threading.Event()

    def script(peer):
        peer.read_request()
        peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nbeginning")
        done.wait()

    with scripted(script) as server:
        with pytest.raises(InvalidStatus) as raised:
            connect(server.url, open_timeout=2)
        done.set()
    assert raised.value.response.body == b"beginning"

"""What wsfast tells a newcomer who makes a mistake."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.faces import FACES, connected
from support.servers import echo, serve

import wsfast
from wsfast import TLS, WSListener, WSMsgType, ws_connect
from wsfast.exceptions import InvalidMessage

URL = "ws://127.0.0.1:1/"


@pytest.mark.parametrize("name", ["send", "recv", "close", "ping", "state"])
def test_a_forgotten_await_is_told(name):
    connecting = wsfast.connect(URL)
    with pytest.raises(AttributeError, match=rf"no '{name}'.*`ws = await connect\(.*`async with connect\("):
        getattr(connecting, name)


def test_other_attributes_are_missing_as_always():
    connecting = wsfast.connect(URL)
    with pytest.raises(AttributeError, match="'connect' object has no attribute 'sent'"):
        connecting.sent  # noqa: B018
    with pytest.raises(AttributeError, match="max_size is an argument of connect"):
        connecting.max_size  # noqa: B018
    assert connecting.uri == URL


def test_where_a_module_or_a_name_is_is_told():
    program = "import wsfast, wsfast.sync\nfor part in {}: print(part())"
    parts = "(lambda: wsfast.supervisor, lambda: wsfast.sync.connect, lambda: wsfast.nothing)"
    told = ["write `import wsfast.supervisor`", "it is in wsfast.sync.client", "no attribute 'nothing'"]
    for part, text in zip(parts[1:-1].split(", "), told, strict=True):
        done = subprocess.run(
            [sys.executable, "-c", program.format(f"({part},)")], capture_output=True, text=True, check=False
        )
        assert done.stderr.rstrip().endswith(text)


def test_with_in_place_of_async_with_is_told():
    with (
        ExitStack() as stack,
        pytest.raises(TypeError, match=r"`async with connect\(\.\.\.\)`, or use wsfast\.sync"),
    ):
        stack.enter_context(wsfast.connect(URL))
    with (
        ExitStack() as stack,
        pytest.raises(TypeError, match=r"`async with supervise\(\.\.\.\)`, or use wsfast"),
    ):
        stack.enter_context(wsfast.supervise(URL))


async def test_mistakes_with_a_supervisor_are_told():
    with pytest.raises(TypeError, match="'max_silense'. Did you mean 'max_silence'"):
        wsfast.supervise(URL, max_silense=1)
    async with wsfast.supervise(URL) as feed:
        with pytest.raises(TypeError, match=r"not dict: json\.dumps\(message\) makes a str"):
            feed.subscribe({"op": "subscribe"})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: wsfast.Tuning(busypoll=1), r"Tuning\(\) .*'busypoll'\. Did you mean 'busy_poll'"),
        (lambda: wsfast.Network(resolvr=1), r"Network\(\) .*'resolvr'\. Did you mean 'resolver'"),
        (lambda: TLS(cafil="a"), r"TLS\(\) .*'cafil'\. Did you mean 'cafile'"),
        (lambda: wsfast.connect(URL, timeout=1), "Did you mean 'open_timeout'"),
        (lambda: wsfast.connect(URL, headers={}), "Did you mean 'additional_headers'"),
        (lambda: wsfast.connect(URL, verify=False), "Did you mean 'ssl'"),
        (lambda: wsfast.supervise(URL, WSListener, max_queue=1), "max_queue is .* without a listener"),
        (
            lambda: wsfast.supervise(URL, enable_auto_ping=True),
            "enable_auto_ping is .* with a listener",
        ),
    ],
)
def test_a_wrong_name_of_an_option_is_told_with_the_right_one(call, told):
    with pytest.raises(TypeError, match=told):
        call()


async def test_a_feed_without_a_server_says_so_in_the_log(caplog):
    """At a level that Python shows without any configuration."""
    async with wsfast.supervise(URL):
        while not caplog.records:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert caplog.records[0].levelname == "WARNING"
    assert "Connection refused: 127.0.0.1 port 1" in caplog.text


@pytest.mark.parametrize("face", FACES)
async def test_a_host_that_does_not_exist_is_named(face, monkeypatch):
    def look_up(host, *anything, flags=0, **named):
        if host == "nowhere.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found(host, *anything, flags=flags, **named)

    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(socket.gaierror, match="not known: nowhere.example") as caught:
        async with FACES[face]("ws://nowhere.example/"):
            pass
    assert caught.value.errno == socket.EAI_NONAME


@pytest.mark.parametrize("messages", [[{"op": "subscribe"}], [5], ["\ud800"]])
@pytest.mark.parametrize("face", ["awaitable", "blocking"])
async def test_a_first_fragment_that_cannot_be_sent_ends_nothing(face, messages):
    async with serve(echo) as server, connected(face, server.url) as handle:
        ws = handle.own

        async def run(method, argument):
            return await (method(argument) if face == "awaitable" else asyncio.to_thread(method, argument))

        with pytest.raises((TypeError, UnicodeEncodeError)):
            await run(ws.send, messages)
        await run(ws.send, ["te", "xt"])
        assert await (ws.recv() if face == "awaitable" else asyncio.to_thread(ws.recv)) == "text"


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("message", [{"op": "subscribe"}, ["BTC"]])
async def test_an_object_for_json_is_told(face, message):
    async with serve(echo) as server, connected(face, server.url) as handle:
        if face == "listener":
            with pytest.raises(
                TypeError, match=r"str or bytes-like, not (dict|list): json\.dumps\(message\) makes"
            ):
                handle.own.send(WSMsgType.TEXT, message)
            return
        ws = handle.own
        results = [lambda: ws.send_many([message])]
        if isinstance(message, dict):  # a list is a message in fragments
            results.append(lambda: ws.send(message))
        for send in results:
            with pytest.raises(
                TypeError, match=r"bytes-like.*, not (dict|list): json\.dumps\(message\) makes a str"
            ):
                await send() if face == "awaitable" else await asyncio.to_thread(send)


async def test_recv_on_the_loop_of_another_thread_is_told_how():
    async with serve(echo) as server, wsfast.connect(server.url) as ws:

        async def receive():
            await ws.recv()

        with pytest.raises(
            RuntimeError, match=r"recv\(\) called from a wrong thread: use asyncio\.run_corout"
        ):
            await asyncio.to_thread(asyncio.run, receive())


def listener(*names):
    return type("Mine", (WSListener,), {name: lambda self, *args: None for name in names})


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["on_frame"], "never calls Mine.on_frame: is on_ws_frame meant?"),
        (["on_mesage"], "never calls Mine.on_mesage: is on_ws_message meant?"),
        (["on_message", "on_ws_frame"], None),  # its own
        (["on_disconnect", "on_ws_frame"], "never calls Mine.on_disconnect: is on_ws_disconnected meant?"),
        (
            ["on_ws_open", "on_ws_frame"],
            "never calls Mine.on_ws_open: the callbacks are on_ws_connected, on_ws",
        ),
        (["on_trade"], "never calls Mine.on_trade: the callbacks are"),  # so nothing receives
        (["on_trade", "on_ws_frame"], None),
        (["on_trade", "on_ws_message"], None),
        (["on_ws_connected", "pause_writing", "_on_frame"], None),
    ],
)
async def test_a_misspelt_callback_is_told_once(names, told):
    mine = listener(*names)
    async with serve(echo) as server:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                transport, _ = await ws_connect(mine, server.url)
                transport.abort()
                await transport.wait_disconnected()
    assert len(caught) == (told is not None)
    for warning in caught:
        assert told in str(warning.message)
        assert (warning.filename, warning.lineno) == (__file__, listener.__code__.co_firstlineno + 1)


async def test_a_warning_that_raises_refuses_the_listener():
    async with serve(echo) as server:
        mine = listener("on_frame")
        for _ in range(2):
            with pytest.raises(UserWarning, match="is on_ws_frame meant"):
                await ws_connect(mine, server.url)


@pytest.mark.parametrize(
    "settings", [{"cafile": "{}"}, {"client_cert": "{}"}, {"client_cert": (__file__, "{}")}]
)
def test_errors_about_files_name_them(settings, tmp_path):
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.touch()
    for path, kind in (missing, OSError), (empty, ssl.SSLError):
        given = {
            name: tuple(text.format(path) for text in value)
            if isinstance(value, tuple)
            else value.format(path)
            for name, value in settings.items()
        }
        with pytest.raises(kind, match=re.escape(str(path))):
            TLS(**given).context()


async def closes(reader, writer):
    await reader.read(1)
    writer.close()


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("scheme", "kind", "told"),
    [
        ("ws", InvalidMessage, r"closed before the server's reply began: is it a wss:// server\?$"),
        ("wss", ssl.SSLError, r"closed the connection during the TLS handshake: is it a ws:// server\?"),
    ],
)
async def test_a_server_that_sends_nothing_may_be_of_the_other_scheme(face, scheme, kind, told):
    async with await asyncio.start_server(closes, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(kind, match=told):
            async with FACES[face](f"{scheme}://127.0.0.1:{port}/"):
                pass


@pytest.mark.checkout
def test_no_hint_names_what_only_an_index_of_packages_has():
    """No version is published: `pip install wsfast[cli]` finds nothing. README.md alone says what it will be."""
    root = Path(__file__).parents[2]
    for path in [*root.glob("wsfast/**/*.py"), *root.glob("docs/**/*.md")]:
        assert not re.search(r"pip install '?wsfast\b", path.read_text()), path

"""One script, run with websockets' sync client and with ours, against the same server: the same results.

A script returns what it saw: messages, exceptions with their CLOSE frames, codes. Where ours is meant to differ there
is no script here, but a line in docs/sync.md.
"""

import inspect
import re
import threading

import pytest
import websockets.exceptions
import websockets.sync.client
from support import HUNG
from support.blocking import echo, scripted
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, binary, close, frame, header, text

import wsfast.exceptions
import wsfast.sync.client

if not hasattr(websockets.sync.client, "reconnect"):
    pytest.skip("compares with websockets 17.1 or newer, which needs CPython 3.11", allow_module_level=True)


@pytest.fixture(autouse=True)
def threads_of_websockets_end():
    """It does not wait for the thread of its pings when a connection is closed."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(HUNG)


LIBRARIES = {
    "websockets": (
        websockets.sync.client,
        websockets.exceptions,
        {"compression": None, "proxy": None, "legacy": True},
    ),
    "wsfast": (wsfast.sync.client, wsfast.exceptions, {}),
}


class Library:
    def __init__(self, name):
        self.client, self.exceptions, self.options = LIBRARIES[name]

    def connect(self, url, **options):
        return self.client.connect(url, **{**self.options, **options})


def caught(function):
    """The result or the exception of a call, in words that both libraries share."""
    try:
        return function()
    except Exception as exc:
        known = {"rcvd", "sent", "rcvd_then_sent"}
        closes = {name: str(getattr(exc, name)) for name in known if hasattr(exc, name)}
        return type(exc).__name__, closes, type(exc.__cause__).__name__


SERVERS = {
    "echo": echo,
    "says two and closes": lambda peer: (
        peer.accept(),
        peer.send(text("one") + binary(b"two") + close(1001, "bye")),
        peer.close_frame(),
    ),
    "fragments": lambda peer: (
        peer.accept(),
        peer.send(
            frame(TEXT, "é".encode()[:1], fin=False)
            + frame(PING, b"")
            + frame(CONTINUATION, "é".encode()[1:])
        ),
        peer.send(frame(BINARY, b"a", fin=False) + frame(CONTINUATION, b"b")),
        peer.answer_close(),
    ),
    "vanishes": lambda peer: (peer.accept(), peer.send(text("last"))),
    "breaks the rules": lambda peer: (peer.accept(), peer.send(frame(TEXT, b"x", rsv=4)), peer.close_frame()),
    "sends too much": lambda peer: (peer.accept(), peer.send(header(BINARY, 2**20 + 1)), peer.close_frame()),
    "is not text": lambda peer: (peer.accept(), peer.send(text(b"\xff")), peer.close_frame()),
    "closes with an error": lambda peer: (peer.accept(), peer.send(close(1011, "oops")), peer.close_frame()),
    "closes empty": lambda peer: (peer.accept(), peer.send(close()), peer.close_frame()),
    "refuses": lambda peer: (
        peer.read_request(),
        peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nbody"),
    ),
    "is no server": lambda peer: (peer.read_request(),),
    "pings": lambda peer: (
        peer.accept(),
        peer.send(frame(PING, b"hello")),
        peer.frame() == (PONG, b"hello", True, 0) and peer.send(text("right")),
        peer.answer_close(),
    ),
}


def everything(library, url):
    with library.connect(url) as ws:
        seen = [caught(ws.recv), caught(ws.recv), caught(ws.recv), caught(lambda: ws.send("x"))]
        return seen, ws.close_code, ws.close_reason, ws.state.name


def until_closed(library, url):
    with library.connect(url) as ws:
        got = [caught(lambda: list(ws))]
        return got, ws.close_code, ws.close_reason, ws.wait_closed(1), ws.subprotocol


def exchange(library, url):
    with library.connect(url) as ws:
        ws.send("text")
        ws.send(b"bytes")
        ws.send(["a", "b"])
        ws.send([b"a", memoryview(b"b")])
        ws.send(b"text", text=True)
        ws.send("bytes", text=False)
        ws.send([])
        seen = [ws.recv() for _ in range(6)]
        ws.send("é")
        seen.append(ws.recv(decode=False))
        seen.append(caught(lambda: ws.recv(timeout=0)))
        seen.append(caught(lambda: ws.recv(timeout=0.01)))
        seen.append(ws.ping(b"x").wait(HUNG))
        seen += [caught(lambda: ws.send({})), caught(lambda: ws.send(1)), caught(lambda: ws.ping(1))]
        ws.close(3000, "done")
        seen += [caught(ws.recv), caught(lambda: ws.send("x")), caught(ws.ping), caught(ws.pong), ws.close()]
        return seen, ws.close_code, ws.close_reason


def leaves_by_exception(library, url):
    with pytest.raises(KeyError), library.connect(url) as ws:
        raise KeyError
    return ws.close_code, caught(ws.recv)


def streams(library, url):
    with library.connect(url) as ws:
        return [caught(lambda: list(ws.recv_streaming())) for _ in range(2)]


def receives_after_closing(library, url):
    with library.connect(url) as ws:
        first = ws.recv()
        ws.close()
        return first, caught(ws.recv), caught(ws.recv), caught(ws.recv)


def opens(library, url):
    return caught(lambda: library.connect(url))


CASES = [
    ("echo", exchange),
    ("echo", leaves_by_exception),
    ("says two and closes", everything),
    ("says two and closes", until_closed),
    ("says two and closes", receives_after_closing),
    ("fragments", streams),
    ("vanishes", everything),
    ("vanishes", until_closed),
    ("breaks the rules", everything),
    ("breaks the rules", until_closed),
    ("sends too much", everything),
    ("is not text", everything),
    ("closes with an error", everything),
    ("closes empty", everything),
    ("closes empty", until_closed),
    ("refuses", opens),
    ("is no server", opens),
    ("pings", lambda library, url: everything_of_one(library, url)),
]


def everything_of_one(library, url):
    with library.connect(url) as ws:
        return ws.recv()


# Our names for what websockets tells by the builtin, or by no, exception.
SAME = {"InvalidText": "UnicodeDecodeError"}


@pytest.mark.parametrize(("server", "script"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_same(server, script):
    seen = {}
    for name in LIBRARIES:
        with scripted(SERVERS[server]) as served:
            seen[name] = script(Library(name), served.url)
    ours = repr(seen["wsfast"])
    for mine, theirs in SAME.items():
        ours = ours.replace(mine, theirs)
    assert reasons_apart(ours) == reasons_apart(repr(seen["websockets"]))


def reasons_apart(text):
    """Without the words for a violation, which are each library's own; a code may be a member of an IntEnum."""
    text = re.sub(r"<CloseCode\.\w+: (\d+)>", r"\1", text)
    text = re.sub(r"(1002 \(protocol error\)|1009 \(message too big\)) [^;]*?(?=;|['\"][,})])", r"\1", text)
    return text.replace('"', "'")


def test_parameters():
    """Every parameter of websockets is one of ours, with the same default."""

    def parameters(function):
        return {
            name: p.default for name, p in inspect.signature(function).parameters.items() if name != "kwargs"
        }

    theirs = parameters(websockets.sync.client.reconnect)
    ours = parameters(wsfast.sync.client.reconnect)
    assert set(theirs) <= set(ours)
    shown = inspect.signature(wsfast.sync.client.connect).parameters
    assert list(shown) == ["uri", "legacy", *list(ours)[1:], "kwargs"]
    different = {name for name, default in theirs.items() if ours[name] != default}
    assert different == {"user_agent_header", "process_exception", "reconnect_delays", "proxy_ssl"}


def test_methods():
    theirs = websockets.sync.client.ClientConnection
    ours = wsfast.sync.client.ClientConnection
    for name in ("recv", "recv_streaming", "send", "close", "wait_closed", "ping", "pong"):
        wanted = inspect.signature(getattr(theirs, name)).parameters
        there = dict(inspect.signature(getattr(ours, name)).parameters)
        there.pop("compress", None)  # more than websockets has
        assert [(p.name, p.kind) for p in wanted.values()] == [(p.name, p.kind) for p in there.values()]
        assert [p.default for p in wanted.values()] == [p.default for p in there.values()]
    for name in (
        "__enter__",
        "__exit__",
        "__iter__",
        "local_address",
        "remote_address",
        "state",
        "subprotocol",
    ):
        assert hasattr(theirs, name)


QUICK_START = """
from {library}.sync.client import connect

def hello():
    with connect("{url}"{options}) as websocket:
        websocket.send("Hello world!")
        message = websocket.recv()
        print(f"Received: {{message}}")

hello()
"""


@pytest.mark.parametrize("library", ["websockets", "wsfast"])
def test_the_quick_start_of_websockets_runs_with_the_name_changed(library, capsys):
    with scripted(echo) as server:
        options = ", compression=None" if library == "websockets" else ""
        exec(QUICK_START.format(library=library, url=server.url, options=options), {})
    assert capsys.readouterr().out == "Received: Hello world!\n"

"""The types of the public names, as a user's type checker sees them. `make lint` compares stubs and modules."""

import ast
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wsfast
from wsfast._common.option_names import names_of
from wsfast._opening import arguments
from wsfast.asyncio import client as awaitable
from wsfast.supervisor.arguments import OwnOptions
from wsfast.sync import client as blocking

SITE = Path(wsfast.__file__).parents[1]  # where wsfast is installed

# Each line that ends in "# wrong" must be refused, and no other.
PROGRAM = """\
import array
import socket
import ssl
from typing import Optional

import wsfast
import wsfast.sync
from wsfast.asyncio import client as awaitable
from wsfast.sync import client as blocking
from wsfast import TLS, Network, Tuning, WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

class Listener(WSListener):
    own = 5

    def on_ws_connected(self, transport: WSTransport) -> None:
        transport.send(WSMsgType.TEXT, "text")
        transport.send(1, b"bytes", fin=False)
        transport.send(WSMsgType.BINARY, array.array("d", [1.0]))
        transport.send(WSMsgType.PING, None)
        transport.send(WSMsgType.TEXT, 5)  # wrong
        transport.send("text", b"")  # wrong
        transport.send_many(WSMsgType.TEXT, ["a", b"b"])
        transport.send_many(WSMsgType.TEXT, 5)  # wrong
        with transport.cork():
            transport.send_ping()
            transport.send_pong(b"pong")
        transport.send_close(WSCloseCode.OK, "reason")
        transport.send_close(4001)
        transport.send_close("4001")  # wrong
        transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(20), 14)
        transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytes(20), 14)  # wrong
        transport.subprotocol = "none"  # wrong

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        opcode: WSMsgType = frame.msg_type
        payload: bytes = frame.get_payload_as_bytes()
        text: str = frame.get_payload_as_utf8_text()
        view: memoryview = frame.get_payload_as_memoryview()
        same = memoryview(frame)
        reason: Optional[str] = frame.get_close_reason()
        size: str = frame.payload_size  # wrong

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        info = transport.close_info
        assert info is not None
        code: int = info.code
        cause: Optional[BaseException] = info.cause

class Frame(WSFrame):  # wrong
    pass

def make_plain() -> WSListener:
    return WSListener()

async def make_headers() -> dict[str, str]:
    return {}

async def main() -> None:
    transport, listener = await ws_connect(Listener, "ws://example.com/", open_timeout=None)
    own: int = listener.own
    info = transport.last_message
    assert info is not None
    nanoseconds: int = info.recv_time_ns
    _, plain = await ws_connect(make_plain, "ws://example.com/", additional_headers=make_headers)
    plain.own  # wrong
    _, both = await ws_connect(lambda request, response: Listener(), "ws://example.com/", extra_headers={"a": "b"})
    both.own
    await ws_connect(Listener, b"ws://example.com/")  # wrong
    await ws_connect(Listener, "ws://example.com/", close_timeout="1")  # wrong
    times: list[float] = await transport.measure_roundtrip_time(rounds=3)
    size: int = transport.write_buffer_size
    transport.set_write_buffer_limits(high=1024)
    await transport.wait_disconnected()
    kernel: str = wsfast.mask_kernel

class Takes(WSListener):
    payload_type = bytes

    def on_ws_message(self, transport: WSTransport, msg_type: WSMsgType, payload: bytes) -> None: ...

class TakesNothing(WSListener):
    payload_type = dict  # wrong

async def listens() -> None:
    await ws_connect(Takes, "ws://a/", max_size=None, ssl=True, proto=6)
    await ws_connect(Takes, "ws://a/", max_frame_sise=5)  # wrong
    await ws_connect(Takes, "ws://a/", max_size="5")  # wrong
    await ws_connect(Takes, "ws://a/", tuning=Tuning(busy_poll=0.1, write_policy="gather"), network=Network(netrc=True))
    await ws_connect(Takes, "ws://a/", busy_poll=0.1)  # wrong
    await ws_connect(Takes, "ws://a/", tuning=Tuning(busy_pol=0.1))  # wrong
    await ws_connect(Takes, "ws://a/", tuning=Tuning(write_policy="later"))  # wrong
    await ws_connect(Takes, "ws://a/", network=Network(resolver=5))  # wrong
    await ws_connect(Takes, "ws://a/", network=Tuning())  # wrong
    ws_connect(Takes, "ws://a/")  # wrong
    transport, listener = ws_connect(Takes, "ws://a/")  # wrong

class Mine(awaitable.ClientConnection):
    pass

async def awaits() -> None:
    async with awaitable.connect("ws://a/", create_connection=Mine, sock=socket.socket()) as ws:
        text: str = await ws.recv(decode=True)
        view: memoryview = await ws.recv(decode=memoryview)
        (await ws.recv(decode=False)).encode()  # wrong
        ws.recv().upper()  # wrong
        ws.send("text")  # wrong
    async for ws in wsfast.connect("ws://a/", ssl=ssl.create_default_context(), family=socket.AF_INET):
        async for message in ws:
            message.upper()
    ws = await awaitable.unix_connect("path", max_size=5, extra_headers={"a": "b"})
    awaitable.connect("ws://a/", max_queu=5)  # wrong
    awaitable.connect("ws://a/", max_queue="5")  # wrong
    awaitable.connect("ws://a/", interleave="5")  # wrong
    awaitable.unix_connect("path", max_queu=5)  # wrong
    awaitable.unix_connect("path", overflow="drop_oldst")  # wrong
    awaitable.connect("ws://a/").send("text")  # wrong

def blocks() -> None:
    with blocking.connect("ws://a/", max_size=None, ssl_context=TLS(), port=5, legacy=True) as ws:
        text: str = ws.recv(decode=True)
        data: bytes = ws.recv(1.0, decode=False)
        ws.recv().upper()
        ws.recv(decode=False).encode()  # wrong
        ws.rcev()  # wrong
    for ws in blocking.connect("ws://a/", legacy=False, source_address=("::", 0)):
        ws.ping().wait()
    for ws in blocking.unix_connect(path="path", uri="ws://b/", legacy=False):
        ws.close()
    blocking.unix_connect("path", compression=None).send(["te", "xt"])
    blocking.connect("ws://a/", max_sise=5)  # wrong
    blocking.connect("ws://a/", open_timeout="5")  # wrong
    blocking.unix_connect("path", pign_interval=5)  # wrong
    blocking.unix_connect("path", ping_interval="5")  # wrong
    blocking.connect("ws://a/", legacy=False).recv()  # wrong
    with awaitable.connect("ws://a/"):  # wrong
        pass

async def supervises() -> None:
    async with wsfast.supervise("ws://a/", max_silence=30, max_queue=5, tuning=Tuning(busy_poll=0.1)) as feed:
        feed.subscribe("book", key="book")
        feed.subscribe("book", kye="book")  # wrong
        (await feed.recv()).nonsense  # wrong
        (await feed.recv(decode=True)).encode()
        async for message in feed:
            message.nonsense  # wrong
    wsfast.supervise(["ws://a/", "ws://b/"], Takes, max_frame_size=None, enable_auto_ping=True, key=len)
    wsfast.supervise("ws://a/", listener_factory=Listener, window=(5, 1.0))
    wsfast.supervise("ws://a/", max_silense=30)  # wrong
    wsfast.supervise("ws://a/", max_silence="30")  # wrong
    wsfast.supervise("ws://a/", max_queu=5)  # wrong
    wsfast.supervise("ws://a/", max_queue="5")  # wrong
    wsfast.supervise("ws://a/", enable_auto_ping=True)  # wrong
    wsfast.supervise("ws://a/", Takes, max_queue=5)  # wrong
    wsfast.supervise("ws://a/", Takes, max_silense=30)  # wrong
    wsfast.supervise("ws://a/", TakesNothing(), max_silence=30)  # wrong
    with wsfast.sync.supervise("ws://a/", max_silence=30, ping_interval=None) as blocking_feed:
        blocking_feed.recv(timeout=1)
        blocking_feed.recv(decode=False).decode()
        blocking_feed.recv().nonsense  # wrong
        blocking_feed.subscribe("book", kye="book")  # wrong
        for blocking_message in blocking_feed:
            blocking_message.nonsense  # wrong
    wsfast.sync.supervise("ws://a/", max_silense=30)  # wrong
    wsfast.sync.supervise("ws://a/", window=5)  # wrong
    wsfast.sync.supervise("ws://a/", listener_factory=Takes)  # wrong
"""


def by_mypy(program):
    pytest.importorskip("mypy")
    options = ["--strict", "--output", "json", "--cache-dir", program.parent / "cache"]
    for line in output_of("mypy", *options, program).splitlines():
        found = json.loads(line)
        yield found["file"], found["severity"], found["line"], found["message"]


def by_pyright(program):
    pytest.importorskip("pyright")
    if shutil.which("node") is None:
        pytest.skip("pyright needs node")
    found = json.loads(output_of("pyright", "--outputjson", "--pythonpath", sys.executable, program))
    for one in found["generalDiagnostics"]:
        yield one["file"], one["severity"], one["range"]["start"]["line"] + 1, one["message"]


def output_of(checker, *arguments):
    """wsfast is installed, not found beside."""
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(command, cwd=arguments[-1].parent, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_what_type_checkers_accept(check, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = list(check(program))
    assert {Path(file).name for file, *_ in found} == {"program.py"}
    refused = {number for _, severity, number, _ in found if severity == "error"}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert refused == wrong, "\n".join(f"{number}: {text}" for _, _, number, text in found)


@pytest.mark.parametrize(
    ("function", "others", "options"),
    [
        (wsfast.ws_connect, arguments.ListenersOthers, arguments.ListenersOptions),
        (awaitable.connect, arguments.AwaitablesOthers, arguments.AwaitablesOptions),
        (blocking.reconnect, arguments.BlockingOthers, arguments.BlockingOptions),
    ],
)
def test_type_checkers_know_all_options(function, others, options):
    names = names_of(function)
    assert others.__optional_keys__ == names - inspect.signature(function).parameters.keys()
    assert options.__optional_keys__ == names - {"uri", "url", "ws_listener_factory"}


def test_type_checkers_know_all_options_of_the_supervisor():
    shown = inspect.signature(wsfast.supervise).parameters.keys()
    assert OwnOptions.__optional_keys__ == shown - {"url", "listener_factory", "options"}


def stubbed(cls):
    """The public members that the stub of a class has."""
    stub = ast.parse((SITE / f"{cls.__module__.replace('.', '/')}.pyi").read_text())
    (body,) = (node.body for node in stub.body if getattr(node, "name", "") == cls.__name__)
    return [node.name for node in body if getattr(node, "name", "_")[0] != "_"]


@pytest.mark.parametrize("cls", [wsfast.WSTransport, wsfast.WSListener, wsfast.WSFrame])
def test_public_members_are_described(cls):
    # C attributes cannot have a docstring; that of the class has them.
    in_docstring = {name for name in stubbed(cls) if f".. attribute:: {name}" in cls.__doc__}
    assert [
        name for name in stubbed(cls) if not getattr(cls, name).__doc__ and name not in in_docstring
    ] == []

"""What a newcomer sees at the prompt: signatures, reprs, the version, and what wrong calls are told."""

from __future__ import annotations

import ast
import inspect
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from support.faces import FACES, connected
from support.servers import echo, serve

import wsfast
import wsfast._common.connection
import wsfast.asyncio.client
import wsfast.deflate
import wsfast.sync.client
import wsfast.tls
from wsfast import UpgradeResponse, WSListener, WSUpgradeRequest, ws_connect

SITE = Path(wsfast.__file__).parents[1]  # where wsfast is installed
MODULES = (wsfast, wsfast.asyncio.client, wsfast.sync.client, wsfast.deflate, wsfast.tls)


def public():
    """Every public function, and every public method of wsfast's own classes."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, type):
                if callable(value):
                    yield f"{module.__name__}.{name}", value
                continue
            for base in value.__mro__:
                if base.__module__.startswith("wsfast"):
                    for member, found in vars(base).items():
                        if member[0] != "_" and callable(found) and not isinstance(found, type):
                            yield f"{value.__name__}.{member}", found


def test_every_method_tells_its_signature():
    methods = dict(public())
    assert len(methods) > 80
    for name, method in methods.items():
        assert inspect.signature(method), name
    assert list(inspect.signature(wsfast.WSTransport.send_close).parameters) == [
        "self",
        "close_code",
        "close_message",
    ]
    assert not wsfast.WSTransport.send_close.__doc__.startswith("send_close(")


@pytest.mark.parametrize(
    "function",
    [wsfast.ws_connect, wsfast.connect, wsfast.sync.client.connect, wsfast.supervise],
    ids=lambda function: f"{function.__module__}.{function.__name__}",
)
def test_every_option_is_described(function):
    described = re.findall(r"\w+", " ".join(re.findall(r":param ([\w, ]+):", function.__doc__)))
    options = inspect.signature(function).parameters.keys() - {"kwargs", "options"}
    assert sorted(options - {*described}) == []
    assert sorted({*described} - options - {"kwargs", "options"}) == []


@pytest.mark.parametrize("cls", [wsfast.Tuning, wsfast.Network, wsfast.TLS])
def test_every_field_of_an_object_of_options_is_described(cls):
    """By a string behind it, which the reference shows."""
    (body,) = ast.parse(inspect.getsource(cls)).body
    fields = {at: node.target.id for at, node in enumerate(body.body) if isinstance(node, ast.AnnAssign)}
    assert fields.keys()
    strings = {
        at for at, node in enumerate(body.body) if isinstance(getattr(node, "value", None), ast.Constant)
    }
    strings -= fields.keys()  # a default
    assert [name for at, name in fields.items() if at + 1 not in strings] == []


def test_there_is_a_version():
    assert wsfast.__version__ == distribution("wsfast").version


def test_type_checkers_find_an_editable_install():
    """They read .pth files, and run no hooks for imports."""
    hooks = [path.name for path in distribution("wsfast").files or () if path.name.startswith("__editable__")]
    for name in hooks:
        assert re.fullmatch(r"__editable__\.wsfast-[\d.]+\.pth", name)
        (path,) = (path for path in distribution("wsfast").files if path.name == name)
        assert Path(path.locate().read_text().strip()) == SITE


def test_reprs():
    request = WSUpgradeRequest(b"GET /ws?key=hidden HTTP/1.1\r\nHost: a\r\n\r\n")
    response = UpgradeResponse(b"HTTP/1.1", 404, "Not Found", b"")
    assert repr(request) == "<UpgradeRequest GET to a>"
    assert repr(wsfast._common.connection.Request(request)) == "<Request GET to a>"
    assert repr(response) == "<UpgradeResponse 404 'Not Found'>"
    both = wsfast.WSUpgradeResponseWithListener(response, None)
    assert repr(both) == "<WSUpgradeResponseWithListener <UpgradeResponse 404 'Not Found'> None>"
    info = wsfast.WSMessageInfo(wsfast.WSMsgType.TEXT, False, True, 5, None)
    assert repr(info).startswith("WSMessageInfo(msg_type=<WSMsgType.TEXT: 1>, compressed=False")
    assert repr(wsfast.WSStats(*range(11))).startswith("WSStats(frames_received=0, bytes_received=1")


@pytest.mark.parametrize("face", FACES)
async def test_connections_say_what_they_are(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        assert re.match(r"<(WSTransport open|ClientConnection OPEN) .*>", repr(handle.own))


async def test_swapped_arguments_are_told_by_their_names():
    with pytest.raises(TypeError, match="ws_listener_factory, the first argument, must be callable, not str"):
        await ws_connect("ws://127.0.0.1:1/", WSListener)
    with pytest.raises(TypeError, match="url, the second argument, must be str, not int"):
        await ws_connect(WSListener, 5)
    async with serve(echo) as server, connected("listener", server.url) as handle:
        with pytest.raises(TypeError, match="msg_type must be a WSMsgType, not 'text'"):
            handle.own.send("text", wsfast.WSMsgType.TEXT)


def callbacks():
    for name, value in vars(WSListener).items():
        if name[0] != "_" and callable(value) and not isinstance(value, type):
            yield name


@pytest.mark.parametrize("name", [*callbacks()])
async def test_a_coroutine_function_is_no_callback(name):
    async def callback(self, *args):
        """It would never run."""

    async def generator(self, *args):
        yield

    def with_its_own():
        listener = Own()
        setattr(listener, name, callback)
        return listener

    class Own(WSListener):
        pass

    async with serve(echo) as server:
        transport, _ = await ws_connect(Own, server.url)
        transport.abort()
        await transport.wait_disconnected()
        for factory in (
            type("Async", (WSListener,), {name: callback}),
            type("Generates", (WSListener,), {name: generator}),
            with_its_own,
        ):
            with pytest.raises(TypeError, match=rf"\w+\.{name} is a coroutine function"):
                await ws_connect(factory, server.url)


def test_the_callbacks_are_those_of_the_stub():
    stub = ast.parse((SITE / "wsfast" / "_engine" / "transport.pyi").read_text())
    (listener,) = (node for node in stub.body if getattr(node, "name", "") == "WSListener")
    assert set(callbacks()) == {node.name for node in listener.body if isinstance(node, ast.FunctionDef)}

"""The types of the public names, as a user's type checker sees them. `make lint` compares stubs and modules."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wsfast

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]

# Each line that ends in "# wrong" must be refused, and no other.
PROGRAM = """\
import array
from typing import Optional

import wsfast
from wsfast import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

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
"""


def test_what_type_checkers_accept(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            tmp_path / "cache",
            program,
        ],
        cwd=tmp_path,  # wsfast is installed, not found beside
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    errors = [
        line for line in done.stdout.splitlines() if line.startswith("program.py:") and ": error:" in line
    ]
    refused = {int(line.split(":")[1]) for line in errors}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert refused == wrong, done.stdout


def stubbed(cls):
    """The public members that the stubs of a class and its bases have."""
    for base in cls.__mro__:
        if base.__module__.startswith("wsfast."):
            stub = ast.parse((ROOT / f"{base.__module__.replace('.', '/')}.pyi").read_text())
            (body,) = (node.body for node in stub.body if getattr(node, "name", "") == base.__name__)
            yield from (node.name for node in body if getattr(node, "name", "_")[0] != "_")


@pytest.mark.parametrize("cls", [wsfast.WSTransport, wsfast.WSListener, wsfast.WSFrame])
def test_public_members_are_described(cls):
    # C attributes cannot have a docstring; that of the class has them.
    in_docstring = {name for name in stubbed(cls) if f".. attribute:: {name}" in cls.__doc__}
    assert [
        name for name in stubbed(cls) if not getattr(cls, name).__doc__ and name not in in_docstring
    ] == []

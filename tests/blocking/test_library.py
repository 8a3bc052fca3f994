"""The crate as it is built: its functions are those declared, its system calls few, and nothing is left behind."""

import gc
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from support.blocking import echo, in_thread, scripted
from support.certificates import WAYS, server_context
from support.memory import until_flat
from support.servers import websockets_echo

from wsfast._common.connection import State
from wsfast._rust import _native
from wsfast.sync import client
from wsfast.sync.client import connect
from wsfast.sync.connection import ClientConnection

ROOT = Path(__file__).parents[2]
CRATE = ROOT / "wsfast" / "_rust"


def functions():
    declarations = re.sub(r"/\*.*?\*/", "", (CRATE / "wsfast_rust.h").read_text(), flags=re.DOTALL)
    return set(re.findall(r"\b(wst_\w+)\(", declarations))


@pytest.mark.checkout
def test_declarations_are_what_the_library_exports():
    library = ROOT / "build" / "cargo" / "release" / "libwsfast_rust.a"
    if shutil.which("readelf") is None or not library.exists():
        pytest.skip("needs readelf, and the library in build/cargo/release")
    # Not nm: it takes what link-time optimisation made for something else, and lists nothing.
    command = ["readelf", "--symbols", "--wide", library]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    exported = set(re.findall(r"GLOBAL +\w+ +\d+ (wst_\w+)$", listed, re.MULTILINE))
    assert exported == functions()


@pytest.mark.checkout
def test_everything_declared_is_there():
    assert len(functions()) > 20
    for name in functions():
        assert callable(getattr(_native.lib, name))
    for state in State:
        assert getattr(_native.lib, f"WST_STATE_{state.name}") == state


@pytest.mark.checkout
def test_versions_are_locked():
    manifest, lock = (CRATE / "Cargo.toml").read_text(), (CRATE / "Cargo.lock").read_text()
    assert re.search(r'^version = "(.*)"', manifest, re.MULTILINE)[1] == version("wsfast")
    for name in ("tungstenite", "rustls", "ring"):
        assert f'name = "{name}"\n' in lock
    assert "aws-lc" not in lock
    assert "openssl" not in lock  # that of Python is used, and never linked


SCRIPT = """
import ssl, sys
from wsfast import TLS
from wsfast.sync.client import connect
kinds = {"openssl": ssl.create_default_context, "rustls": TLS}
context = kinds[sys.argv[2]](cafile=sys.argv[3]) if sys.argv[2:] else None
with connect(sys.argv[1], ssl=context) as ws:
    for size in (512, 512, 4096):
        ws.send(bytes(size))
        assert ws.recv() == bytes(size)
    sys.stderr.write("begin")
    for _ in range(100):
        ws.send(bytes(512))
        ws.recv()
    sys.stderr.write("end")
"""


def system_calls(url, *arguments):
    """The system calls of 100 round trips."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    command = [
        strace,
        "-f",
        "-e",
        "trace=all",
        "-o",
        "/dev/stdout",
        sys.executable,
        "-c",
        SCRIPT,
        url,
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    calls = done.stdout.partition('"begin"')[2].partition('"end"')[0]
    names = re.findall(r"^\d+ +(\w+)\(", calls, re.MULTILINE)
    return [name for name in names if name != "write"]


def test_a_round_trip_is_one_send_and_one_recv():
    with scripted(echo) as server:
        calls = system_calls(server.url)
    assert calls.count("sendto") == calls.count("recvfrom") == 100
    # Mask keys are bought in bulk, and the time-out is set anew with every half of the time until the next ping.
    assert len(calls) - 200 <= 5
    assert set(calls) <= {"sendto", "recvfrom", "setsockopt", "getrandom"}


@pytest.mark.parametrize("kind", ["openssl", "rustls"])
def test_a_round_trip_over_tls_is_one_send_and_one_recv(kind, tmp_path):
    from support.certificates import authority

    ca = tmp_path / "ca.pem"
    authority().cert_pem.write_to_path(str(ca))
    with scripted(echo, ssl_context=server_context()) as server:
        calls = system_calls(server.url, kind, str(ca))
    assert calls.count("sendto") == calls.count("recvfrom") == 100


@pytest.mark.parametrize("tls", WAYS.values(), ids=WAYS)
def test_a_thousand_connections_leave_nothing(tls):
    """Memory, descriptors and objects are flat. WSFAST_CONNECTIONS=10000 makes it a longer run."""
    count = int(os.environ.get("WSFAST_CONNECTIONS", 1000 if not tls else 200))
    context = tls() if tls else None

    def opened(number):
        for _ in range(number):
            with connect(url, ssl=context) as ws:
                ws.send(b"x" * 2000)
                assert ws.recv() == b"x" * 2000
                if number % 2:
                    ws.ping()

    with in_thread(lambda: websockets_echo(server_context() if tls else None)) as url:
        opened(100)
        gc.collect()
        objects = len(gc.get_objects())
        kept = [
            ws for ws in gc.get_objects() if type(ws) is ClientConnection
        ]  # by the traceback of a failed test
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in until_flat(4 << 20):
            opened(count)
        assert len(gc.get_objects()) - objects < 500
        assert len([ws for ws in gc.get_objects() if type(ws) is ClientConnection]) == len(kept)
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 3  # the server's, of the last connections


def test_failed_openings_leave_nothing():
    def refuses(peer):
        peer.read_request()
        peer.send(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")

    count = 200
    with scripted(refuses, connections=count) as server:
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(count):
            with pytest.raises(Exception, match="400"):
                connect(server.url)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


def test_public_names():
    assert set(client.__all__) >= {
        "connect",
        "unix_connect",
        "reconnect",
        "unix_reconnect",
        "ClientConnection",
    }
    for name in client.__all__:
        assert getattr(client, name)

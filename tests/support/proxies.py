"""Proxies and an echo behind them, in a thread with a loop of its own: for blocking clients and for any loop's.

Each proxy checks what it is asked and counts what goes through it. It misbehaves on request: at a phase it stalls,
drops or resets the connection, or talks rubbish. Phases are ``request`` (of the tunnel), ``header`` (half of the reply
was sent), ``body`` (of a refusal) and, of SOCKS5, ``greeting`` and ``auth``.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import ipaddress
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from support import HUNG, proxies

HOST = "127.0.0.1"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Behaviour:
    """What a proxy does. `names`: what it resolves, to where; all else must be an address."""

    auth: tuple[str, str] | None = None
    piece: int = 0  # bytes of a reply per write, 0 for all
    extra: bytes = b""  # behind the reply that accepts, in the same write
    refusal: bytes = b""  # an HTTP reply
    code: int = 0  # of a SOCKS reply that refuses
    stall: str = ""  # phases
    drop: str = ""
    reset: str = ""
    rubbish: str = ""
    garbage: bytes = b"\x00\xff rubbish \r\n\r\n" * 4
    names: dict[str, tuple[str, int]] = field(default_factory=dict)


class Dropped(Exception):  # noqa: N818
    """The proxy is done with this connection."""


class Served:
    """A running server, as its tests see it."""

    def __init__(self, scheme: str, behaviour: Behaviour) -> None:
        self.scheme = scheme
        self.behaviour = behaviour
        self.port = 0
        self.accepted = 0
        self.asked: list[str] = []  # the servers, as ``host:port``
        self.requests: list[bytes] = []
        self.up = 0  # bytes relayed to the server
        self.down = 0
        self.failures: list[BaseException] = []
        self.stalled = threading.Event()
        self.writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        userinfo = ":".join(self.behaviour.auth) + "@" if self.behaviour.auth else ""
        return f"{self.scheme}://{userinfo}{HOST}:{self.port}"


Handler = Callable[[Served, Streams], Awaitable[None]]


@contextmanager
def serve(
    handler: Handler,
    scheme: str,
    behaviour: Behaviour,
    context: ssl.SSLContext | None = None,
    host: str = HOST,
) -> Iterator[Served]:
    """Run `handler` for each connection; what it raises is raised at the end."""
    served = Served(scheme, behaviour)
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.accepted += 1
        served.writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(served, (reader, writer))
        except (Dropped, OSError, EOFError, asyncio.CancelledError):
            pass
        except Exception as exc:
            served.failures.append(exc)
        finally:
            tasks.discard(task)
            writer.close()

    async def start() -> asyncio.AbstractServer:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = await asyncio.start_server(one, host, 0, family=family, ssl=context, limit=1 << 20)
        served.port = server.sockets[0].getsockname()[1]
        return server

    async def stop(server: asyncio.AbstractServer) -> None:
        for _ in range(5):
            await asyncio.sleep(
                0
            )  # a connection that is being accepted gets its handler, which is then ended
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for writer in served.writers:
            writer.transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_forever, name=f"{scheme} server")
    thread.start()
    try:
        server = _in(loop, start())
        try:
            yield served
        finally:
            _in(loop, stop(server))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    if served.failures:
        raise served.failures[0]


def _in(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(HUNG)


# What every proxy does.


async def _phase(served: Served, streams: Streams, name: str) -> None:
    """Misbehave, if it is time to."""
    behaviour, writer = served.behaviour, streams[1]
    if behaviour.stall == name:
        await writer.drain()
        served.stalled.set()
        await asyncio.Event().wait()
    if behaviour.rubbish == name:
        writer.write(behaviour.garbage)
        raise Dropped
    if behaviour.reset == name:
        if name == "request":
            await streams[0].read(
                1
            )  # the client has connected: before that, its connect() could fail by the reset
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        raise Dropped
    if behaviour.drop == name:
        raise Dropped


async def _reply(served: Served, streams: Streams, data: bytes, tail: bytes = b"") -> None:
    writer, piece = streams[1], served.behaviour.piece
    if not piece:
        writer.write(data + tail)
        return
    for at in range(0, len(data), piece):
        writer.write(data[at : at + piece])
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(tail)


async def _half(served: Served, streams: Streams, data: bytes, name: str = "header") -> None:
    behaviour = served.behaviour
    if name in (behaviour.stall, behaviour.drop, behaviour.reset, behaviour.rubbish):
        streams[1].write(data[: len(data) // 2])
        await streams[1].drain()
        await _phase(served, streams, name)


async def _open(served: Served, host: str, port: int) -> Streams:
    served.asked.append(f"{host}:{port}")
    if host in served.behaviour.names:
        host, port = served.behaviour.names[host]
    ipaddress.ip_address(host)
    streams = await asyncio.open_connection(host, port)
    served.writers.add(streams[1])
    return streams


async def _relay(served: Served, client: Streams, server: Streams) -> None:
    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, name: str) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                setattr(served, name, getattr(served, name) + len(data))
                sink.write(data)
                await sink.drain()
        sink.close()

    try:
        await asyncio.gather(pump(client[0], server[1], "up"), pump(server[0], client[1], "down"))
    finally:
        server[1].transport.abort()


# HTTP


@contextmanager
def http(context: ssl.SSLContext | None = None, host: str = HOST, **behaviour: Any) -> Iterator[Served]:
    """A CONNECT proxy; with a context, an https one."""
    with serve(_http, "https" if context else "http", Behaviour(**behaviour), context, host) as served:
        yield served


async def _http(served: Served, streams: Streams) -> None:
    behaviour = served.behaviour
    await _phase(served, streams, "request")
    request = await streams[0].readuntil(b"\r\n\r\n")
    served.requests.append(request)
    line, *lines = request.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value for name, value in (text.split(": ", 1) for text in lines)}
    method, target, version = line.split(" ")
    assert (method, version, headers["host"]) == ("CONNECT", "HTTP/1.1", target)
    if behaviour.auth is not None:
        expected = "Basic " + base64.b64encode(":".join(behaviour.auth).encode()).decode()
        if headers.get("proxy-authorization") != expected:
            reply = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n"
            await _reply(served, streams, reply + b"Content-Length: 6\r\n\r\ndenied")
            return
    else:
        assert "proxy-authorization" not in headers
    if behaviour.refusal:
        await _half(served, streams, behaviour.refusal, "body")
        await _reply(served, streams, behaviour.refusal)
        return
    name, _, port = target.rpartition(":")
    server = await _open(served, name.strip("[]"), int(port))
    reply = b"HTTP/1.1 200 Connection established\r\nVia: a test\r\n\r\n"
    await _half(served, streams, reply)
    await _reply(served, streams, reply, behaviour.extra)
    await _relay(served, streams, server)


# SOCKS


@contextmanager
def socks(scheme: str, host: str = HOST, **behaviour: Any) -> Iterator[Served]:
    """A proxy of SOCKS4 and 4a, or of SOCKS5; the scheme is what its URL has."""
    handler = _socks4 if scheme in ("socks4", "socks4a") else _socks5
    with serve(handler, scheme, Behaviour(**behaviour), None, host) as served:
        yield served


async def _socks4(served: Served, streams: Streams) -> None:
    reader, behaviour = streams[0], served.behaviour
    await _phase(served, streams, "request")
    version, command, port = struct.unpack("!BBH", await reader.readexactly(4))
    assert (version, command) == (4, 1)
    address = await reader.readexactly(4)
    user = (await reader.readuntil(b"\0"))[:-1].decode("ascii")
    host = str(ipaddress.IPv4Address(address))
    if address[:3] == bytes(3) and address[3]:
        assert served.scheme == "socks4a"
        host = (await reader.readuntil(b"\0"))[:-1].decode("ascii")
    code = behaviour.code or (0x5A if behaviour.auth is None or user == behaviour.auth[0] else 0x5D)
    reply = struct.pack("!BBH4s", 0, code, 0, bytes(4))
    if code != 0x5A:
        await _reply(served, streams, reply)
        return
    server = await _open(served, host, port)
    await _half(served, streams, reply)
    await _reply(served, streams, reply, behaviour.extra)
    await _relay(served, streams, server)


async def _socks5(served: Served, streams: Streams) -> None:
    reader, behaviour = streams[0], served.behaviour
    await _phase(served, streams, "greeting")
    version, count = await reader.readexactly(2)
    methods = await reader.readexactly(count)
    method = 0 if behaviour.auth is None else 2
    assert version == 5
    if method not in methods:
        await _reply(served, streams, b"\x05\xff")
        return
    await _reply(served, streams, bytes([5, method]))
    if behaviour.auth is not None:
        await _phase(served, streams, "auth")
        assert await reader.readexactly(1) == b"\x01"
        given = tuple(
            [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
        )
        await _reply(served, streams, bytes([1, given != behaviour.auth]))
        if given != behaviour.auth:
            return
    await _phase(served, streams, "request")
    assert await reader.readexactly(3) == b"\x05\x01\x00"
    kind = (await reader.readexactly(1))[0]
    if kind == 3:
        assert served.scheme == "socks5h"
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
    else:
        host = str(ipaddress.ip_address(await reader.readexactly({1: 4, 4: 16}[kind])))
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    if behaviour.code:
        await _reply(served, streams, bytes([5, behaviour.code, 0, 1, 0, 0, 0, 0, 0, 0]))
        return
    server = await _open(served, host, port)
    reply = b"\x05\x00\x00\x03\x04bind\x00\x00"  # a name, which few proxies send
    await _half(served, streams, reply)
    await _reply(served, streams, reply, behaviour.extra)
    await _relay(served, streams, server)


# Servers


@contextmanager
def echo(context: ssl.SSLContext | None = None, host: str = HOST, greeting: bytes = b"") -> Iterator[Served]:
    """A server that sends back what it gets, after a greeting."""

    async def handler(served: Served, streams: Streams) -> None:
        streams[1].write(greeting)
        while data := await streams[0].read(1 << 16):
            streams[1].write(data)
            await streams[1].drain()

    with serve(handler, "wss" if context else "ws", Behaviour(), context, host) as served:
        yield served


@contextmanager
def silent() -> Iterator[Served]:
    """A server that accepts and says nothing, TLS included."""

    async def handler(served: Served, streams: Streams) -> None:
        served.stalled.set()
        await streams[0].read()

    with serve(handler, "https", Behaviour(), None) as served:
        yield served


def listening(start):
    """Start a program on a free port: (process, port)."""
    while True:
        with socket.create_server((proxies.HOST, 0)) as probe:
            port = probe.getsockname()[1]
        process = start(port)
        while process.poll() is None:
            try:
                socket.create_connection((proxies.HOST, port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                return process, port


def program(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


run = functools.partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def tinyproxy(tmp_path):
    path = program("tinyproxy")

    def start(port):
        config = tmp_path / "tinyproxy.conf"
        config.write_text(
            f"Port {port}\nListen {proxies.HOST}\nTimeout 60\nMaxClients 10\nBasicAuth user word\n"
            f'PidFile "{tmp_path}/pid"\n'
        )
        return run([path, "-d", "-c", str(config)])

    process, port = listening(start)
    yield port
    process.terminate()
    process.wait()


@pytest.fixture
def microsocks():
    path = program("microsocks")
    process, port = listening(
        lambda port: run([path, "-i", proxies.HOST, "-p", str(port), "-u", "user", "-P", "word"])
    )
    yield port
    process.terminate()
    process.wait()


# {server}, {port}: in front of whom, and where. {tls}: what says that it speaks TLS.
_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen {host}:{port} {tls};
        location / {{
            proxy_pass http://{host}:{server};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }}
    }}
}}
"""
_HAPROXY = """
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    retries 0
frontend clients
    bind {host}:{port} {tls}
    default_backend servers
backend servers
    server one {host}:{server}
"""


def _reverse(name, template, tls, command, folder):
    path = program(name)
    processes = []

    def in_front_of(server, certificate=None):
        def start(port):
            config = folder / f"{name}.conf"
            spoken = "" if certificate is None else tls.format(certificate=certificate)
            values = {"folder": folder, "host": proxies.HOST, "port": port, "server": server, "tls": spoken}
            config.write_text(template.format(**values))
            return run([path, *command, str(config)])

        process, port = listening(start)
        processes.append(process)
        return port

    yield in_front_of
    for process in processes:
        process.terminate()
        process.wait()


@pytest.fixture
def nginx(tmp_path):
    tls = "ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate}"
    yield from _reverse("nginx", _NGINX, tls, ["-p", str(tmp_path), "-e", "stderr", "-c"], tmp_path)


@pytest.fixture
def haproxy(tmp_path):
    yield from _reverse("haproxy", _HAPROXY, "ssl crt {certificate}", ["-db", "-f"], tmp_path)

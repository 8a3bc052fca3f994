"""Connections through a proxy, by each way that a face may take: one function, ``way(served, host, port)``, for all.

It connects TCP, has the proxy connect to the server, sends ``ping`` and returns all bytes up to the echo. It blocks,
and so runs in a test without a loop.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import aiofastnet
import pytest
import uvloop

from support import proxies
from wsfast._opening.net.blocking import BlockingNet, Deadline, DeadlinePassed, run
from wsfast._opening.net.loop import LoopNet
from wsfast._opening.proxy import negotiation
from wsfast._opening.proxy.settings import Proxy, parse_proxy
from wsfast._opening.proxy.tunnel import TunnelHandshake

PING = b"ping"

Way = Callable[..., bytes]


def _handshake(proxy: Proxy, host: str, port: int) -> TunnelHandshake | None:
    return None if proxy.is_socks else TunnelHandshake(proxy, host, port)


# Proxies without TLS give back the socket.


def blocking(served: proxies.Served, host: str, port: int, timeout: float = 10) -> bytes:
    proxy = parse_proxy(served.url)
    with closing(socket.create_connection((proxies.HOST, served.port))) as sock:
        sock.setblocking(False)
        handshake = _handshake(proxy, host, port)
        network = BlockingNet(Deadline(timeout))
        try:
            run(negotiation.negotiate(network, sock, proxy, host, port, handshake))
        except BaseException as exc:
            assert sock.fileno() == -1
            if isinstance(exc, DeadlinePassed):
                raise (handshake and handshake.rejection) or TimeoutError() from None
            raise
        sock.setblocking(True)
        sock.sendall(PING)
        got = b""
        while not got.endswith(PING):
            data = sock.recv(100)
            assert data
            got += data
        return got


async def _await(served: proxies.Served, host: str, port: int, timeout: float = 10) -> bytes:
    loop = asyncio.get_running_loop()
    proxy = parse_proxy(served.url)
    with closing(socket.create_connection((proxies.HOST, served.port))) as sock:
        sock.setblocking(False)
        handshake = _handshake(proxy, host, port)
        try:
            connecting = negotiation.negotiate(LoopNet(loop), sock, proxy, host, port, handshake)
            await asyncio.wait_for(connecting, timeout)
        except BaseException as exc:
            assert sock.fileno() == -1
            if (
                isinstance(exc, asyncio.TimeoutError)
                and handshake is not None
                and handshake.rejection is not None
            ):
                raise handshake.rejection from None
            raise
        await loop.sock_sendall(sock, PING)
        got = b""
        while not got.endswith(PING):
            data = await loop.sock_recv(sock, 100)
            assert data
            got += data
        return got


def _run(make: Callable[[], asyncio.AbstractEventLoop], function: Any, *args: Any, **kwargs: Any) -> bytes:
    loop = make()
    try:
        result: bytes = loop.run_until_complete(function(*args, **kwargs))
        for _ in range(5):  # what was aborted is closed
            loop.run_until_complete(asyncio.sleep(0))
        assert not asyncio.all_tasks(loop)
        return result
    finally:
        for _ in range(5):
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
WAYS: dict[str, Way] = {"blocking": blocking}
WAYS |= {name: functools.partial(_run, make, _await) for name, make in LOOPS.items()}


# Proxies with TLS: the connection is TLS, or TLS in TLS.


class Receiver(asyncio.Protocol):
    """Sends a ping as soon as it has the connection, and takes the echo."""

    def __init__(self) -> None:
        self.got = b""
        self.echoed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(PING)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.got += data
        if self.got.endswith(PING):
            self.echoed.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)
        if not self.echoed.done():
            self.echoed.set_exception(exc or EOFError())


async def _await_tls(
    fast: bool,
    served: proxies.Served,
    host: str,
    port: int,
    proxy_context: ssl.SSLContext,
    context: ssl.SSLContext | None,
    timeout: float = 10,
) -> bytes:
    if context is not None and not fast and sys.version_info < (3, 13):
        pytest.skip("asyncio cannot abort TLS in TLS before Python 3.13")
    loop = asyncio.get_running_loop()
    proxy = parse_proxy(served.url)
    sock = socket.create_connection((proxies.HOST, served.port))
    sock.setblocking(False)
    handshake = TunnelHandshake(proxy, host, port)
    receiver = Receiver()
    connecting = negotiation.connect_tls(
        functools.partial(aiofastnet.create_connection, loop) if fast else loop.create_connection,
        functools.partial(aiofastnet.start_tls, loop) if fast else loop.start_tls,
        sock,
        handshake,
        receiver,
        {"ssl": proxy_context, "server_hostname": proxy.host},
        None if context is None else {"ssl": context, "server_hostname": host},
    )
    try:
        await asyncio.wait_for(connecting, timeout)
    except asyncio.TimeoutError:
        if handshake.rejection is not None:
            raise handshake.rejection from None
        raise
    await receiver.echoed
    receiver.transport.abort()
    await receiver.lost
    return receiver.got


TLS_WAYS: dict[str, Way] = {}
for _name, _make in LOOPS.items():
    for _fast in (False, True):
        _way = functools.partial(_run, _make, _await_tls, _fast)
        TLS_WAYS[f"{_name}, {'aiofastnet' if _fast else 'its own transports'}"] = _way

"""Servers beside a client that blocks: a real one on a loop in a thread, or a script of bytes on a plain socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

from support import frames
from support.frames import Parser, Sent
from support.upgrade import acceptance


@contextlib.contextmanager
def in_thread(make: Callable[[], Any]) -> Iterator[Any]:
    """Run an asynchronous context manager on a loop in a thread; gives what it gives."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    box: dict[str, Any] = {}

    async def main() -> None:
        stop = box["stop"] = asyncio.Event()
        try:
            async with make() as value:
                box["value"] = value
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        except BaseException as exc:
            box["error"] = exc
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        if "error" in box:
            raise box["error"]
        yield box["value"]
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(box["stop"].set)
        thread.join()
    if "error" in box:
        raise box["error"]


class Peer:
    """As support.servers.Peer, with the same methods, for a script of blocking code in a thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser = Parser()
        self.request = b""
        self._frames: list[Sent] = []

    def read_request(self) -> bytes:
        while not self.request.endswith(b"\r\n\r\n"):
            data = self.sock.recv(65536)
            if not data:
                raise EOFError("the client closed the connection")
            self.request += data
        return self.request

    def reply(self, headers: bytes = b"") -> bytes:
        return acceptance(self.request, headers)

    def accept(self, glued: bytes = b"", headers: bytes = b"") -> None:
        """The opening handshake; `glued` leaves in the same write."""
        self.read_request()
        self.send(self.reply(headers) + glued)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def frame(self) -> Sent:
        """The next frame of the client; EOFError if it sent no other."""
        while not self._frames:
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError("the client closed the connection")
            self._frames.extend(self.parser.feed(data))
        return self._frames.pop(0)

    def close_frame(self) -> Sent:
        """The client's CLOSE; other frames before it are skipped."""
        while (sent := self.frame()).opcode != frames.CLOSE:
            pass
        return sent

    def answer_close(self) -> Sent:
        sent = self.close_frame()
        self.send(frames.frame(frames.CLOSE, sent.payload))
        return sent

    def rest(self) -> list[Sent]:
        """All frames until the client closes the connection, or resets it."""
        got = []
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                got.append(self.frame())
        return got

    def reset(self) -> None:
        """Close the connection with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class Scripted:
    """A running server: its URL, and what the scripts of its connections returned or raised."""

    def __init__(self, url: str, port: int) -> None:
        self.url = url
        self.port = port
        self.results: list[Any] = []
        self.accepted = threading.Semaphore(0)

    def result(self) -> Any:
        """What the only script returned; call it after the server has ended."""
        (result,) = self.results
        return result


@contextlib.contextmanager
def scripted(
    script: Callable[[Peer], Any],
    *,
    ssl_context: ssl.SSLContext | None = None,
    connections: int = 1,
    buffer: int = 0,
) -> Iterator[Scripted]:
    """Run `script` for each of so many connections, in a thread. What it raises is raised at the end."""
    listening = socket.socket()
    if buffer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    listening.bind(("127.0.0.1", 0))
    listening.listen(16)
    port = listening.getsockname()[1]
    served = Scripted(f"ws{'s' if ssl_context else ''}://127.0.0.1:{port}/", port)
    errors: list[BaseException] = []

    def run() -> None:
        for _ in range(connections):
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            try:
                with sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if ssl_context is None:
                        served.results.append(script(Peer(sock)))
                    else:
                        with ssl_context.wrap_socket(sock, server_side=True) as secure:
                            served.results.append(script(Peer(secure)))
            except BaseException as exc:
                errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield served
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # wakes accept()
        thread.join()
        listening.close()
    if errors:
        raise errors[0]


def echo(peer: Peer) -> None:
    """A script that sends every message back, until it has answered the CLOSE."""
    peer.accept()
    while True:
        sent = peer.frame()
        if sent.opcode == frames.CLOSE:
            peer.send(frames.frame(frames.CLOSE, sent.payload))
            return
        if sent.opcode != frames.PONG:
            opcode = frames.PONG if sent.opcode == frames.PING else sent.opcode
            peer.send(frames.frame(opcode, sent.payload, fin=sent.fin))


@contextlib.contextmanager
def running(function: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run `function` in a thread meanwhile. Gives a list that gets what it returned, or the exception it raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as exc:
            outcome.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join()

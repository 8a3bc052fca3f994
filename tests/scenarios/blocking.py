"""Random scenarios for the blocking client: threads do everything at the same time, and the peer checks every byte.

A seed always makes the same plan, but the system schedules the threads. The server checks that each sender's messages
arrive complete and in order, that fragments of different messages do not mix, and that nothing follows CLOSE. The
client checks that each message is the one that the server sent, in its order. `python -m scenarios.blocking SECONDS`
tries new seeds.
"""

from __future__ import annotations

import contextlib
import random
import select
import signal
import socket
import ssl
import sys
import threading
import time
import zlib
from collections import Counter
from typing import Any

from support.certificates import client_context, client_settings, server_context
from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, Parser, close, frame
from support.upgrade import acceptance

from wsfast.exceptions import ConcurrencyError, ConnectionClosed
from wsfast.sync.client import connect

LARGEST = 150_000


def payload(sender: int, number: int, size: int) -> bytes:
    """A message that names its sender and number. Every byte depends on both."""
    return b"%03d%07d" % (sender, number) + bytes([(sender * 31 + number) & 0xFF]) * size


def check(data: bytes, expected: Counter[int]) -> None:
    sender, number = int(data[:3]), int(data[3:10])
    assert number == expected[sender], f"message {number} of {sender}, not {expected[sender]}"
    assert data == payload(sender, number, len(data) - 10), f"message {number} of {sender} is damaged"
    expected[sender] += 1


class Server:
    """A server for one connection, in one thread. It drives TLS itself, to decide where records and segments end."""

    def __init__(self, seed: int, secure: bool, compressed: bool, count: int, ends: str) -> None:
        self._random = random.Random(seed)
        self._compressed, self._count, self._ends = compressed, count, ends
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._inward, self._outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = server_context() if secure else None
        self._tls = context and context.wrap_bio(self._inward, self._outward, server_side=True)
        self._plain, self._wire = bytearray(), bytearray()
        self.got: Counter[int] = Counter()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._listening, self._listening.accept()[0] as self._sock:
                self._sock.setblocking(False)
                self._serve()
        except BaseException as exc:
            self.error = exc

    def _step(self) -> bytes:
        """Send some bytes, receive some bytes, and return the received ones."""
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLWantReadError):
                if self._plain:
                    piece = self._plain[: self._random.choice((1, 100, 17_000, 60_000))]
                    del self._plain[: self._tls.write(piece)]
            self._wire += self._outward.read()
        else:
            self._wire, self._plain = self._wire + self._plain, bytearray()
        waiting = [self._sock] if self._wire else []
        readable, writable, _ = select.select([self._sock], waiting, [], 0.05)
        if writable:
            part = (
                len(self._wire)
                if self._random.random() < 0.7
                else self._random.randrange(len(self._wire) + 1)
            )
            with contextlib.suppress(BlockingIOError):
                del self._wire[: self._sock.send(self._wire[:part])]
        if not readable:
            return b""
        data = self._sock.recv(self._random.choice((1000, 100_000)))
        if not data:
            raise EOFError
        if self._tls is None:
            return data
        self._inward.write(data)
        got = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self._tls.read(65536):
                got += piece
            if not got:  # a close_notify; if it came behind a CLOSE, the next step finds it again
                raise EOFError
        return got

    def _serve(self) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += self._step()
        extension = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if self._compressed else b""
        self._plain += acceptance(request, extension)
        parser, closing, begun = Parser(), False, []
        inflate, deflate = zlib.decompressobj(wbits=-15), zlib.compressobj(1, wbits=-15)
        sent = 0
        try:
            while True:
                if sent < self._count and len(self._plain) + len(self._wire) < 400_000:
                    self._message(sent, deflate)
                    sent += 1
                elif sent == self._count and self._ends == "server":
                    self._plain += close(1000)
                    sent += 1
                for one in parser.feed(self._step()):
                    assert not closing, f"{one} behind CLOSE"
                    if one.opcode == CLOSE:
                        closing = True
                        if self._ends != "server":
                            self._plain += close(1000)
                    elif one.opcode == PING:
                        self._plain += frame(PONG, one.payload)
                    elif one.opcode != PONG:
                        assert (one.opcode == CONTINUATION) == bool(begun), "messages are mixed"
                        begun.append(one)
                        if one.fin:
                            data = b"".join(part.payload for part in begun)
                            if begun[0].rsv:
                                data = inflate.decompress(data + b"\0\0\xff\xff")
                            check(data, self.got)
                            begun = []
        except (EOFError, ConnectionError):
            assert self._ends == "abort" or closing or sent > self._count, (
                "the client ended the connection early"
            )

    def _message(self, number: int, deflate: Any) -> None:
        size = (
            self._random.randrange(LARGEST) if self._random.random() < 0.2 else self._random.randrange(2000)
        )
        data, rsv = payload(0, number, size), 0
        if self._compressed and self._random.random() < 0.7:
            data, rsv = (deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4], 4
        cuts = sorted(
            self._random.randrange(len(data) + 1) for _ in range(self._random.choice((0, 0, 0, 1, 5)))
        )
        for i, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(data)], strict=True)):
            self._plain += frame(
                CONTINUATION if i else BINARY,
                data[start:end],
                fin=end == len(data) and i == len(cuts),
                rsv=0 if i else rsv,
            )
            if self._random.random() < 0.1:
                self._plain += frame(PING, b"from the server")


def run(seed: int, count: int = 60) -> None:
    """Play one scenario; raise AssertionError for a fault. Call it in the main thread, which gets the signals."""
    plan = random.Random(seed)
    secure, compressed = plan.random() < 0.5, plan.random() < 0.4
    ends = plan.choice(("server", "client", "abort"))
    server = Server(seed, secure, compressed, count, ends)
    ws = connect(
        f"ws{'s' if secure else ''}://127.0.0.1:{server.port}/",
        ssl=(client_settings if seed % 3 else client_context)() if secure else None,  # rustls, or OpenSSL
        max_queue=plan.choice((1, 4, 16, 100)),
        compression="deflate" if compressed else None,
        ping_interval=plan.choice((None, 0.01)),
        close_timeout=10,
    )
    over = threading.Event()
    errors: list[BaseException] = []
    numbers: Counter[int] = Counter()

    def send(sender: int) -> None:
        data = payload(sender, numbers[sender], random.randrange(LARGEST if random.random() < 0.1 else 500))
        try:
            if random.random() < 0.2:
                ws.send([data[: len(data) // 2], data[len(data) // 2 :]])
            else:
                ws.send(data, compress=random.choice((None, True, False)) if compressed else None)
        except ConcurrencyError:
            return  # another thread is sending fragments, so this message was not sent
        numbers[sender] += 1

    def thread(act: Any, *arguments: Any) -> threading.Thread:
        def body() -> None:
            try:
                while not over.is_set():
                    act(*arguments)
                    time.sleep(0)
            except ConnectionClosed:
                pass
            except BaseException as exc:
                errors.append(exc)
                ws._abort()

        made = threading.Thread(target=body)
        made.start()
        return made

    def ping() -> None:
        event = ws.ping()
        event.wait(random.choice((0, 0.001, 0.01)))
        event.is_set()

    def interrupt() -> None:
        time.sleep(random.random() / 50)
        signal.pthread_kill(main, signal.SIGUSR1)

    handling: list[None] = []

    def handler(signum: int, stack: Any) -> None:
        if handling:
            return  # the handler interrupted itself: a nested send() would break its count
        handling.append(None)
        with contextlib.suppress(ConnectionClosed, ConcurrencyError):
            random.choice((lambda: send(3), ws.ping, receive, lambda: ws.wait_closed(0)))()
        handling.pop()

    def receive() -> None:
        if ws._receiving:  # recv() must raise ConcurrencyError here, and not take a message
            ws.recv()

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    threads = [thread(send, 1), thread(send, 2), thread(ping), thread(ping), thread(ws.wait_closed, 0.001)]
    threads.append(thread(interrupt))
    expected: Counter[int] = Counter()
    try:
        with contextlib.suppress(ConnectionClosed):
            while expected[0] < count or ends == "server":
                check(b"".join(ws.recv_streaming()) if plan.random() < 0.2 else ws.recv(), expected)
        if ends == "client":
            ws.close()
        elif ends == "abort":
            ws._abort()
    except BaseException as exc:
        errors.append(exc)
    finally:
        over.set()
        for one in threads:
            one.join()
        signal.signal(signal.SIGUSR1, before)
        ws._abort()
        server.thread.join()
    errors += [server.error] if server.error else []
    if errors:
        raise AssertionError(
            f"seed {seed}: secure={secure} compressed={compressed} {ends}: {errors!r}"
        ) from errors[0]
    assert expected[0] == count, f"seed {seed}: {expected[0]} of {count} messages"
    if ends != "abort":
        for sender in (1, 2, 3):
            assert server.got[sender] <= numbers[sender] + 1


if __name__ == "__main__":
    end = time.monotonic() + float(sys.argv[1])
    tried = 0
    while time.monotonic() < end:
        run(random.randrange(1 << 32))
        tried += 1
    print(f"{tried} scenarios of the blocking client")

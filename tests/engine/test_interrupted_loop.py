"""A finalizer, or the handler of a signal, may use a connection inside any call of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

import pytest
from support import certificates, frames
from support.listeners import Recorder
from support.pair import pair
from support.servers import Peer, serve

from wsfast import Tuning, WSMsgType, ws_connect

pytestmark = pytest.mark.memory

ways = pytest.mark.parametrize("tls", [None, certificates.client_settings], ids=["plain", "rustls"])


class Interrupted(asyncio.SelectorEventLoop):
    """Calls a function at the beginning of the next call of a method."""

    def __init__(self) -> None:
        super().__init__()
        self.interruption: tuple[str, Callable[[], object]] | None = None

    def interrupt(self, method: str) -> None:
        if self.interruption is not None and self.interruption[0] == method:
            act, self.interruption = self.interruption[1], None
            act()

    def call_soon(self, callback: Callable[..., object], *arguments: Any, **options: Any) -> asyncio.Handle:
        if "_poll_round" in repr(callback):
            self.interrupt("call_soon")
        return super().call_soon(callback, *arguments, **options)

    def add_reader(self, *arguments: Any) -> None:
        self.interrupt("add_reader")
        super().add_reader(*arguments)

    def remove_reader(self, *arguments: Any) -> bool:
        self.interrupt("remove_reader")
        return super().remove_reader(*arguments)

    def remove_writer(self, *arguments: Any) -> bool:
        self.interrupt("remove_writer")
        return super().remove_writer(*arguments)

    def add_writer(self, *arguments: Any) -> None:
        self.interrupt("add_writer")
        super().add_writer(*arguments)

    def call_later(self, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        self.interrupt("call_later")
        return super().call_later(*arguments, **options)


def resume(beneath: Any) -> None:
    beneath.pause_reading()
    beneath.resume_reading()


def close_while_paused(beneath: Any) -> None:
    beneath.pause_reading()
    beneath.close()


def write_much(beneath: Any) -> None:
    beneath.get_protocol().send(WSMsgType.BINARY, frames.pattern(20_000_000))


def close_while_the_kernel_is_full(beneath: Any) -> None:
    descriptor = os.dup(beneath.get_extra_info("socket").fileno())
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, bytes(100_000))
    os.close(descriptor)
    beneath.close()


def run(program: Callable[..., Any], *arguments: Any) -> None:
    loop = Interrupted()
    try:
        loop.run_until_complete(program(loop, *arguments))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def play(tls: Any, method: str, interruption: str, act: Callable[[Any], None]) -> None:
    """Play a connection that ends inside `method` of the loop. Neither a watched descriptor nor a timer is left."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        peer.writer.transport.pause_reading()
        await gone.wait()
        peer.writer.transport.abort()

    async def main(loop: Interrupted) -> None:
        context = certificates.server_context() if tls else None
        async with serve(handler, ssl_context=context) as server:
            transport, listener = await ws_connect(Recorder, server.url, ssl_context=tls and tls())
            beneath = transport.underlying_transport
            descriptor = beneath.get_extra_info("socket").fileno()
            loop.interruption = method, getattr(beneath, interruption)
            act(beneath)
            assert loop.interruption is None, "it was never called"
            if interruption == "close":
                beneath.abort()
            await transport.wait_disconnected()
            assert not loop.remove_reader(descriptor), "a closed descriptor is still watched"
            assert not loop.remove_writer(descriptor), "a closed descriptor is still watched"
            timers = [timer._callback for timer in loop._scheduled if not timer.cancelled()]
            assert beneath not in [getattr(callback, "__self__", None) for callback in timers]
            gone.set()
            await server.result()
            assert listener.events.count("disconnected") == 1

    gone = asyncio.Event()
    run(main)


@ways
def test_an_abort_while_reading_resumes(tls):
    play(tls, "add_reader", "abort", resume)


@ways
@pytest.mark.parametrize("interruption", ["abort", "close"])
def test_an_end_while_the_rest_is_queued(tls, interruption):
    play(tls, "add_writer", interruption, write_much)


@pytest.mark.parametrize("method", ["call_later", "add_reader"])
@pytest.mark.parametrize("interruption", ["abort", "close"])
def test_an_end_while_close_begins_to_wait_for_the_server(method, interruption):
    play(certificates.client_settings, method, interruption, close_while_paused)


@pytest.mark.parametrize("interruption", ["abort", "close"])
def test_an_end_while_close_notify_is_queued(interruption):
    play(certificates.client_settings, "add_writer", interruption, close_while_the_kernel_is_full)


async def sends_all(loop: Interrupted, tls: Any) -> None:
    """A message that is sent inside remove_writer() is queued, and leaves."""
    payloads = [frames.pattern(5_000_000, number) for number in range(2)]

    async def handler(peer: Peer) -> list[bytes]:
        await peer.accept()
        return [(await peer.frame()).payload for _ in range(2)]

    async with serve(handler, ssl_context=certificates.server_context() if tls else None) as server:
        transport, _ = await ws_connect(Recorder, server.url, ssl_context=tls and tls())
        transport.send(WSMsgType.BINARY, payloads[0])
        assert transport.write_buffer_size > 0
        loop.interruption = "remove_writer", lambda: transport.send(WSMsgType.BINARY, payloads[1])
        assert await server.result() == payloads
        transport.abort()
        await transport.wait_disconnected()


async def reads_on(loop: Interrupted, tls: Any) -> None:
    """disconnect() inside remove_reader() reads on, for the server's CLOSE."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        await peer.answer_close()

    async with serve(handler, ssl_context=certificates.server_context() if tls else None) as server:
        transport, _ = await ws_connect(Recorder, server.url, ssl_context=tls and tls(), close_timeout=None)
        loop.interruption = "remove_reader", transport.disconnect
        transport.underlying_transport.pause_reading()
        await transport.wait_disconnected()
        assert transport.close_info.cause is None


@ways
@pytest.mark.parametrize("program", [sends_all, reads_on])
def test_what_is_wanted_last_counts(tls, program):
    run(program, tls)


async def keeps_what_was_read(loop: Interrupted, size: int) -> None:
    """A poll() while the poller is told that something was received: it would read into the same memory."""
    wire = frames.binary(frames.pattern(size)) + frames.text("last")
    pieces = [wire[: size // 3], wire[size // 3 : 2 * (size // 3)], wire[2 * (size // 3) :]]

    def read_on() -> None:
        far.sock.send(pieces[-1])
        assert transport.poll(5)

    async with pair(tuning=Tuning(busy_poll=1e-6)) as (transport, listener, far):
        for piece in pieces[:-1]:
            await asyncio.sleep(0.005)  # the poller sleeps
            if piece is pieces[-2]:
                loop.interruption = "call_soon", read_on
            far.sock.send(piece)
        await listener.received(2)
        assert loop.interruption is None
        assert listener.payloads == [frames.pattern(size), b"last"]


@pytest.mark.parametrize("size", [30, 3000, 90_000])
def test_what_was_read_is_claimed_before_python_runs(size):
    run(keeps_what_was_read, size)

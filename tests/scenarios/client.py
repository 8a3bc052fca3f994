"""The client program of a scenario: its listener, and the actions of its callbacks."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from support import certificates

from scenarios.peer import Peer, record
from scenarios.program import Action, Program
from wsfast import (
    TLS,
    ConnectionClosed,
    Tuning,
    WSFrame,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    ws_connect,
)

DEPTH = 4  # the deepest nesting of callbacks
BUDGET = 150  # the most actions of a scenario
CLOSE_TIMEOUT = 1.0
KIND: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": lambda payload: memoryview(bytearray(payload)),
    "str": bytes.decode,
}


class Scripted(Exception):  # noqa: N818
    """The exception that a callback raises when its script says so."""


class Garbage:
    """Garbage whose finalizer runs an action wherever the collector finds it."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.cycle = self

    def __del__(self) -> None:
        with suppress(Scripted):
            self.actor.interrupt("finalizer")


class Loop(asyncio.SelectorEventLoop):
    """An event loop that simulates signals: it runs the handler where a real one may run, when Python code is entered.
    Its clock stands still while bytes move, so that no scenario depends on the load of the machine."""

    actor: Actor | None = None
    now = 0.0
    idle = 0

    def time(self) -> float:
        return self.now

    def _interrupt(self) -> None:
        if self.actor is not None:
            with suppress(Scripted):
                self.actor.interrupt("interruption")

    def add_reader(self, *args: Any) -> Any:
        self._interrupt()
        return super().add_reader(*args)

    def remove_reader(self, *args: Any) -> Any:
        self._interrupt()
        return super().remove_reader(*args)

    def add_writer(self, *args: Any) -> Any:
        self._interrupt()
        return super().add_writer(*args)

    def remove_writer(self, *args: Any) -> Any:
        self._interrupt()
        return super().remove_writer(*args)

    def call_soon(self, *args: Any, **kwargs: Any) -> Any:
        self._interrupt()
        return super().call_soon(*args, **kwargs)

    def call_later(self, *args: Any, **kwargs: Any) -> Any:
        self._interrupt()
        return super().call_later(*args, **kwargs)


class Socket(socket.socket):
    """A socket that lets asyncio's own transport be interrupted in each write."""

    loop: Loop

    def send(self, *args: Any) -> int:
        self.loop._interrupt()
        return super().send(*args)


class Handler(logging.Handler):
    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self.actor = actor

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Scripted):
            self.actor.run("log")


class Listener(WSListener):
    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.actor.transport = transport
        self.actor.events.append("connected")
        transport.set_write_buffer_limits(self.actor.program.limit)
        self.actor.run("on_ws_connected")

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.actor.kept.append((frame, frame.get_payload_as_bytes()))
        self.actor.run("on_ws_frame")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.actor.events.append("disconnected")
        self.actor.run("on_ws_disconnected")

    def pause_writing(self) -> None:
        self.actor.events.append("pause")
        self.actor.run("pause_writing")

    def resume_writing(self) -> None:
        self.actor.events.append("resume")
        self.actor.run("resume_writing")


class MessageListener(Listener):
    def on_ws_message(self, transport: WSTransport, msg_type: WSMsgType, payload: memoryview) -> None:
        self.actor.kept.append((payload, bytes(payload)))
        self.actor.run("on_ws_frame")


class OwnPings(Listener):
    def send_user_specific_ping(self, transport: WSTransport) -> None:
        self.actor.run("send_user_specific_ping")
        transport.send_ping(b"8 bytes!")

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        self.actor.run("is_user_specific_pong")
        return frame.msg_type is WSMsgType.PONG


class Actor:
    """Executes the program, and records the messages that wsfast accepted for sending."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.scripts = {name: list(script) for name, script in program.scripts.items()}
        self.transport: WSTransport = None  # type: ignore[assignment]
        self.events: list[str] = []
        self.kept: list[tuple[Any, bytes]] = []
        self.faults: list[str] = []
        self.number = 0
        self.accepted: list[int] = []
        self.armed = False  # inside a call of wsfast, where a finalizer or a signal handler may act
        self.depth = 0
        self.budget = BUDGET
        self.in_fragments = False
        self.buffers: list[bytearray] = []  # the last ones that were sent, and those that are being sent
        self.gave_up = False  # abort() was called, or reading was paused

    # ---- callbacks

    def run(self, callback: str) -> None:
        """Execute the next list of actions of this callback."""
        self._resize()
        if self.depth >= DEPTH or self.budget <= 0 or not self.scripts.get(callback):
            return
        armed, self.armed = self.armed, False
        self.depth += 1
        try:
            for action in self.scripts[callback].pop(0):
                self.act(action)
        finally:
            self.depth -= 1
            self.armed = armed

    def interrupt(self, callback: str) -> None:
        self._resize()
        if self.armed:
            collects = gc.isenabled()
            gc.disable()
            try:
                self.run(callback)
            finally:
                if collects:
                    gc.enable()

    def _resize(self) -> None:
        """Wherever Python runs, free the memory of what was sent. What is being sent is wsfast's: BufferError."""
        for buffer in self.buffers:
            with suppress(BufferError):
                buffer.clear()

    # ---- actions

    def act(self, action: Action) -> None:
        if self.transport is None or self.budget <= 0:
            return
        self.budget -= 1
        try:
            getattr(self, "do_" + action[0])(*action[1:])
        except (ConnectionClosed, BufferError):
            pass
        except (ValueError, RuntimeError, NotImplementedError) as exc:
            expected = (
                "msg_type must",
                "poll() ",
                "cork() was left",
                "reads must",
                "Cannot call write() after",
            )
            if not str(exc).startswith(expected):
                self.fault(f"{action}: {exc!r}")
        except Scripted:
            raise
        except BaseException as exc:
            self.fault(f"{action}: {exc!r}")

    def fault(self, what: str) -> None:
        self.faults.append(what)

    def _send(self, size: int, kind: str, call: Callable[[Any], object]) -> None:
        number = self.number
        self.number += 1
        payload = KIND[kind](record(number, size))
        if kind == "memoryview":
            self._keep(payload.obj)
        elif kind == "bytearray":
            self._keep(payload)
        self._call(call, payload)
        self.accepted.append(number)

    def _keep(self, buffer: bytearray) -> None:
        del self.buffers[:-DEPTH]
        self.buffers.append(buffer)

    def _call(self, call: Callable[..., object], *args: Any) -> None:
        """Call wsfast, with garbage to collect if the program asks for it. No object is made between drawing the number
        of a message and the call: a finalizer that ran there would send another message first."""
        garbage = self.program.collecting and bool(self.scripts.get("finalizer")) and not gc.isenabled()
        if garbage:
            Garbage(self)
            gc.enable()
        armed, self.armed = self.armed, True
        try:
            call(*args)
        finally:
            self.armed = armed
            if garbage:
                gc.disable()

    def do_send(self, size: int, kind: str) -> None:
        opcode = WSMsgType.TEXT if kind == "str" else WSMsgType.BINARY
        transport = self.transport
        self._send(size, kind, lambda payload: transport.send(opcode, payload))

    def do_send_many(self, sizes: list[int], text: bool) -> None:
        def messages() -> Iterator[Any]:
            for size in sizes:
                armed, self.armed = self.armed, False
                self.run("iterator")
                number = self.number
                self.number += 1
                message: Any = record(number, size)
                if text:
                    message = message.decode()
                self.armed = armed
                yield message
                self.accepted.append(number)  # send_many() asks for the next message, so it accepted this one

        opcode = WSMsgType.TEXT if text else WSMsgType.BINARY
        self._call(self.transport.send_many, opcode, messages())

    def do_cork(self, actions: list[Action]) -> None:
        with self.transport.cork():
            for action in actions:
                self.act(action)
            self.armed = False

    def do_leave_cork_twice(self) -> None:
        cork = self.transport.cork()
        with cork:
            pass
        cork.__exit__(None, None, None)

    def do_reuse(self, size: int) -> None:
        def call(payload: bytes) -> None:
            transport.send_reuse_external_bytearray(opcode, buffer, 14)

        transport, opcode = self.transport, WSMsgType.BINARY
        buffer = bytearray(14) + record(self.number, size)
        self._keep(buffer)
        self._send(24, "bytes", call)

    def do_fragment(self, size: int, fin: bool) -> None:
        transport = self.transport
        opcode = WSMsgType.CONTINUATION if self.in_fragments else WSMsgType.BINARY
        before, self.in_fragments = self.in_fragments, not fin
        try:
            self._send(size, "bytes", lambda payload: transport.send(opcode, payload, fin))
        except BaseException:
            self.in_fragments = before
            raise

    def do_ping(self) -> None:
        transport = self.transport
        self._send(30, "bytes", lambda payload: transport.send_ping(payload))

    def do_pong(self) -> None:
        transport = self.transport
        self._send(30, "bytes", lambda payload: transport.send_pong(payload))

    def do_garbage(self, count: int) -> None:
        for _ in range(count):
            Garbage(self)

    def do_collect(self) -> None:
        gc.collect()

    def do_raise(self) -> None:
        if self.depth:
            raise Scripted

    def do_poll(self) -> None:
        self._call(self.transport.poll, 0)

    def do_send_close(self, code: int) -> None:
        self._call(self.transport.send_close, code)

    def do_disconnect(self) -> None:
        self._call(self.transport.disconnect)

    def do_abort(self) -> None:
        self.gave_up = True
        self._call(self.transport.abort)

    def do_pause_reading(self) -> None:
        if not self.transport.is_disconnected:
            self.gave_up = True
            self.transport.underlying_transport.pause_reading()

    def do_resume_reading(self) -> None:
        if not self.transport.is_disconnected:
            self._call(self.transport.underlying_transport.resume_reading)

    def do_drop(self) -> None:
        self.check_kept()
        self.kept.clear()

    def do_limits(self, high: int) -> None:
        self._call(self.transport.set_write_buffer_limits, high)

    def do_look(self) -> None:
        transport = self.transport
        _ = transport.write_buffer_size, transport.stats, transport.close_handshake, repr(transport)

    def check_kept(self) -> None:
        for kept, payload in self.kept:
            if bytes(kept) != payload:
                self.fault("the bytes of a kept frame have changed")


def _tls(program: Program) -> ssl.SSLContext | TLS | None:
    if not program.tls:
        return None
    return certificates.client_settings() if program.rustls else certificates.client_context()


async def _iterate(loop: Loop, moved: int) -> None:
    """Run one iteration of the event loop. Advance the clock if the peer got no bytes in two: it may read in one what
    the client wrote in the other."""
    loop.idle = 0 if moved else loop.idle + 1
    if loop.idle > 1:
        loop.now += 0.001
    await asyncio.sleep(0)


async def play(program: Program, loop: Loop) -> list[str]:
    """Play a scenario, and return the faults."""
    actor = Actor(program)

    def loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Scripted):
            actor.fault(f"an exception reached the event loop: {context}")
        with suppress(Scripted):
            actor.run("loop_exception")

    loop.set_exception_handler(loop_exception)
    logger = logging.Logger("scenario", logging.DEBUG if program.logged else logging.INFO)
    logger.addHandler(Handler(actor))
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.setblocking(False)
    ours = Socket(fileno=ours.detach())
    ours.loop = loop
    peer = Peer(theirs, program.tls, program.compressed)
    base: Any = MessageListener if program.whole_messages else Listener
    if "send_user_specific_ping" in program.scripts or "is_user_specific_pong" in program.scripts:
        base = type("Both", (OwnPings, base), {})
    measuring: list[asyncio.Future[Any]] = []
    try:
        connecting = asyncio.ensure_future(
            ws_connect(
                lambda: base(actor),
                f"ws{'s' * program.tls}://localhost/",
                ssl_context=_tls(program),
                socket_factory=lambda uri: ours,
                close_timeout=CLOSE_TIMEOUT,
                logger_name=logger,
                tuning=Tuning(write_policy="gather" if program.gather else "immediate"),
                use_aiofastnet=None if program.use_aiofastnet else False,
                compression="deflate" if program.compressed else None,
            )
        )
        while not connecting.done():
            await _iterate(loop, peer.read(100_000))
        transport, _ = await connecting
        loop.actor = actor
        for step in program.steps:
            if step[0] == "client":
                for action in step[1]:
                    with suppress(Scripted):  # raised by an iterator
                        actor.act(action)
            elif step[0] == "read":
                peer.read(step[1])
            elif step[0] == "iterate":
                for _ in range(step[1]):
                    await asyncio.sleep(0)
            elif step[0] == "serve":
                peer.serve(*step[1:])
                await asyncio.sleep(0)
            elif not transport.is_disconnected:
                with suppress(ConnectionClosed):
                    measuring.append(asyncio.ensure_future(transport.measure_roundtrip_time(1)))
        if actor.in_fragments:
            actor.act(("fragment", 24, True))
        actor.act(("disconnect",)) if actor.budget > 0 else transport.disconnect()
        until = loop.now + 2 * CLOSE_TIMEOUT
        while not transport.is_disconnected and loop.now < until:
            await _iterate(loop, peer.finish())
        peer.finish()
        loop.actor = None
        if not transport.is_disconnected:
            return [*actor.faults, "the connection did not end"]
        results = await asyncio.gather(transport.wait_disconnected(), *measuring, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(
                result, (Scripted, ConnectionClosed, WSProtocolError, asyncio.CancelledError)
            ):
                actor.fault(f"the connection ended with {result!r}")
        _judge(actor, peer, transport)
    except AssertionError as exc:
        actor.fault(str(exc))
    finally:
        loop.actor = None
        if actor.transport is not None and not actor.transport.is_disconnected:
            actor.transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        theirs.close()
        ours.close()
    return actor.faults


def _asyncio_drops(actor: Actor, transport: WSTransport) -> bool:
    """True if asyncio's own TLS may have dropped unwritten bytes. It does so when the server's data crosses a
    close_notify. That can happen after a failure, because then wsfast does not wait for the server's CLOSE."""
    own = actor.program.tls and not actor.program.use_aiofastnet
    return own and transport.close_info is not None and transport.close_info.cause is not None


def _judge(actor: Actor, peer: Peer, transport: WSTransport) -> None:
    numbers = peer.numbers
    assert numbers == sorted(set(numbers)), f"out of order: {numbers}"
    arrived = [number for number in actor.accepted if numbers and number <= numbers[-1]]
    assert numbers == sorted(arrived), f"sent: {sorted(actor.accepted)}, received: {numbers}"
    if peer.close is not None:
        lost = set(actor.accepted) - set(numbers)
        assert not lost, f"messages lost before CLOSE: {lost}"
    elif not (actor.gave_up or peer.broken or peer.close_sent or _asyncio_drops(actor, transport)):
        raise AssertionError(f"the server got no CLOSE: {transport.close_info}")
    flow = [event for event in actor.events if event in ("pause", "resume")]
    assert flow == (["pause", "resume"] * len(flow))[: len(flow)], f"flow control: {flow}"
    ends = [event for event in actor.events if event not in ("pause", "resume")]
    assert ends == ["connected", "disconnected"], f"callbacks: {ends}"
    assert transport.write_buffer_size == 0, f"{transport.write_buffer_size} bytes are left"
    keys = peer.keys
    assert len(keys) < 5 or len(set(keys)) > len(keys) // 2, "masks repeat"
    if not (actor.gave_up or peer.broken or transport.close_info.cause) and peer.close is not None:
        assert transport.close_handshake.recv is not None, (
            f"the server's CLOSE was not seen: {transport.close_info}"
        )
    actor.check_kept()


def run(program: Program) -> list[str]:
    """Play a scenario in an event loop of its own, and return the faults."""
    loop = Loop()
    collects, thresholds = gc.isenabled(), gc.get_threshold()
    gc.disable()
    gc.set_threshold(1, 1000, 1000)
    try:
        faults = loop.run_until_complete(play(program, loop))
        watched = set(loop._selector.get_map()) - {loop._ssock.fileno()}
        own = program.use_aiofastnet and (program.rustls or not program.tls)
        if watched and own:  # aiofastnet's TLS leaves one if it is aborted inside add_writer()
            faults.append(f"the loop still watches the descriptors {watched}")
    finally:
        gc.set_threshold(*thresholds)
        if collects:
            gc.enable()
        loop.close()
    return faults

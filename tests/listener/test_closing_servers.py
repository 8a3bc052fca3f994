"""The end of connections to real servers: those that answer, and those that do anything else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import certificates, frames
from support.frames import CLOSE, Sent, binary, text
from support.listeners import Recorder, Scripted
from support.servers import Peer, aiohttp_echo, break_off, picows_echo, serve, websockets_echo

from wsfast import ProtocolError, WSCloseCode, WSCloseHandshake, WSCloseInfo, WSMsgType, ws_connect

TLS = pytest.mark.parametrize("tls", certificates.WAYS.values(), ids=certificates.WAYS)


def server_options(tls: object) -> dict:
    return {"ssl_context": certificates.server_context()} if tls else {}


def client_options(tls: Callable[[], object] | None) -> dict:
    return {"ssl_context": tls()} if tls else {}


async def answering(peer: Peer) -> Sent:
    await peer.accept()
    return await peer.answer_close()


@TLS
async def test_a_server_that_answers_makes_an_orderly_end(tls):
    async with serve(answering, **server_options(tls)) as server:
        transport, listener = await ws_connect(Recorder, server.url, **client_options(tls))
        transport.send_close(WSCloseCode.GOING_AWAY, "bye")
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 1001, "bye", None)
        assert transport.close_handshake == WSCloseHandshake(
            WSCloseInfo(1001, "bye"), WSCloseInfo(1001, "bye"), False
        )
        assert [got.msg_type for got in listener.frames] == [WSMsgType.CLOSE]


@TLS
async def test_a_server_that_closes_first_is_answered(tls):
    async def handler(peer: Peer) -> Sent:
        await peer.accept()
        peer.send(text("last") + frames.close(1012, "restart"))
        return await peer.frame()

    async with serve(handler, **server_options(tls)) as server:
        transport, listener = await ws_connect(Recorder, server.url, **client_options(tls))
        await transport.wait_disconnected()
        assert transport.close_info == ("remote", 1012, "restart", None)
        assert await server.result() == Sent(CLOSE, b"\x03\xf4restart")
        assert listener.payloads[0] == b"last"


@TLS
async def test_disconnect_sends_close_1000_and_waits_for_the_server(tls):
    async with serve(answering, **server_options(tls)) as server:
        transport, listener = await ws_connect(Recorder, server.url, **client_options(tls))
        transport.disconnect()
        assert not transport.is_disconnected
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 1000, "", None)
        assert listener.events == ["connected", "disconnected"]
        assert await server.result() == Sent(CLOSE, b"\x03\xe8")


ECHOES = {"websockets": websockets_echo, "picows": picows_echo, "aiohttp": aiohttp_echo, "raw": None}


@TLS
@pytest.mark.parametrize("name", ECHOES)
async def test_disconnect_sees_the_server_s_close(tls, name):
    async with contextlib.AsyncExitStack() as stack:
        if ECHOES[name] is None:
            url = (await stack.enter_async_context(serve(answering, **server_options(tls)))).url
        else:
            url = await stack.enter_async_context(ECHOES[name](**server_options(tls)))
        transport, listener = await ws_connect(Recorder, url, **client_options(tls))
        transport.disconnect()
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 1000, "", None)
        assert transport.close_handshake.recv.code == 1000
        assert listener.frames == []


@TLS
async def test_disconnect_of_a_server_that_takes_the_end_of_our_side_for_the_end_of_all(tls):
    """tornado's way: it does not answer a CLOSE with which the end of the stream arrived."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        sent = (await peer.frames_until_close())[-1]
        for _ in range(10):
            await asyncio.sleep(0)
        if not peer.reader.at_eof():
            peer.send(frames.frame(CLOSE, sent.payload))

    async with serve(handler, **server_options(tls)) as server:
        transport, _ = await ws_connect(Recorder, server.url, **client_options(tls))
        transport.disconnect()
        await transport.wait_disconnected()
        assert transport.close_handshake.recv == WSCloseInfo(1000, None)


@TLS
async def test_disconnect_of_a_server_that_closes_without_an_answer(tls):
    async def handler(peer: Peer) -> None:
        await peer.accept()
        await peer.frames_until_close()

    async with serve(handler, **server_options(tls)) as server:
        transport, _ = await ws_connect(Recorder, server.url, **client_options(tls))
        transport.disconnect()
        await transport.wait_disconnected()
        assert transport.close_info[:3] == ("local", 1000, "")
        assert isinstance(transport.close_info.cause, EOFError)
        assert transport.close_handshake.recv is None


async def unresponsive(peer: Peer) -> None:
    """Reads, and answers nothing."""
    await peer.accept()
    await peer.rest()
    await asyncio.Event().wait()


async def deaf(peer: Peer) -> None:
    """Does not even read."""
    await peer.accept()
    peer.writer.transport.pause_reading()
    await asyncio.Event().wait()


async def flooding(peer: Peer) -> None:
    """Sends for ever, as fast as it goes, and does not look at what it gets."""
    await peer.accept()
    data = binary(bytes(50_000)) * 4
    with contextlib.suppress(ConnectionError):
        while True:
            peer.send(data)
            await peer.writer.drain()
            await asyncio.sleep(0)


@TLS
@pytest.mark.parametrize("handler", [unresponsive, deaf, flooding])
@pytest.mark.parametrize("end", ["send_close", "disconnect"])
async def test_close_timeout_bounds_the_end_whatever_the_server_does(tls, handler, end):
    """Elsewhere the time-out is extended by data, or applied to every step anew (aiohttp #1002, websockets #704)."""
    loop = asyncio.get_running_loop()
    async with serve(handler, **server_options(tls)) as server:
        transport, listener = await ws_connect(Recorder, server.url, close_timeout=0.1, **client_options(tls))
        if handler is flooding:
            await listener.received(3)
        began = loop.time()
        getattr(transport, end)()
        delivered = len(listener.frames)
        await transport.wait_disconnected()
        took = loop.time() - began
        assert took < 1.5
        assert transport.close_info[0] == "local"
        # Over TLS it is asyncio's TLS layer that answers the end of the stream, unless it does not read.
        if not tls or end == "send_close" or handler is deaf:
            assert took > 0.09
            assert isinstance(transport.close_info.cause, TimeoutError)
        if end == "disconnect":
            assert len(listener.frames) == delivered


# asyncio's own TLS is not here: it gives up when data follow its close_notify (APPLICATION_DATA_AFTER_CLOSE_NOTIFY).
@pytest.mark.parametrize(
    ("tls", "use_aiofastnet"),
    [(None, None), (certificates.client_settings, None), (certificates.client_context, None), (None, False)],
    ids=["plain", "rustls", "openssl", "plain, the loop's transports"],
)
async def test_disconnect_lets_5_mb_arrive_while_the_server_floods_us(tls, use_aiofastnet):
    """A socket that is closed while it holds unread bytes is reset, and the reset destroys what was sent last."""
    payload = frames.pattern(50_000)

    async def handler(peer: Peer) -> list[Sent]:
        await peer.accept()

        async def flood() -> None:
            while True:
                peer.send(binary(bytes(20_000)))
                await peer.writer.drain()
                await asyncio.sleep(0)

        task = asyncio.ensure_future(flood())
        try:
            await started.wait()
            return await peer.frames_until_close()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await task

    started = asyncio.Event()
    async with serve(handler, **server_options(tls)) as server:
        transport, listener = await ws_connect(
            Recorder, server.url, use_aiofastnet=use_aiofastnet, **client_options(tls)
        )
        await listener.received(3)
        for _ in range(100):
            transport.send(WSMsgType.BINARY, payload)
        transport.disconnect()
        started.set()
        received = await server.result()
        assert len(received) == 101
        assert all(one.payload == payload for one in received[:-1])
        assert received[-1] == Sent(CLOSE, b"\x03\xe8")
        await transport.wait_disconnected()


@TLS
async def test_a_server_that_ends_without_a_word_is_the_initiator(tls):
    async def handler(peer: Peer) -> None:
        await peer.accept(glued=text("a"))

    async with serve(handler, **server_options(tls)) as server:
        transport, listener = await ws_connect(Recorder, server.url, **client_options(tls))
        await transport.wait_disconnected()
        assert transport.close_info[:3] == ("remote", 1006, "")
        assert isinstance(transport.close_info.cause, EOFError)
        assert transport.close_handshake is None
        assert listener.payloads == [b"a"]


async def test_a_reset_is_the_cause():
    async with serve(break_off) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        transport.send(WSMsgType.TEXT, "x")
        await transport.wait_disconnected()
        assert transport.close_info[:3] == ("remote", 1006, "")
        assert isinstance(transport.close_info.cause, ConnectionResetError)
        assert listener.events[-1] == "disconnected"


async def test_what_was_received_before_a_half_close_is_delivered_although_reads_were_paused():
    """uvloop #661: the end of the stream dropped what had not been read."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        for number in range(50):
            peer.send(binary(frames.pattern(10_000, number)))
        peer.writer.write_eof()
        await peer.rest()

    def pause(self, transport):
        transport.underlying_transport.pause_reading()

    async with serve(handler) as server:
        transport, listener = await ws_connect(lambda: Scripted(on_ws_connected=pause), server.url)
        for _ in range(20):
            await asyncio.sleep(0)
        transport.underlying_transport.resume_reading()
        await transport.wait_disconnected()
        assert listener.payloads == [frames.pattern(10_000, number) for number in range(50)]


@TLS
async def test_what_is_queued_is_sent_although_the_server_ended_its_side(tls):
    """uvloop #385: the end of the stream discarded the send buffer. Over TLS this asks for close_notify to be late."""
    payload = frames.pattern(100_000)

    async def handler(peer: Peer) -> int:
        await peer.accept()
        peer.writer.transport.pause_reading()
        peer.send(text("go") + frames.close(1000))
        await sent.wait()
        peer.writer.transport.resume_reading()
        return len(await peer.frames_until_close())

    def send(self, transport, frame):
        if frame.msg_type is WSMsgType.TEXT:
            for _ in range(50):
                transport.send(WSMsgType.BINARY, payload)
            sent.set()

    sent = asyncio.Event()
    async with serve(handler, **server_options(tls)) as server:
        transport, _ = await ws_connect(lambda: Scripted(on_ws_frame=send), server.url, **client_options(tls))
        assert await server.result() == 51
        await transport.wait_disconnected()


@TLS
async def test_a_violation_is_answered_on_the_wire_although_the_server_keeps_sending(tls):
    async def handler(peer: Peer) -> list[Sent]:
        await peer.accept(glued=text("good") + frames.masked(1, b"bad") + text("never") * 1000)
        return await peer.frames_until_close()

    async with serve(handler, **server_options(tls)) as server:
        transport, listener = await ws_connect(Recorder, server.url, **client_options(tls))
        with pytest.raises(ProtocolError, match="masked"):
            await transport.wait_disconnected()
        [sent] = await server.result()
        assert frames.parse_close(sent.payload)[0] == 1002
        assert listener.payloads == [b"good"]


async def test_several_waiters_and_a_cancelled_one():
    async with serve(answering) as server:
        transport, _ = await ws_connect(Recorder, server.url)
        waiters = [asyncio.ensure_future(transport.wait_disconnected()) for _ in range(5)]
        await asyncio.sleep(0)
        waiters[2].cancel()
        transport.disconnect()
        transport.disconnect()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["NoneType"] * 2 + ["CancelledError"] + [
            "NoneType"
        ] * 2


INTERRUPTED = """
import asyncio, os, signal, sys
from support import frames
from support.listeners import Scripted
from support.servers import serve
from wsfast import ws_connect

async def handler(peer):
    await peer.accept(glued=frames.text("a"))
    await peer.rest()

def act(self, transport, frame):
    print("in the callback", flush=True)
    if sys.argv[1] == "raise":
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGINT)

async def main():
    async with serve(handler) as server:
        transport, listener = await ws_connect(lambda: Scripted(on_ws_frame=act), server.url)
        await transport.wait_disconnected()

# A process that a shell started in the background may ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("how", ["raise", "signal"])
def test_ctrl_c_in_a_callback_ends_the_program(how):
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, how],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split("\n")[:2] == ["in the callback", "interrupted"], ran.stderr
    assert ran.returncode in (0, -signal.SIGINT)


async def test_disconnect_of_a_server_that_has_reset_the_connection():
    async def handler(peer: Peer) -> None:
        await peer.accept(glued=frames.close())
        peer.reset()

    for _ in range(5):
        async with serve(handler) as server:
            transport, _ = await ws_connect(Recorder, server.url)
            transport.disconnect()
            with contextlib.suppress(OSError):
                await transport.wait_disconnected()


@pytest.mark.parametrize("ways", [("close", "abort"), ("abort", "abort")])
def test_a_connection_that_is_aborted_while_it_is_being_closed_is_closed_once(ways):
    """A finalizer or the handler of a signal may do so, while the loop is told to watch the socket no longer."""

    class Interrupted(asyncio.SelectorEventLoop):
        interruption = None

        def remove_reader(self, fd):
            interruption, self.interruption = self.interruption, None
            if interruption is not None:
                interruption()
            return super().remove_reader(fd)

    async def main(loop, errors):
        loop.set_exception_handler(lambda loop, context: errors.append(context))
        async with serve(lambda peer: peer.accept()) as server:
            transport, listener = await ws_connect(Recorder, server.url)
            beneath = transport.underlying_transport
            loop.interruption = getattr(beneath, ways[1])
            getattr(beneath, ways[0])()
            await transport.wait_disconnected()
            await asyncio.sleep(0)
            assert listener.events.count("disconnected") == 1

    loop = Interrupted()
    errors = []
    loop.run_until_complete(main(loop, errors))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert errors == []

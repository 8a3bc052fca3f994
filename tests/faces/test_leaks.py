"""Nothing is left of a connection: descriptors, objects, memory, reference cycles."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from collections import Counter

import pytest
from support import certificates, frames
from support.frames import PING, text
from support.listeners import Recorder
from support.memory import until_flat
from support.mock import Wire
from support.servers import Peer, echo, serve

from wsfast import Tuning, WSMsgType, ws_connect


class Mine(Recorder):
    """So that this test's listeners can be counted."""


def objects() -> Counter:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def connect_and_end(number: int, url: str, **options) -> weakref.ref:
    transport, listener = await ws_connect(Mine, url, **options)
    transport.send(WSMsgType.BINARY, frames.pattern(1000 + number % 100))
    await listener.received(1)
    if number % 3 == 0:
        transport.abort()
    elif number % 3 == 1:
        transport.send_close(1000)
    else:
        transport.disconnect()
    await transport.wait_disconnected()
    return weakref.ref(transport)


@pytest.mark.parametrize(
    ("tls", "warm_up", "count"),
    [(None, 100, 900), (certificates.client_context, 60, 140), (certificates.client_settings, 60, 140)],
    ids=certificates.WAYS,
)
async def test_reconnects_leave_descriptors_objects_and_memory_flat(tls, warm_up, count):
    context = tls and tls()
    options = {"ssl_context": context, "enable_auto_ping": True}
    async with serve(echo, ssl_context=certificates.server_context() if tls else None) as server:
        for number in range(warm_up):
            await connect_and_end(number, server.url, **options)
        await asyncio.sleep(0.01)
        objects()  # the first Counter leaves some itself
        before, open_before = objects(), descriptors()
        for _ in until_flat(4 << 20):
            alive = [await connect_and_end(number, server.url, **options) for number in range(count)]
        await asyncio.sleep(0.01)
        after = objects()
        assert [ref for ref in alive if ref() is not None] == []
        grown = {
            name: after[name] - before[name] for name in after if after[name] - before[name] > count // 10
        }
        grown.pop("ReferenceType", None)  # those in `alive`
        assert grown == {}
        assert (after["WSTransport"], after["Mine"]) == (before["WSTransport"], before["Mine"])
        assert descriptors() <= open_before + 2


@pytest.mark.parametrize("tls", certificates.WAYS.values(), ids=certificates.WAYS)
async def test_failed_connections_leave_nothing(tls):
    async def reject(peer: Peer) -> None:
        await peer.read_request()
        peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
        await peer.rest()

    context = certificates.server_context() if tls else None
    options = {"ssl_context": tls()} if tls else {}
    before = objects()
    async with serve(reject, ssl_context=context) as server:
        for _ in range(15 if tls else 50):
            with pytest.raises(Exception, match="403"):
                await ws_connect(Mine, server.url, **options)
        await asyncio.sleep(0.01)
        after = objects()
        for name in ("WSTransport", "TLSTransport", "TLSSession", "Opening", "ClientHandshake", "Mine"):
            assert after[name] == before[name], name


# Cycles: with the collector off, everything goes when the last reference goes.

ENDS = {
    "disconnect": lambda transport: transport.disconnect(),
    "send_close": lambda transport: transport.send_close(1000),
    "abort": lambda transport: transport.abort(),
    "server's close": lambda transport: transport.send(WSMsgType.TEXT, "close"),
    "server's EOF": lambda transport: transport.send(WSMsgType.TEXT, "eof"),
    "server's reset": lambda transport: transport.send(WSMsgType.TEXT, "reset"),
}


async def obedient(peer: Peer) -> None:
    """Ends the connection as it is told."""
    await peer.accept(glued=text("a") + frames.frame(PING))
    try:
        while True:
            sent = await peer.frame()
            if sent.payload == b"close":
                peer.send(frames.close(1001))
                await peer.frames_until_close()
                return
            if sent.payload == b"eof":
                return
            if sent.payload == b"reset":
                peer.reset()
                return
            if sent.opcode == frames.CLOSE:
                peer.send(frames.frame(frames.CLOSE, sent.payload))
                return
    except (EOFError, ConnectionError):
        return


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("kind", ["plain", "TLS", "OpenSSL", "auto-ping", "gather", "the loop's"])
async def test_no_cycle_keeps_a_connection_that_is_over(end, kind):
    options = {
        "plain": {},
        "TLS": {"ssl_context": certificates.client_settings()},
        "OpenSSL": {"ssl_context": certificates.client_context()},
        "auto-ping": {"enable_auto_ping": True},
        "gather": {"tuning": Tuning(write_policy="gather")},
        "the loop's": {"use_aiofastnet": False},
    }[kind]
    async with serve(
        obedient, ssl_context=certificates.server_context() if "ssl_context" in options else None
    ) as server:
        gc.disable()
        try:
            transport, listener = await ws_connect(Mine, server.url, **options)
            await listener.received(1)
            end(transport)
            await transport.wait_disconnected()
            refs = weakref.ref(transport), weakref.ref(listener)
            del transport, listener
            for _ in range(5):
                await asyncio.sleep(0)  # the loop's handles and the transport beneath let go
            assert [ref() for ref in refs] == [None, None]
        finally:
            gc.enable()


async def test_no_cycle_is_left_by_measured_round_trips():
    async with serve(echo) as server:
        gc.collect()
        gc.disable()
        try:
            transport, listener = await ws_connect(Mine, server.url)
            await transport.measure_roundtrip_time(2)
            transport.disconnect()
            await transport.wait_disconnected()
            refs = weakref.ref(transport), weakref.ref(listener)
            del transport, listener
            for _ in range(5):
                await asyncio.sleep(0)
            assert [ref() for ref in refs] == [None, None]
        finally:
            gc.enable()


def test_no_cycle_is_left_by_an_exception_once_it_is_dropped(loop):
    def run() -> list[weakref.ref]:
        wire = Wire(loop)
        wire.feed(b"\xff")
        refs = [weakref.ref(wire.transport), weakref.ref(wire.listener)]
        wire.lose()
        return refs

    gc.collect()
    gc.disable()
    try:
        assert [ref() for ref in run()] == [None, None]
    finally:
        gc.enable()


def test_a_transport_keeps_no_listener_after_the_end(loop):
    wire = Wire(loop)
    transport, listener = wire.transport, weakref.ref(wire.listener)
    wire.lose()
    gc.disable()
    try:
        wire.listener.transport = None
        del wire
        assert listener() is None
        assert transport.is_disconnected
    finally:
        gc.enable()


def test_half_a_frame_is_freed_with_its_connection(loop):
    for _ in until_flat(8 << 20):
        for _ in range(200):
            wire = Wire(loop)
            wire.feed(frames.header(2, 1 << 20) + bytes(500_000))
            wire.lose()
        for _ in range(20_000):
            wire = Wire(loop)
            wire.feed(b"\x82\x7e\x10\x00" + bytes(100))
            wire.lose()

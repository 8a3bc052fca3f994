"""The servers of the peers: everything that is sent comes back, plain and over TLS, on both loops."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support import certificates, frames
from support.listeners import Recorder, Scripted
from support.servers import PEERS, Peer, serve

from wsfast import Tuning, WSAutoPingStrategy, WSListener, WSMsgType, ws_connect

peers = pytest.mark.parametrize("peer", PEERS)
TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])


def contexts(tls: bool):
    return (certificates.server_context(), certificates.client_context()) if tls else (None, None)


@peers
@TLS
@pytest.mark.parametrize("write_policy", ["immediate", "gather"])
async def test_messages_of_all_kinds_and_sizes_come_back_in_order(peer, tls, write_policy):
    theirs, ours = contexts(tls)
    messages: list[str | bytes] = ["", "Grüße", b"", b"\x00\xff", "\U0001f600" * 100]
    messages += [frames.pattern(size) for size in (125, 126, 127, 65535, 65536, 131072, 1 << 20)]
    async with PEERS[peer](theirs) as url:
        transport, listener = await ws_connect(
            Recorder, url, ssl_context=ours, tuning=Tuning(write_policy=write_policy)
        )
        assert transport.is_secure is tls
        for message in messages:
            transport.send(WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY, message)
        await listener.received(len(messages))
        for message, got in zip(messages, listener.frames):
            expected = message.encode() if isinstance(message, str) else message
            assert got.payload == expected
            assert got.msg_type is (WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY)
        transport.disconnect()
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 1000, "", None)


@peers
@TLS
async def test_a_corked_batch_and_fragments_come_back(peer, tls):
    theirs, ours = contexts(tls)
    async with PEERS[peer](theirs) as url:
        transport, listener = await ws_connect(Recorder, url, ssl_context=ours)
        transport.send_many(WSMsgType.TEXT, [str(number) for number in range(1000)])
        await listener.received(1000)
        assert listener.payloads == [str(number).encode() for number in range(1000)]
        with transport.cork():
            transport.send(WSMsgType.TEXT, "ab", fin=False)
            transport.send_ping(b"between")
            transport.send(WSMsgType.CONTINUATION, "cd", fin=False)
            transport.send(WSMsgType.CONTINUATION, "")
        await listener.until(lambda: b"".join(listener.payloads[1000:]).replace(b"between", b"") == b"abcd")
        transport.disconnect()
        await transport.wait_disconnected()


@peers
@TLS
async def test_the_closing_handshake_is_done_by_both_sides(peer, tls):
    theirs, ours = contexts(tls)
    async with PEERS[peer](theirs) as url:
        transport, listener = await ws_connect(Recorder, url, ssl_context=ours)
        transport.send_close(4000, "enough")
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 4000, "enough", None)
        assert transport.close_handshake.recv is not None
        assert [got.msg_type for got in listener.frames] == [WSMsgType.CLOSE]


@peers
@TLS
async def test_round_trips_are_measured(peer, tls):
    theirs, ours = contexts(tls)
    async with PEERS[peer](theirs) as url:
        transport, _ = await ws_connect(WSListener, url, ssl_context=ours)
        assert len(await transport.measure_roundtrip_time(3)) == 3
        transport.disconnect()
        await transport.wait_disconnected()


@peers
async def test_many_connections_of_one_thread_trade_at_once(peer):
    async with PEERS[peer]() as url:
        pairs = [await ws_connect(Recorder, url) for _ in range(20)]
        for number, (transport, _) in enumerate(pairs):
            for size in (10, 1000, 50_000):
                transport.send(WSMsgType.BINARY, frames.pattern(size, number))
        for number, (_, listener) in enumerate(pairs):
            await listener.received(3)
            assert listener.payloads == [frames.pattern(size, number) for size in (10, 1000, 50_000)]
        for transport, _ in pairs:
            transport.disconnect()
        await asyncio.gather(*[transport.wait_disconnected() for transport, _ in pairs])


@TLS
async def test_bursts_from_on_ws_connected_while_pings_fire_and_the_socket_blocks(tls):
    """A re-entrant TLS write broke others (cpython #106028, websockets #817, picows #40)."""
    theirs, ours = contexts(tls)
    count = 60

    async def slow(peer: Peer) -> list[int]:
        """Lets the client's socket block, but shows signs of life."""

        async def live() -> None:
            while True:
                peer.send(frames.text("alive"))
                await asyncio.sleep(0.005)

        await peer.accept()
        peer.writer.transport.pause_reading()
        living = asyncio.ensure_future(live())
        await go.wait()
        peer.writer.transport.resume_reading()
        got = await peer.frames_until_close()
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living
        binary = [sent.payload for sent in got if sent.opcode == frames.BINARY]
        assert binary == [frames.pattern(100_000, number) for number in range(count)]
        return [sent.opcode for sent in got if sent.opcode != frames.BINARY]

    def burst(self, transport):
        for number in range(count):
            transport.send(WSMsgType.BINARY, frames.pattern(100_000, number))

    def ping(self, transport):
        transport.send_ping(b"x" * 125)
        self.note("ping")

    go = asyncio.Event()
    Burst = type("Burst", (Scripted,), {"send_user_specific_ping": ping})  # noqa: N806
    async with serve(slow, ssl_context=theirs, receive_buffer=65536) as server:
        transport, listener = await ws_connect(
            lambda: Burst(on_ws_connected=burst),
            server.url,
            ssl_context=ours,
            enable_auto_ping=True,
            auto_ping_idle_timeout=0.1,
            auto_ping_strategy=WSAutoPingStrategy.PING_PERIODICALLY,
            auto_ping_reply_timeout=0.1,
        )
        assert transport.write_buffer_size > 1_000_000
        await listener.until(lambda: listener.events.count("ping") >= 5)
        assert transport.write_buffer_size > 1_000_000
        go.set()
        await listener.until(lambda: "resume" in listener.events)
        transport.disconnect()
        opcodes = await server.result()
        assert opcodes.count(frames.PING) >= 5
        await transport.wait_disconnected()

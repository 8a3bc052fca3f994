"""One surface: what every face has, by the same names."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support import frames
from support.awaiting import awaitable
from support.faces import FACES, End
from support.frames import texts
from support.servers import echo, serve
from support.surface import connected

from wsfast import ConnectionClosed, WSDisconnectInfo, WSStats

every_face = pytest.mark.parametrize("face", FACES)


async def one_after_the_other(peer):
    """Answers each message by how many frames came in one piece."""
    await peer.accept()
    with suppress(ConnectionError):
        while data := await peer.reader.read(1 << 20):
            got = list(peer._parser.feed(data))
            *others, last = got if got[-1].opcode == frames.CLOSE else (*got, None)
            if others:
                peer.send(frames.text(" ".join(sent.payload.decode() for sent in others)))
            if last is not None:
                peer.send(frames.frame(frames.CLOSE, last.payload))
                return


@every_face
async def test_stats_are_counted_alike(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        assert isinstance(before, WSStats)
        await handle.client.send("x" * 200)
        assert await handle.client.recv() == "x" * 200
        after = handle.own.stats
        counted = WSStats(*(late - early for early, late in zip(before, after)))
        assert counted._replace(poll_hits=0, poll_misses=0) == WSStats(
            frames_received=1,
            bytes_received=204,
            reads=1,
            frames_sent=1,
            bytes_sent=208,
            writes=1,
            frames_gathered=0,
            longest_backlog=0,
            poll_hits=0,
            poll_misses=0,
            empty_wakeups=0,
        )
        assert before.bytes_received > 100  # the server's reply
        await handle.client.close()
        assert handle.own.stats.frames_sent == after.frames_sent + 1


@every_face
async def test_what_the_kernel_does_not_take_is_the_longest_backlog(face):
    async def handler(peer):
        await peer.accept()
        await go_on.wait()
        await peer.frame()

    go_on = asyncio.Event()
    async with serve(handler, receive_buffer=4096) as server, connected(face, server.url) as handle:
        sending = asyncio.ensure_future(handle.client.send(bytes(20_000_000)))
        await asyncio.sleep(0)
        go_on.set()
        with suppress(End):
            await sending
        assert handle.own.stats.longest_backlog > 100_000


@every_face
async def test_corked_messages_leave_together(face):
    async with serve(one_after_the_other) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        await handle.send_corked("a", "b", "c")
        assert await handle.client.recv() == "a b c"
        after = handle.own.stats
        assert (after.frames_gathered - before.frames_gathered, after.writes - before.writes) == (3, 1)
        await handle.client.send("d")
        assert await handle.client.recv() == "d"


@every_face
async def test_many_messages_leave_in_one_write(face):
    async with serve(one_after_the_other) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        await handle.send_many(str(i) for i in range(20))
        assert await handle.client.recv() == " ".join(map(str, range(20)))
        assert handle.own.stats.writes - before.writes == 1
        with pytest.raises(TypeError, match="int"):
            await handle.send_many(["x", 5])
        assert await handle.client.recv() == "x"
        await handle.send_many([])


@every_face
async def test_more_than_64_kib_leave_in_several_writes(face):
    async def handler(peer):
        await peer.accept()
        got = [await peer.frame() for _ in range(300)]
        peer.send(frames.text(str(sum(len(sent.payload) for sent in got))))
        await peer.rest()

    async with serve(handler) as server, connected(face, server.url) as handle:
        before = handle.own.stats
        await handle.send_many("x" * 1000 for _ in range(300))
        assert 4 <= handle.own.stats.writes - before.writes <= 6
        assert await handle.client.recv() == "300000"


@every_face
async def test_close_info_says_who_closed_and_how(face):
    async def handler(peer):
        await peer.accept()
        peer.send(frames.close(4001, "enough"))
        await peer.frames_until_close()

    async with serve(handler) as server, connected(face, server.url) as handle:
        while True:
            if handle.own.close_info is not None:
                break
            with pytest.raises(End):
                await handle.client.recv()
        assert handle.own.close_info == WSDisconnectInfo("remote", 4001, "enough", None)


@every_face
async def test_who_aborts_has_ended_it(face):
    async with serve(echo) as server, connected(face, server.url) as handle:
        assert handle.own.close_info is None
        handle.own.abort()
        handle.own.abort()
        with pytest.raises(End) as caught:
            await handle.client.recv()
        assert (caught.value.received, caught.value.sent, caught.value.cause) == (None, None, None)
        await handle.ended()
        assert handle.own.close_info == WSDisconnectInfo("local", 1006, "", None)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_abort_wakes_a_thread_that_waits():
    async with serve(echo) as server, connected("blocking", server.url) as handle:
        receiving = asyncio.ensure_future(handle.client.recv())
        while not (before := handle.own.stats).frames_sent:
            await asyncio.to_thread(handle.own.send, "x")
        assert await receiving == "x"
        receiving = asyncio.ensure_future(handle.client.recv())
        await asyncio.sleep(0)
        await asyncio.to_thread(handle.own.abort)
        with pytest.raises(End):
            await receiving
        assert before.reads >= 1


async def test_an_awaitable_connection_polls():
    async with awaitable() as (ws, far):
        assert ws.poll(0) is False
        far.sock.send(texts("a", "b"))
        assert ws.poll(1) is True
        assert [await ws.recv(), await ws.recv()] == ["a", "b"]
        with ws.cork():
            await ws.send("held back")
            assert ws.poll(0) is False  # and it is sent
            assert (await far.frames(1))[0].payload == b"held back"
        ws.abort()
        with pytest.raises(ConnectionClosed):
            ws.poll(1)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_blocking_cork_is_nested_and_pulled_by_who_waits():
    async with serve(one_after_the_other) as server, connected("blocking", server.url) as handle:

        def program():
            ws = handle.own
            with ws.cork():
                with ws.cork():
                    ws.send("a")
                ws.send("b")
            assert ws.recv() == "a b"
            with ws.cork():
                ws.send("c")
                ws.send("d")
                assert ws.recv() == "c d"  # it would wait without end
                ws.send("e")
                ws.pong()  # control frames do not wait
                assert ws.recv().split()[0] == "e"
            with suppress(ZeroDivisionError), ws.cork():
                ws.send("f")
                raise ZeroDivisionError
            assert ws.recv() == "f"
            cork = ws.cork()
            with pytest.raises(RuntimeError, match="more often"):
                cork.__exit__(None, None, None)
            with ws.cork():
                ws.send("g")
                ws.close()
            assert ws.recv() == "g"
            with pytest.raises(ConnectionClosed), ws.cork():
                ws.send("h")

        await handle.call(program)

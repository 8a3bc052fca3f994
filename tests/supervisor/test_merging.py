"""Two connections that lag differently are one feed: nothing is lost without a word, and nothing overtakes."""

from __future__ import annotations

import asyncio
import logging

import pytest
from scenarios import rollovers
from support import frames
from support.frames import CLOSE, TEXT, text
from support.sessions import idle, say, sessions, supervise

from wsfast import ConnectionClosedError, Tuning, WSListener
from wsfast.supervisor import Decision, Heartbeat, Rollover, State, lifecycle


class Lines:
    """A server of which a test sends every message by hand: on which connection, and when."""

    def __init__(self):
        self.peers = []
        self.sent = []

    async def __call__(self, peer):
        self.peers.append(peer)
        while (sent := await peer.frame()).opcode != CLOSE:
            if sent.opcode == TEXT:
                self.sent.append((peer.number, sent.payload.decode()))
        self.sent.append((peer.number, "CLOSE"))
        await peer.rest()

    def say(self, number, *messages):
        self.peers[number - 1].send(b"".join(map(text, messages)))

    def end(self, number, code=1000):
        """Answer CLOSE. The queue of this connection is lost."""
        self.peers[number - 1].send(frames.close(code))
        self.peers[number - 1].writer.close()

    async def until(self, condition):
        while not condition(self):  # noqa: ASYNC110
            await asyncio.sleep(0)


class Texts(WSListener):
    payload_type = str

    def __init__(self):
        self.got = Texts.got

    def on_ws_message(self, transport, msg_type, payload):
        Texts.got.append((payload, Texts.feed.stats.gaps))


class Frames(WSListener):
    def on_ws_frame(self, transport, frame):
        if frame.msg_type in (0, TEXT):
            Texts.got.append((frame.get_payload_as_utf8_text(), Texts.feed.stats.gaps))


def number(message):
    return int(message) if message.isdigit() else None


FACES = {"awaitable": (), "listener": (Texts,), "frames": (Frames,)}


class Played:
    """A feed on the second of two connections, of which the first still lives."""

    def __init__(self, face, **options):
        self.lines = Lines()
        self.face = FACES[face]
        self.options = {"rollover": Rollover(timeout=5.0), **options}
        self.got = Texts.got = []

    async def __aenter__(self):
        self._sessions = sessions(self.lines)
        server = await self._sessions.__aenter__()
        self.feed = Texts.feed = await supervise(server.url, *self.face, **self.options).__aenter__()
        self.feed.subscribe("sub", ack=lambda message: message in ("ack", b"ack"))
        self._receiving = None if self.face else asyncio.ensure_future(self._receive())
        await self.lines.until(lambda lines: (1, "sub") in lines.sent)
        self.lines.say(1, "ack")
        await self.feed.ready()
        return self

    async def __aexit__(self, *exc_info):
        self.feed.abort()
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait([self._receiving])
        await self.feed.close()
        await self._sessions.__aexit__(*exc_info)

    async def _receive(self):
        async for message in self.feed:
            self.got.append((message, self.feed.gaps))

    async def roll(self):
        rolling = asyncio.ensure_future(self.feed.roll_over())
        await self.lines.until(lambda lines: (2, "sub") in lines.sent)
        self.lines.say(2, "ack")
        assert await rolling

    async def until(self, *messages):
        while [message for message, _ in self.got][-len(messages) :] != list(messages):  # noqa: ASYNC110
            await asyncio.sleep(0)

    @property
    def data(self):
        return [(message, gaps) for message, gaps in self.got if message != "ack"]


@pytest.mark.parametrize("face", FACES)
async def test_the_new_connection_is_ahead(face):
    async with Played(
        face, key=number if face != "frames" else lambda payload: number(payload.decode())
    ) as play:
        play.lines.say(1, "1")
        await play.roll()
        play.lines.say(2, "3", "4")
        play.lines.say(1, "2")
        await play.until("2")
        assert (1, "CLOSE") not in play.lines.sent
        play.lines.say(1, "3")
        await play.lines.until(lambda lines: (1, "CLOSE") in lines.sent)
        assert play.data == [("1", 0), ("2", 0), ("3", 0)]
        play.lines.end(1)
        await play.until("4")
        play.lines.say(2, "5")
        await play.until("5")
        assert play.data == [("1", 0), ("2", 0), ("3", 0), ("4", 0), ("5", 0)]
        assert play.feed.stats.gaps == 0


@pytest.mark.parametrize("face", ["awaitable", "listener"])
async def test_the_new_connection_is_behind(face):
    async with Played(face, key=number) as play:
        play.lines.say(1, "1")
        await play.roll()
        play.lines.say(1, "2", "3", "4")
        await play.until("4")
        play.lines.say(2, "2")
        await play.lines.until(lambda lines: (1, "CLOSE") in lines.sent)
        play.lines.end(1)
        play.lines.say(2, "3", "4", "5", "5")  # the last one comes twice on its own connection
        await play.until("5", "5")
        assert [message for message, _ in play.data] == ["1", "2", "3", "4", "5", "5"]
        assert play.feed.stats.gaps == 0


@pytest.mark.parametrize("face", ["awaitable", "listener"])
async def test_the_gap_is_there_before_the_messages_behind_it(face):
    async with Played(face, rollover=Rollover(timeout=0.5)) as play:
        play.lines.say(1, "1")
        await play.roll()
        play.lines.say(2, "3", "4", "5")
        await play.lines.until(lambda lines: (1, "CLOSE") in lines.sent)
        play.lines.end(1)
        await play.until("3", "4", "5")
        assert play.data == [("1", 0), ("3", 1), ("4", 1), ("5", 1)]


async def test_what_repeats_proves_nothing_without_a_key():
    async with Played("awaitable", rollover=Rollover(timeout=0.2)) as play:
        await play.roll()
        for _ in range(3):
            play.lines.say(2, "heartbeat", "100", "heartbeat", "100")
            play.lines.say(1, "heartbeat", "100", "heartbeat", "100")
        play.lines.say(2, "a", "heartbeat", "b")
        play.lines.say(1, "a", "heartbeat", "b")
        await play.lines.until(lambda lines: (1, "CLOSE") in lines.sent)
        play.lines.end(1)
        await play.until("a", "heartbeat", "b")
        while play.feed.stats.gaps != 1:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_subscription_that_is_added_meanwhile_needs_a_proof_of_its_own():
    async with Played("awaitable", key=number) as play:
        await play.roll()
        play.feed.subscribe("more", ack=lambda message: message == "more is in")
        await play.lines.until(lambda lines: {(1, "more"), (2, "more")} <= set(lines.sent))
        play.lines.say(1, "more is in", "1")
        play.lines.say(2, "1")
        await play.until("1")
        for _ in range(50):
            await asyncio.sleep(0)
        assert (1, "CLOSE") not in play.lines.sent
        play.lines.say(2, "more is in", "2")
        play.lines.say(1, "2")
        await play.lines.until(lambda lines: (1, "CLOSE") in lines.sent)
        play.lines.end(1)
        play.lines.say(2, "3")
        await play.until("3")
        assert [message for message, _ in play.data if message.isdigit()] == ["1", "2", "3"]
        assert play.feed.stats.gaps == 0


@pytest.mark.parametrize("face", ["awaitable", "listener"])
async def test_if_the_new_connection_ends_too_soon_the_old_one_goes_on(face):
    async with Played(face, key=number) as play:
        await play.roll()
        transport = play.feed.transport
        play.lines.say(2, "3")
        play.lines.peers[1].reset()
        while play.feed.transport in (transport, None):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert play.feed.state is State.OPEN
        await play.feed.send("order")
        await play.lines.until(lambda lines: (1, "order") in lines.sent)
        play.lines.say(1, "1", "2", "3", "4")
        await play.until("1", "2", "3", "4")
        assert play.feed.stats.gaps == play.feed.stats.rollovers == 0
        assert play.feed.stats.rollovers_failed == 1


async def test_fragments_are_held_in_their_order():
    async with Played("frames", key=lambda payload: number(payload.decode())) as play:
        await play.roll()
        play.lines.peers[1].send(
            text("1") + frames.frame(TEXT, "2a", fin=False) + frames.frame(0, "2b") + text("3")
        )
        play.lines.say(1, "1")
        await play.lines.until(lambda lines: (1, "CLOSE") in lines.sent)
        play.lines.end(1)
        await play.until("2a", "2b", "3")
        assert [message for message, _ in play.data] == ["1", "2a", "2b", "3"]


@pytest.mark.parametrize("decode", [None, True, False, memoryview])
async def test_what_was_held_is_received_as_the_program_wants_it(decode):
    async with sessions(say("x"), say("a", "b")) as server:
        async with supervise(
            server.url, rollover=Rollover(timeout=0.5), tuning=Tuning(timestamps="user")
        ) as feed:
            assert await feed.recv(decode) == (b"x" if decode in (False, memoryview) else "x")
            assert await feed.roll_over()
            got = [await feed.recv(decode) for _ in range(2)]
            assert [bytes(one) if decode is memoryview else one for one in got] == (
                ["a", "b"] if decode in (None, True) else [b"a", b"b"]
            )
            assert feed.connection.last_message is not None


async def test_acknowledgements_behind_a_full_inbox():
    """More of them than an inbox holds, and no data."""

    async def script(peer):
        while (sent := await peer.frame()).opcode != CLOSE:
            peer.send(text("ack " + sent.payload.decode()))
        peer.send(frames.close(1000))

    def ack(number):
        return lambda message: message == f"ack {number}"

    async with sessions(script) as server, supervise(server.url, max_queue=4) as feed:
        for number in range(40):
            feed.subscribe(str(number), ack=ack(number))
        await feed.ready()
        assert await feed.roll_over()


async def test_close_first():
    async with sessions(idle, say("new")) as server:
        async with supervise(server.url, rollover=Rollover(overlap=False)) as feed:
            await feed.ready()
            first = feed.transport
            assert await feed.roll_over()
            assert first.is_disconnected
            assert await feed.recv() == "new"
            assert (feed.gaps, feed.stats.rollovers, feed.stats.failures) == (1, 1, {})


@pytest.mark.parametrize("overlap", [True, False])
async def test_a_connection_that_the_program_does_not_trust(overlap):
    def classify(exc):
        causes.append(exc)
        return

    causes = []
    async with sessions(say("1"), say("2")) as server:
        rollover = Rollover(overlap=overlap, timeout=0.5)
        async with supervise(server.url, rollover=rollover, classify=classify) as feed:
            with pytest.raises(TypeError, match="reason"):
                feed.drop(None)
            assert await feed.recv() == "1"
            feed.drop("wrong checksum")
            assert await feed.recv() == "2"
            assert feed.stats.rollovers == overlap
            assert [str(cause) for cause in causes] == ([] if overlap else ["wrong checksum"])


async def test_a_dropped_connection_that_cannot_be_replaced_ends():
    async def fails(peer):
        peer.reset()

    async with sessions(idle, fails, say("3")) as server:
        async with supervise(server.url, rollover=Rollover(first=bool, retry=1000)) as feed:
            await feed.ready()
            feed.drop(ValueError("wrong checksum"))
            assert await feed.recv() == "3"
            assert feed.stats.failures["ValueError"] == 1


async def test_a_rollover_that_was_asked_for_and_failed_is_not_tried_again():
    async def fails(peer):
        peer.reset()

    async with sessions(idle, fails) as server:
        async with supervise(server.url, rollover=Rollover(first=bool, retry=0.001)) as feed:
            await feed.ready()
            assert not await feed.roll_over()
            await asyncio.sleep(0.05)
            assert feed.stats.rollovers_failed == 1


async def test_a_code_without_an_end_of_the_connection_is_the_reason():
    def classify(exc):
        return Decision.GIVE_UP if isinstance(exc, ConnectionClosedError) and exc.rcvd.code == 4401 else None

    async def script(peer):
        peer.send(frames.close(4401))
        await peer.rest()

    async with (
        sessions(script) as server,
        supervise(server.url, classify=classify, close_timeout=0.01) as feed,
    ):
        with pytest.raises(ConnectionClosedError, match="4401"):
            await feed.recv()


async def test_a_program_that_only_sends_is_connected_again(monkeypatch, caplog):
    monkeypatch.setattr(lifecycle, "_PATIENCE", 0.01)

    async def script(peer):
        peer.send(text(f"welcome {peer.number}"))
        if peer.number < 6:
            peer.send(frames.close(1012))
            await peer.frames_until_close()
        else:
            await idle(peer)

    async with sessions(script) as server, supervise(server.url) as feed:
        while feed.stats.connects < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await feed.send("order")
        assert feed.stats.dropped == 3
        assert "receives nothing" in caplog.text
        assert [(await feed.recv(), feed.gaps) for _ in range(3)] == [
            (f"welcome {n}", feed.stats.gaps - 6 + n) for n in (4, 5, 6)
        ]


async def test_a_message_is_parsed_once_for_all_functions():
    def parse(payload):
        parsed.append(payload)
        return {"parsed": payload}

    def seen(name):
        def function(message):
            got.append((name, message["parsed"]))
            return message["parsed"] if name in ("topic", "key") else None

        return function

    parsed, got = [], []
    heartbeat = Heartbeat(1000, "ping", seen("is_reply"))
    names = ("topic", "key", "reply_id", "answer")
    options = {name: seen(name) for name in names} | {"parse": parse, "heartbeat": heartbeat}
    options["rollover"] = Rollover(when=seen("when"))
    async with sessions(say("a", "b")) as server, supervise(server.url, **options) as feed:
        feed.subscribe("sub", ack=seen("ack"))
        assert [await feed.recv() for _ in range(2)] == ["a", "b"]
        assert parsed == ["a", "b"]
        assert {name for name, _ in got} >= {"topic", "key", "answer", "is_reply", "when"}
        assert feed.stats.callback_errors == 0


async def test_a_message_that_cannot_be_parsed_is_delivered(caplog):
    async with sessions(say("a", "1")) as server, supervise(server.url, parse=int, key=abs) as feed:
        assert [await feed.recv() for _ in range(2)] == ["a", "1"]
        assert feed.stats.callback_errors == 1
        assert "exception in parse()" in caplog.text


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_without_a_word(seed, caplog):
    caplog.set_level(logging.CRITICAL)
    report = await rollovers.play(60, seed, feeds=16)
    assert not report.errors, report
    assert report.rollovers >= 60

"""The program's functions get each message, and their results are obeyed, in C while there is one connection."""

from __future__ import annotations

import asyncio

import pytest
from support.frames import CONTINUATION, frame, text
from support.sessions import idle, say, sessions, supervise

from wsfast import WSListener
from wsfast.supervisor import Heartbeat

received = []


@pytest.fixture(autouse=True)
def receives_anew():
    received.clear()


class Messages(WSListener):
    payload_type = str

    def on_ws_message(self, transport, msg_type, payload):
        received.append(payload)


class Frames(WSListener):
    def on_ws_frame(self, transport, frame):
        received.append(frame.get_payload_as_utf8_text())


async def got(feed, listener, count):
    """The first messages, or frames, that the program gets."""
    while len(received) < count:
        if listener is None:
            received.append(await feed.recv())
        else:
            await asyncio.sleep(0)
    await feed.ready()
    return received


FACES = pytest.mark.parametrize("listener", [None, Messages, Frames])


@FACES
async def test_a_message_has_a_topic_and_a_key_and_a_fragment_has_none(listener):
    """Frames that are fragments, or their sizes, must not be taken for messages."""

    def seen(name, part):
        def function(message):
            shown.append((name, message))
            return message[part]

        return function

    async def script(peer):
        await peer.frame()
        peer.send(text("a1") + text("b", fin=False) + frame(CONTINUATION, "2") + text("c3"))
        await idle(peer)

    shown = []
    options = {"topic": seen("topic", slice(1)), "key": seen("key", slice(1, 2))}
    async with sessions(script) as server, supervise(server.url, listener, **options) as feed:
        for topic in ("a", "b", b"a", b"b"):
            feed.subscribe("sub", key=topic)
        assert "".join(await got(feed, listener, 4 if listener is Frames else 3)) == "a1b2c3"
        whole = [b"a1", b"c3"] if listener is Frames else ["a1", "b2", "c3"]
        assert shown == [(name, message) for message in whole for name in ("topic", "key")]
        line = feed._life.line
        assert line.liveness.heard == ({b"a"} if listener is Frames else {"a", "b"})  # nobody watches c
        assert len(line.keys) == len(whole)
        assert all(message[1:] in line.keys for message in whole)
        assert line.keys.last == whole[-1][1:]


def failing(function):
    def fail(message):
        if "2" in message:
            raise ValueError(message)
        if "3" in message:
            raise asyncio.CancelledError
        return function(message)

    return fail


@FACES
@pytest.mark.parametrize("name", ["parse", "topic", "key", "answer", "is_reply"])
async def test_a_function_that_raises_does_not_hinder_the_others(listener, name, caplog):
    """Without a topic a message still has a key. Without a parsed message there is nothing to show."""
    functions = {"parse": as_text, "topic": str, "key": str, "answer": nothing, "is_reply": nothing}
    functions[name] = (
        failing(functions[name]) if name != "parse" else lambda message: failing(str)(as_text(message))
    )
    functions["heartbeat"] = Heartbeat(1000, "ping", functions.pop("is_reply"))
    async with sessions(say(*"1234")) as server, supervise(server.url, listener, **functions) as feed:
        for topic in "1234":
            feed.subscribe(f"sub {topic}", key=topic)
        assert await got(feed, listener, 4) == ["1", "2", "3", "4"]
        line, without = feed._life.line, {"1", "4"}
        assert line.liveness.heard == (without if name in ("parse", "topic") else set("1234"))
        assert {key for key in "1234" if key in line.keys} == (
            without if name in ("parse", "key") else set("1234")
        )
        assert feed.stats.callback_errors == 2
        assert f"exception in {name}()" in caplog.text


def as_text(message):
    return message.decode() if isinstance(message, bytes) else message


def nothing(message):
    return None


@FACES
async def test_a_key_that_cannot_be_hashed_is_no_key(listener):
    options = {"key": lambda message: [message]}
    async with sessions(say("1", "2")) as server, supervise(server.url, listener, **options) as feed:
        assert await got(feed, listener, 2) == ["1", "2"]
        assert (len(feed._life.line.keys), feed._life.line.keys.last) == (0, None)
        assert feed.stats.callback_errors == 2


@FACES
async def test_a_reply_to_a_heartbeat_is_shown_to_nobody_else(listener):
    def key(message):
        shown.append(as_text(message))

    shown = []
    heartbeat = Heartbeat(1000, "ping", lambda message: as_text(message) == "pong")
    options = {"heartbeat": heartbeat, "topic": key, "key": key}
    async with sessions(say("1", "pong", "2")) as server, supervise(server.url, listener, **options) as feed:
        assert await got(feed, listener, 2) == ["1", "2"]
        assert shown == ["1", "1", "2", "2"]
        assert feed._life.line.liveness._no_data == 1

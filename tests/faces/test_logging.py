"""Frames in the log: all that recv_streaming() gives, and whatever a filter does, the same on the wire."""

from __future__ import annotations

import contextlib
import logging

import pytest
from support import frames
from support.faces import FACES, connected
from support.frames import text
from support.listeners import Scripted
from support.mock import Wire
from support.servers import serve

from wsfast import Tuning, WSMsgType
from wsfast.exceptions import ConnectionClosed

every_face = pytest.mark.parametrize("face", FACES)


class Meddling(logging.Filter):
    """A filter that calls `meddle` with each line."""

    def __init__(self, meddle):
        super().__init__()
        self.meddle = meddle
        self.lines = []

    def filter(self, record):
        self.lines.append(record.getMessage())
        self.meddle(record.getMessage())
        return False


@pytest.fixture
def logged_to():
    """Attaches a filter to the logger of the tests for as long as the test runs."""
    logger = logging.getLogger("wsfast.test")
    level = logger.level
    attached = []

    def attach(meddle):
        attached.append(Meddling(meddle))
        logger.addFilter(attached[-1])
        logger.setLevel(logging.DEBUG)
        return attached[-1]

    yield attach
    for one in attached:
        logger.removeFilter(one)
    logger.setLevel(level)


def fail(line):
    raise LookupError("a bug of the filter")


@every_face
async def test_a_filter_that_raises_changes_nothing(face, logged_to, capsys):
    async def handler(peer):
        await peer.accept()
        got = [await peer.frame()]
        peer.send(text("hello"))
        got += await peer.frames_until_close()
        peer.send(frames.frame(frames.CLOSE, got[-1].payload))
        return [(sent.opcode, sent.payload) for sent in got]

    logged_to(fail)
    async with serve(handler) as server, connected(face, server.url, logger="test") as handle:
        await handle.client.send("x")
        assert await handle.client.recv() == "hello"
        await handle.client.close()
        assert await server.result() == [(frames.TEXT, b"x"), (frames.CLOSE, b"\x03\xe8")]
        info = handle.own.close_info
        assert (info.code, info.cause) == (1000, None)
    assert "LookupError: a bug of the filter" in capsys.readouterr().err


def test_a_filter_that_raises_does_not_hide_what_ended_the_connection(loop, logged_to, capsys):
    wire = Wire(loop, Scripted(on_ws_frame=lambda *_: 1 / 0))
    logged_to(fail)
    wire.feed(text("x"))
    assert [sent.payload for sent in wire.sent()] == [b"\x03\xf3"]
    assert isinstance(wire.end(), ZeroDivisionError)
    assert "bug of the filter" in capsys.readouterr().err
    wire = Wire(loop, Scripted(on_ws_frame=lambda *_: 1 / 0), disconnect_on_exception=False)
    wire.feed(text("x") + text("y"))
    assert wire.listener.payloads == [b"x", b"y"]
    wire.end()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a frame is logged."""


@pytest.mark.parametrize("line", ["> CLOSE", "> TEXT", "< TEXT", "> CONT"])
def test_ctrl_c_while_a_frame_is_logged_is_the_loop_s_and_the_frame_is_sent_or_delivered(loop, line):
    def log(template, description):
        if line in template % description:
            raise Interrupted

    wire = Wire(loop)
    wire.transport._log_frames(log)
    wire.transport.send(WSMsgType.TEXT, "a", fin=False)
    wire.transport.send(WSMsgType.CONTINUATION, "b")
    wire.feed(text("c"))
    wire.transport.send_close(1000)
    opcodes = [frames.TEXT, frames.CONTINUATION, frames.CLOSE]
    assert [sent.opcode for sent in wire.sent()] == opcodes
    assert wire.listener.payloads == [b"c"]
    with pytest.raises(Interrupted):
        wire.iterate()
    wire.iterate()
    wire.end()


def test_a_frame_that_is_logged_is_delivered_before_those_behind_it(loop):
    raised = []

    def log(template, description):
        if template.startswith("<"):
            try:
                wire.transport.poll(0)
            except RuntimeError as exc:
                raised.append(str(exc))

    wire = Wire(loop)
    wire.transport._log_frames(log)
    wire.feed(text("a") + text("b") + frames.frame(frames.PONG, b"c"))
    assert wire.listener.payloads == [b"a", b"b", b"c"]
    assert len(raised) == 3
    wire.end()


@pytest.mark.parametrize("frame", [text("a"), frames.frame(frames.PONG, b"a")])
@pytest.mark.parametrize("way", ["disconnect", "abort"])
def test_nothing_is_delivered_once_a_log_handler_has_ended_the_connection(loop, way, frame):
    wire = Wire(loop)

    def log(template, description):
        if template.startswith("<"):
            getattr(wire.transport, way)()

    wire.transport._log_frames(log)
    wire.feed(frame)
    assert wire.listener.payloads == []
    wire.end()


def is_of_a_frame(line):
    """Not of the request or the reply of the opening."""
    return line[0] in "<>" and " byte" in line


@every_face
async def test_what_a_log_handler_sends_is_not_logged_again(face, logged_to):
    async def handler(peer):
        await peer.accept()
        got = [await peer.frame(), await peer.frame()]
        peer.send(text("hello"))
        got += await peer.frames_until_close()
        peer.send(frames.frame(frames.CLOSE, got[-1].payload))
        return [sent.payload for sent in got]

    def send_on(line):
        if is_of_a_frame(line) and len(meddling.lines) < 100:  # or the test that fails would not end
            with contextlib.suppress(StopIteration, ConnectionClosed):
                if face == "listener":
                    handle.own.send(WSMsgType.TEXT, "logged")
                else:
                    sending = handle.own.send("logged")
                    if face == "awaitable":
                        sending.send(None)

    meddling = logged_to(send_on)
    async with serve(handler) as server, connected(face, server.url, logger="test") as handle:
        await handle.client.send("x")
        assert await handle.client.recv() == "hello"
        await handle.client.close()
        await handle.client.close()
        payloads = await server.result()
    lines = [line for line in meddling.lines if is_of_a_frame(line)]
    assert lines[:2] == ["> TEXT 'x' [1 byte]", "< TEXT 'hello' [5 bytes]"]
    closing = [line[:7] for line in lines[2:]]
    assert closing == ["> CLOSE", "< CLOSE"][: 2 if face == "blocking" else len(closing)]
    assert sorted(payloads[:2]) == [b"logged", b"x"]
    assert set(payloads[2:-1]) == {b"logged"}


def test_control_frames_that_come_while_a_line_is_logged_are_logged_behind_it(logged_to):
    from support.blocking import scripted

    from wsfast.sync.client import connect

    def script(peer):
        peer.accept()
        peer.frame()
        peer.send(frames.frame(frames.PING, b"?") + text("hello"))
        peer.answer_close()

    def ping_on(line):
        if is_of_a_frame(line):
            with contextlib.suppress(ConnectionClosed):
                ws.ping()

    log = logged_to(ping_on)
    with scripted(script) as server, connect(server.url, logger="test") as ws:
        ws.send("x")
        assert ws.recv() == "hello"
    lines = [line.split(" [")[0] for line in log.lines if is_of_a_frame(line)]
    assert lines[:4] == ["> TEXT 'x'", "< PING '?'", "> PONG '?'", "< TEXT 'hello'"]
    assert [line[:7] for line in lines[4:]] == ["> CLOSE", "< CLOSE"]


def test_frames_sent_meanwhile_are_not_logged_but_those_behind_them_are(loop):
    lines = []

    def log(template, description):
        lines.append(template % description)
        if len(lines) < 100:
            wire.transport.send(WSMsgType.TEXT, "meanwhile")

    wire = Wire(loop)
    wire.transport._log_frames(log)
    wire.transport.send(WSMsgType.TEXT, "a")
    wire.feed(text("b"))
    wire.transport.send(WSMsgType.TEXT, "c")
    assert [sent.payload for sent in wire.sent()] == [b"a", b"meanwhile", b"meanwhile", b"c", b"meanwhile"]
    assert [line[:8] for line in lines] == ["> TEXT '", "< TEXT '", "> TEXT '"]
    wire.end()


@every_face
async def test_a_bug_of_the_histogram_is_logged_and_ends_no_connection(face, caplog):
    class Broken:
        def record_value(self, nanoseconds):
            raise LookupError("a bug of the histogram")

    async def handler(peer):
        await peer.accept()
        for _ in range(3):
            peer.send(frames.frame(frames.PONG, (await peer.frame()).payload))
        peer.send(text("done"))
        await peer.answer_close()

    async with (
        serve(handler) as server,
        connected(
            face, server.url, tuning=Tuning(ping_histogram=Broken()), ping_interval=None, logger="test"
        ) as handle,
    ):
        assert len(await handle.call(handle.own.measure_roundtrip_time, 3)) == 3
        assert await handle.client.recv() == "done"
        await handle.client.close()
        assert handle.own.close_info.cause is None
    records = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in records] == ["a bug of the histogram"] * 3
    assert {record.getMessage() for record in records} == {"exception in ping_histogram.record_value()"}


@pytest.mark.parametrize("face", ["awaitable", "blocking"])
async def test_fragments_of_recv_streaming_are_logged(face, logged_to):
    async def handler(peer):
        await peer.accept()
        peer.send(
            frames.frame(frames.TEXT, b"a", fin=False) + frames.frame(frames.CONTINUATION, b"b", fin=False)
        )
        peer.send(frames.frame(frames.CONTINUATION, b"c") + frames.binary(b"\xff"))
        await peer.answer_close()

    log = logged_to(lambda line: None)
    async with serve(handler) as server, connected(face, server.url, logger="test") as handle:
        for expected in (["a", "b", "c"], [b"\xff"]):
            if face == "blocking":
                assert await handle.call(lambda: list(handle.own.recv_streaming())) == expected
            else:
                assert [piece async for piece in handle.own.recv_streaming()] == expected
        await handle.client.close()
    assert [line for line in log.lines if line.startswith("<") and " byte" in line][:4] == [
        "< TEXT 'a' [1 byte, continued]",
        "< CONT 'b' [text, 1 byte, continued]",
        "< CONT 'c' [text, 1 byte]",
        "< BINARY ff [1 byte]",
    ]


def test_ctrl_c_while_a_fragment_is_logged_loses_none(logged_to):
    from support.blocking import scripted

    from wsfast.sync.client import connect

    def script(peer):
        peer.accept()
        for number in range(3):
            peer.send(frames.frame(0 if number else frames.BINARY, b"%d" % number, fin=number == 2))
        peer.answer_close()

    interrupted = []

    def interrupt(line):
        if line.startswith(("< BINARY", "< CONT")) and line not in interrupted:
            interrupted.append(line)
            raise KeyboardInterrupt

    logged_to(interrupt)
    with scripted(script) as server, connect(server.url, logger="test") as ws:
        pieces = ws.recv_streaming()
        got = []
        while len(got) < 3:
            try:
                got.append(next(pieces))
            except KeyboardInterrupt:
                continue
        assert got == [b"0", b"1", b"2"]
        assert len(interrupted) == 3
        assert list(pieces) == []

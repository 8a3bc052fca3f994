"""Each way a connection ends: what is on the wire, and the words that close_info and close_handshake have for it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support import frames
from support.frames import CLOSE, PING, TEXT, Sent, binary, frame, text
from support.listeners import Got, Scripted
from support.mock import Wire

from wsfast import (
    ConnectionClosed,
    ProtocolError,
    WSCloseCode,
    WSCloseHandshake,
    WSCloseInfo,
    WSMsgType,
)
from wsfast._common.closing import connection_closed, cut_reason
from wsfast._engine import transport as engine
from wsfast.exceptions import Close, ConnectionClosedError, ConnectionClosedOK


@pytest.fixture
def wire(loop):
    wire = Wire(loop)
    yield wire
    if not wire.transport.is_disconnected:
        wire.lose()


# The payload that send_close() puts on the wire: (arguments, payload)
CLOSES = [
    ((), b""),
    ((0,), b""),
    ((WSCloseCode.NO_INFO,), b""),
    ((WSCloseCode.OK,), b"\x03\xe8"),
    ((1001, "bye"), b"\x03\xe9bye"),
    ((1001, b"bye"), b"\x03\xe9bye"),
    ((1001, bytearray(b"bye")), b"\x03\xe9bye"),
    ((1000, ""), b"\x03\xe8"),
    ((1000, None), b"\x03\xe8"),
    ((3000, "é"), b"\x0b\xb8" + "é".encode()),
    ((4999, "x" * 123), b"\x13\x87" + b"x" * 123),
    *[
        ((code,), code.to_bytes(2, "big"))
        for code in (1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014)
    ],
]


@pytest.mark.parametrize(("arguments", "payload"), CLOSES)
def test_send_close_sends_code_and_reason(wire, arguments, payload):
    wire.transport.send_close(*arguments)
    assert wire.sent() == [Sent(CLOSE, payload)]
    assert wire.transport.is_close_frame_sent
    assert not wire.transport.is_disconnected


def test_send_close_does_nothing_the_second_time(wire):
    wire.transport.send_close(1001, "first")
    wire.transport.send_close(1002, "second")
    assert wire.sent() == [Sent(CLOSE, b"\x03\xe9first")]
    wire.lose()
    wire.transport.send_close(1003)
    assert wire.transport.close_info == ("local", 1001, "first", EOF)


def test_after_send_close_frames_are_delivered_until_the_server_s_close(wire):
    wire.transport.send_close(1000)
    wire.feed(text("a") + binary(b"b"), frames.close(1000) + text("c"))
    assert wire.listener.frames == [Got(TEXT, b"a"), Got(2, b"b"), Got(CLOSE, b"\x03\xe8")]


def test_after_send_close_a_ping_is_not_answered(wire):
    wire.transport.send_close(1000)
    wire.sent()
    wire.feed(frame(PING, b"?"))
    assert wire.sent() == []
    assert wire.listener.frames == []


def test_after_disconnect_nothing_is_delivered(wire):
    wire.transport.disconnect()
    wire.feed(text("a") + frames.close(1000) + text("b"))
    assert wire.listener.frames == []
    assert wire.sent() == [Sent(CLOSE, b"\x03\xe8")]
    wire.lose()
    assert wire.listener.events == ["connected", "disconnected"]


@pytest.mark.parametrize("secure", [False, True])
def test_disconnect_ends_the_sending_side_and_reads_on(loop, secure):
    """Closing a socket that holds unread bytes resets it, and may destroy what was sent last. And the end of our
    side is the end of everything for some servers, so it waits for their CLOSE."""
    wire = Wire(loop, secure=secure)
    wire.transport.disconnect()
    assert wire.mock.calls == ["resume_reading"]
    wire.feed(text("late"))
    assert wire.mock.calls == ["resume_reading"]
    wire.feed(frames.close(1000, "bye"))
    ended = ["resume_reading", "resume_reading", "close" if secure else "write_eof"]
    assert wire.mock.calls == ended
    assert wire.transport.close_handshake == WSCloseHandshake(
        WSCloseInfo(1000, "bye"), WSCloseInfo(1000, None), False
    )
    wire.transport.disconnect()
    wire.transport.send_close(1001)
    assert wire.mock.calls == ended
    assert wire.listener.frames == []
    assert wire.sent() == [Sent(CLOSE, b"\x03\xe8")]
    wire.lose()
    wire.transport.disconnect()
    wire.transport.abort()
    assert "abort" not in wire.mock.calls


def test_disconnect_after_send_close_keeps_its_code(wire):
    wire.transport.send_close(4000, "mine")
    wire.transport.disconnect()
    wire.lose()
    assert wire.transport.close_info == ("local", 4000, "mine", EOF)
    assert wire.sent() == [Sent(CLOSE, b"\x0f\xa0mine")]


@pytest.mark.parametrize(
    "abort", [lambda t: t.abort(), lambda t: t.disconnect(False), lambda t: t.disconnect(graceful=0)]
)
def test_abort_sends_nothing_and_delivers_nothing(wire, abort):
    abort(wire.transport)
    assert wire.mock.calls == ["abort"]
    wire.feed(text("a") + frames.close(1000))
    assert wire.mock.writes == []
    assert wire.listener.frames == []


@pytest.mark.parametrize(
    ("payload", "echoed"),
    [
        (frames.close(), b""),
        (frames.close(1000), b"\x03\xe8"),
        (frames.close(1001, "bye"), b"\x03\xe9bye"),
        (frames.close(4999, "é" * 61), b"\x13\x87" + "é".encode() * 61),
    ],
)
def test_the_server_s_close_is_delivered_and_then_echoed(loop, payload, echoed):
    sent_before = []

    def note(self, transport, frame):
        sent_before.append(transport.is_close_frame_sent)
        transport.send(WSMsgType.TEXT, "last words")

    wire = Wire(loop, Scripted(on_ws_frame=note))
    wire.feed(payload + text("ignored") + payload)
    assert sent_before == [False]
    assert wire.listener.frames == [Got(CLOSE, echoed)]
    assert wire.sent() == [Sent(TEXT, b"last words"), Sent(CLOSE, echoed)]
    wire.feed(text("ignored"), frame(PING), b"\xff\xff")
    assert wire.sent() == []
    assert len(wire.listener.frames) == 1
    assert wire.end() is None


def test_a_callback_may_answer_the_close_itself(loop):
    def answer(self, transport, frame):
        transport.send_close(4001, "mine")

    wire = Wire(loop, Scripted(on_ws_frame=answer))
    wire.feed(frames.close(1001))
    assert wire.sent() == [Sent(CLOSE, b"\x0f\xa1mine")]
    wire.lose()
    assert wire.transport.close_handshake == WSCloseHandshake(
        WSCloseInfo(1001, None), WSCloseInfo(4001, "mine"), True
    )


def test_the_close_is_answered_even_if_the_callback_raises(loop):
    def fail(self, transport, frame):
        raise LookupError("mine")

    wire = Wire(loop, Scripted(on_ws_frame=fail))
    wire.feed(frames.close(1001))
    assert [sent.opcode for sent in wire.sent()] == [CLOSE]
    assert isinstance(wire.end(), LookupError)
    assert wire.transport.close_info[:3] == ("remote", 1001, "")


# Ends: (the action, close_info, close_handshake)
NO_INFO = WSCloseInfo(WSCloseCode.NO_INFO, None)
OK = WSCloseInfo(WSCloseCode.OK, None)
RESET = ConnectionResetError("reset")


class _AnyEOF:
    """Equal to every EOFError."""

    def __eq__(self, other):
        return isinstance(other, EOFError)

    __hash__ = None


EOF = _AnyEOF()


def local_close(wire):
    wire.transport.send_close(1000)
    wire.feed(frames.close(1000))
    wire.lose()


def local_close_with_a_reason(wire):
    wire.transport.send_close(3456, "why")
    wire.feed(frames.close(3457, "because"))
    wire.lose()


def local_empty_close(wire):
    wire.transport.send_close()
    wire.feed(frames.close())
    wire.lose()


def local_close_unanswered(wire):
    wire.transport.send_close(1001)
    wire.lose()


def local_close_then_reset(wire):
    wire.transport.send_close(1001)
    wire.lose(RESET)


def remote_close(wire):
    wire.feed(frames.close(1001, "bye"))
    wire.lose()


def remote_empty_close(wire):
    wire.feed(frames.close())
    wire.lose()


def remote_close_then_reset(wire):
    wire.feed(frames.close(1000))
    wire.lose(RESET)


def both_at_once(wire):
    wire.transport.send_close(1000)
    wire.feed(frames.close(1001, "crossed"))
    wire.lose()


def disconnect(wire):
    wire.transport.disconnect()
    wire.feed(frames.close(1000))
    wire.lose()


def abort(wire):
    wire.transport.abort()
    wire.lose()


def abort_after_close(wire):
    wire.transport.send_close(1000)
    wire.transport.abort()
    wire.lose()


def eof(wire):
    wire.transport.eof_received()
    wire.lose()


def lost(wire):
    wire.lose()


def reset(wire):
    wire.lose(RESET)


ENDS = [
    (local_close, ("local", 1000, "", None), (OK, OK, False)),
    (
        local_close_with_a_reason,
        ("local", 3456, "why", None),
        (WSCloseInfo(3457, "because"), WSCloseInfo(3456, "why"), False),
    ),
    (local_empty_close, ("local", 1005, "", None), (NO_INFO, NO_INFO, False)),
    (local_close_unanswered, ("local", 1001, "", EOF), (None, WSCloseInfo(1001, None), False)),
    (local_close_then_reset, ("local", 1001, "", RESET), (None, WSCloseInfo(1001, None), False)),
    (remote_close, ("remote", 1001, "bye", None), (WSCloseInfo(1001, "bye"), WSCloseInfo(1001, "bye"), True)),
    (remote_empty_close, ("remote", 1005, "", None), (NO_INFO, NO_INFO, True)),
    (remote_close_then_reset, ("remote", 1000, "", RESET), (OK, OK, True)),
    (both_at_once, ("local", 1000, "", None), (WSCloseInfo(1001, "crossed"), OK, False)),
    (disconnect, ("local", 1000, "", None), (OK, OK, False)),
    (abort, ("local", 1006, "", None), None),
    (abort_after_close, ("local", 1000, "", None), (None, OK, False)),
    (eof, ("remote", 1006, "", EOF), None),
    (lost, ("remote", 1006, "", EOF), None),
    (reset, ("remote", 1006, "", RESET), None),
]


@pytest.mark.parametrize(("end", "info", "handshake"), ENDS, ids=[row[0].__name__ for row in ENDS])
def test_close_info_and_close_handshake_tell_how_it_ended(wire, end, info, handshake):
    assert wire.transport.close_info is None
    end(wire)
    assert wire.transport.close_info == info
    assert wire.transport.close_handshake == handshake
    assert wire.transport.is_disconnected
    assert wire.end() is None, "what the server does within the protocol is no error"
    assert wire.listener.events[-1] == "disconnected"
    assert wire.listener.events.count("disconnected") == 1


def test_the_codes_of_close_handshake_are_members_of_the_enum_where_there_are_some(wire):
    remote_close(wire)
    assert wire.transport.close_handshake.recv.code is WSCloseCode.GOING_AWAY


def test_close_info_is_there_when_on_ws_disconnected_is_called(loop):
    seen = []

    def note(self, transport):
        seen.append((transport.close_info, transport.is_disconnected, transport.write_buffer_size))

    wire = Wire(loop, Scripted(on_ws_disconnected=note))
    remote_close(wire)
    assert seen == [(("remote", 1001, "bye", None), True, 0)]


# The exception of calls on a closed connection (RFC 6455 section 7.1.5): (received, sent, class)
OUTCOMES = [
    (None, None, ConnectionClosedError),
    (Close(1000, ""), Close(1000, ""), ConnectionClosedOK),
    (Close(1001, ""), Close(1001, ""), ConnectionClosedOK),
    (Close(1005, ""), Close(1005, ""), ConnectionClosedOK),
    (None, Close(1000, ""), ConnectionClosedError),
    (Close(1000, ""), None, ConnectionClosedError),
    (Close(1011, ""), Close(1011, ""), ConnectionClosedError),
    (Close(1000, ""), Close(4000, ""), ConnectionClosedError),
    (Close(4000, ""), Close(1000, ""), ConnectionClosedError),
    (None, Close(1002, ""), ConnectionClosedError),
]


@pytest.mark.parametrize(("received", "sent", "kind"), OUTCOMES)
@pytest.mark.parametrize("received_first", [False, True])
def test_the_exception_tells_ok_from_error_and_who_came_first(received, sent, kind, received_first):
    cause = OSError()
    error = connection_closed(received, sent, received_first, cause)
    assert error.__cause__ is cause
    assert isinstance(error, kind)
    assert type(error).__name__ == kind.__name__  # with a base of websockets, which is imported here
    assert (error.rcvd, error.sent) == (received, sent)
    assert error.rcvd_then_sent is (received_first if received and sent else None)


# The close timer


STARTS = {
    "send_close": lambda wire: wire.transport.send_close(1000),
    "disconnect": lambda wire: wire.transport.disconnect(),
    "server's close": lambda wire: wire.feed(frames.close(1000)),
    "server's EOF": lambda wire: wire.transport.eof_received(),
    "violation": lambda wire: wire.feed(b"\xff"),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_close_timeout_aborts_a_connection_whose_end_has_begun(loop, start):
    wire = Wire(loop, close_timeout=0.02)
    began = loop.time()
    start(wire)
    wire.run_until_aborted()
    assert loop.time() - began >= 0.02
    wire.lose()
    cause = wire.transport.close_info.cause
    assert isinstance(cause, TimeoutError) or ("violation" in STARTS and start is STARTS["violation"])


def test_nothing_extends_the_close_timeout(loop):
    """A server that keeps sending, and calls that close again, do not move the deadline (aiohttp #1002)."""
    wire = Wire(loop, close_timeout=0.05)
    began = loop.time()
    wire.transport.send_close(1000)

    def disturb():
        wire.transport.send_close(1000)
        wire.feed(text("more"))
        if loop.time() - began > 0.03:
            wire.transport.disconnect()
        loop.call_later(0.002, disturb)

    disturb()
    wire.run_until_aborted()
    assert 0.05 <= loop.time() - began < 1
    wire.lose()
    assert "did not close the connection within 0.05 seconds" in str(wire.transport.close_info.cause)
    assert wire.end() is None


def test_the_close_timer_ends_with_the_connection(loop):
    wire = Wire(loop, close_timeout=0.01)
    wire.transport.disconnect()
    wire.lose()
    loop.run_until_complete(asyncio.sleep(0.03))
    assert "abort" not in wire.mock.calls


@pytest.mark.parametrize(("close_timeout", "timers"), [(None, []), (7, [7])])
def test_without_close_timeout_there_is_no_timer(loop, monkeypatch, close_timeout, timers):
    started = []
    call_later = loop.call_later
    monkeypatch.setattr(
        loop, "call_later", lambda delay, *call: (started.append(delay), call_later(delay, *call))[1]
    )
    wire = Wire(loop, close_timeout=close_timeout)
    wire.transport.disconnect()
    assert started == timers
    wire.lose()


def test_a_close_timeout_of_zero_aborts_in_the_next_iteration(loop):
    wire = Wire(loop, close_timeout=0)
    wire.transport.send_close(1000)
    wire.run_until_aborted()
    wire.lose()


# wait_disconnected()


async def test_wait_disconnected_ends_after_on_ws_disconnected():
    wire = Wire(asyncio.get_running_loop())
    waiters = [asyncio.ensure_future(wire.transport.wait_disconnected()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    wire.lose()
    assert wire.listener.events == ["connected", "disconnected"]
    assert await asyncio.gather(*waiters) == [None, None, None]
    await wire.transport.wait_disconnected()


async def test_every_waiter_gets_the_exception():
    wire = Wire(asyncio.get_running_loop())
    waiters = [asyncio.ensure_future(wire.transport.wait_disconnected()) for _ in range(3)]
    await asyncio.sleep(0)
    wire.feed(b"\xff")
    wire.lose()
    results = await asyncio.gather(*waiters, return_exceptions=True)
    assert {type(result).__name__ for result in results} == {"ProtocolError"}
    with pytest.raises(type(results[0])):
        await wire.transport.wait_disconnected()


async def test_a_cancelled_waiter_leaves_the_others_waiting():
    wire = Wire(asyncio.get_running_loop())
    one, other = (asyncio.ensure_future(wire.transport.wait_disconnected()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    assert not other.done()
    assert not wire.transport.is_close_frame_sent
    wire.lose()
    await other


async def test_a_failure_that_nobody_waits_for_is_logged(caplog):
    wire = Wire(asyncio.get_running_loop())
    wire.feed(b"\xff")
    wire.lose()
    assert "ProtocolError" in caplog.text


# Between the end of the stream and connection_lost()


def test_after_the_servers_eof_nothing_can_be_sent(loop):
    wire = Wire(loop)
    wire.transport.eof_received()
    with pytest.raises(ConnectionClosedError):
        wire.transport.send(WSMsgType.TEXT, "too late")
    assert wire.sent() == []


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("", b""),
        ("x" * 123, b"x" * 123),
        ("x" * 124, b"x" * 123),
        ("é" * 62, "é".encode() * 61),
        ("\udc80", b"?"),
    ],
)
def test_a_reason_of_wsfast_s_own_is_cut_at_a_character(reason, cut):
    assert cut_reason(reason) == cut


@pytest.mark.parametrize("callback", ["on_ws_connected", "on_ws_frame", "on_ws_disconnected"])
def test_a_bug_in_a_callback_is_logged_once_with_its_traceback(loop, caplog, callback):
    def fail(self, transport, frame=None):
        raise LookupError("mine")

    wire = Wire(loop, Scripted(**{callback: fail}))
    wire.feed(text("a"))
    assert isinstance(wire.end(), LookupError)
    [record] = [record for record in caplog.records if record.name == "wsfast.test"]
    assert record.levelname == "ERROR"
    assert record.exc_info[1].args == ("mine",)
    assert "in fail" in caplog.text


def test_what_the_server_did_wrong_is_logged_without_a_traceback(loop, caplog):
    wire = Wire(loop)
    wire.feed(b"\x83\x00")
    assert isinstance(wire.end(), ProtocolError)
    [record] = [record for record in caplog.records if record.name == "wsfast.test"]
    assert record.levelname == "WARNING"
    assert not record.exc_info


def test_a_logging_handler_that_polls_or_sends_changes_nothing(loop):
    class Acting(logging.Handler):
        def emit(self, record):
            with pytest.raises(ConnectionClosed):
                wire.transport.send(TEXT, "late")
            with pytest.raises(ConnectionClosed):
                wire.transport.poll(0)

    logger = logging.Logger("acting")
    logger.addHandler(Acting())
    wire = Wire(loop, logger=logger)
    wire.feed(text("a") + b"\x83\x00" + text("b"))
    assert wire.listener.payloads == [b"a"]
    assert [sent.opcode for sent in wire.sent()] == [CLOSE]
    wire.lose()


@pytest.mark.parametrize("way", ["send_close", "disconnect", "fail"])
def test_a_finalizer_that_closes_while_a_close_frame_is_made_has_sent_the_only_one(loop, monkeypatch, way):
    """The collector may run whenever an object is made, and the Close that is noted is one."""
    wire = Wire(loop, Scripted(on_ws_frame=lambda *_: 1 / 0))

    def finalized(code, reason):
        monkeypatch.undo()
        wire.transport.send_close(1001, "the finalizer's")
        return Close(code, reason)

    monkeypatch.setattr(engine, "Close", finalized)
    if way == "fail":
        wire.feed(text("x"))
    else:
        getattr(wire.transport, way)()
    assert [(sent.opcode, sent.payload[2:]) for sent in wire.sent()] == [(frames.CLOSE, b"the finalizer's")]
    assert wire.transport.close_handshake.sent.code == 1001
    wire.end()

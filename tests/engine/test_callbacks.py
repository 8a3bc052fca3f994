"""A callback may send, close, raise, abort and drop the last reference to anything; and nothing it raises is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest
from support import frames
from support.frames import CLOSE, PING, TEXT, frame, text
from support.listeners import Recorder, Scripted
from support.mock import Wire

from wsfast import InvalidText, ProtocolError, WSListener, WSMsgType, WSProtocolError, WSTransport


def drive(loop, action, callback: str, **options) -> tuple[Wire, Scripted]:
    """Have `action(transport)` done in `callback`, once, and make all that leads there happen."""
    done = []

    def once(self, *args):
        if not done:
            done.append(True)
            action(self.transport or args[0])

    listener = Scripted(**{callback: once})
    wire = Wire(loop, listener, **options)
    if callback in ("pause_writing", "resume_writing"):
        wire.transport.pause_writing()
        wire.transport.resume_writing()
    wire.feed(text("a") + text("b"), frame(PING), text("c"))
    return wire, listener


CALLBACKS = ["on_ws_connected", "on_ws_frame", "on_ws_disconnected", "pause_writing", "resume_writing"]
callbacks = pytest.mark.parametrize("callback", CALLBACKS)
open_callbacks = pytest.mark.parametrize(
    "callback", [name for name in CALLBACKS if name != "on_ws_disconnected"]
)


@open_callbacks
def test_a_callback_may_send(loop, callback):
    wire, listener = drive(loop, lambda transport: transport.send_many(WSMsgType.TEXT, ["x", "y"]), callback)
    assert [sent.payload for sent in wire.sent()] == [b"x", b"y", b""]
    assert listener.payloads == [b"a", b"b", b"c"]
    assert wire.end() is None


@open_callbacks
def test_a_callback_may_send_close(loop, callback):
    wire, listener = drive(loop, lambda transport: transport.send_close(4000), callback)
    assert [(sent.opcode, sent.payload) for sent in wire.sent()] == [(CLOSE, b"\x0f\xa0")]
    assert listener.payloads == [b"a", b"b", b"c"], "frames are delivered until the server's CLOSE"
    assert wire.end() is None


@open_callbacks
@pytest.mark.parametrize("end", ["disconnect", "abort"])
def test_a_callback_may_disconnect_or_abort_and_gets_no_other_frame(loop, callback, end):
    wire, listener = drive(loop, lambda transport: getattr(transport, end)(), callback)
    assert listener.payloads == ([b"a"] if callback == "on_ws_frame" else [])
    assert [sent.opcode for sent in wire.sent()] == ([CLOSE] if end == "disconnect" else [])
    assert wire.end() is None


def test_in_on_ws_disconnected_closing_does_nothing_and_sending_raises(loop):
    def act(transport):
        transport.send_close(1000)
        transport.disconnect()
        transport.abort()
        transport.set_write_buffer_limits(10)
        transport.notify_user_specific_pong_received()
        transport.send(WSMsgType.TEXT, "x")

    wire, _ = drive(loop, act, "on_ws_disconnected")
    wire.sent()
    error = wire.end()
    assert type(error).__name__ == "ConnectionClosedError"
    assert wire.sent() == []
    assert wire.mock.calls == []


def raising(exc):
    def act(transport):
        raise exc

    return act


@callbacks
def test_an_exception_ends_the_connection_with_1011_and_reaches_the_waiter(loop, callback, caplog):
    wire, listener = drive(loop, raising(LookupError("mine")), callback)
    if callback == "on_ws_disconnected":
        wire.lose()
        assert wire.transport.close_info[:3] == ("remote", 1006, "")
    else:
        assert [(s.opcode, s.payload) for s in wire.sent()] == [(CLOSE, b"\x03\xf3")]
        assert listener.payloads == ([b"a"] if callback == "on_ws_frame" else [])
    error = wire.end()
    assert isinstance(error, LookupError)
    assert "LookupError: mine" in caplog.text
    if callback != "on_ws_disconnected":
        assert wire.transport.close_info == ("local", 1011, "", error)
    assert listener.events.count("disconnected") == 1


# (code, reason, what CLOSE carries)
CODED = [
    (4321, "mine", b"\x10\xe1mine"),
    (1008, "policy", b"\x03\xf0policy"),
    (3000, "", b"\x0b\xb8"),
    (1000, "é" * 100, b"\x03\xe8" + "é".encode() * 61),
    (1005, "never sent", b"\x03\xf3"),
    (1006, "never sent", b"\x03\xf3"),
    (0, "never sent", b"\x03\xf3"),
    (99999, "never sent", b"\x03\xf3"),
]


@open_callbacks
@pytest.mark.parametrize(("code", "reason", "payload"), CODED)
def test_a_wsprotocolerror_chooses_the_code_and_the_reason(loop, callback, code, reason, payload):
    exc = WSProtocolError(code, reason)
    wire, _ = drive(loop, raising(exc), callback)
    assert [(sent.opcode, sent.payload) for sent in wire.sent()] == [(CLOSE, payload)]
    assert wire.end() is exc


def test_a_subclass_of_wsprotocolerror_does_the_same(loop):
    wire, _ = drive(loop, raising(ProtocolError("wrong")), "on_ws_frame")
    assert [(sent.opcode, sent.payload) for sent in wire.sent()] == [(CLOSE, b"\x03\xeawrong")]
    wire.lose()


def test_a_reason_with_a_surrogate_cannot_be_sent_but_the_connection_ends(loop):
    exc = WSProtocolError(4000, "broken \ud800 text")
    wire, _ = drive(loop, raising(exc), "on_ws_frame")
    assert [sent.opcode for sent in wire.sent()] == [CLOSE]
    assert wire.end() is exc


def test_text_that_is_no_utf8_ends_the_connection_with_1007(loop):
    wire = Wire(loop, Scripted(on_ws_frame=lambda self, transport, frame: frame.get_payload_as_utf8_text()))
    wire.feed(text("good") + text(b"\xff") + text("never delivered"))
    [sent] = wire.sent()
    assert frames.parse_close(sent.payload)[0] == 1007
    assert len(wire.listener.frames) == 2
    assert isinstance(wire.end(), InvalidText)


@open_callbacks
def test_without_disconnect_on_exception_only_on_ws_frame_may_fail(loop, callback, caplog):
    wire, listener = drive(loop, raising(LookupError("mine")), callback, disconnect_on_exception=False)
    assert "mine" in caplog.text
    if callback == "on_ws_frame":
        assert listener.payloads == [b"a", b"b", b"c"]
        assert CLOSE not in [sent.opcode for sent in wire.sent()]
        assert wire.end() is None
        [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.exc_info[1].args == ("mine",)
    else:
        assert isinstance(wire.end(), LookupError)


@pytest.mark.parametrize("at", [1, 2, 3, 10])
def test_each_frame_that_fails_is_logged_and_none_is_delivered_twice(loop, caplog, at):
    def fail(self, transport, frame):
        raise LookupError(frame.get_payload_as_utf8_text())

    wire = Wire(loop, Scripted(on_ws_frame=fail), disconnect_on_exception=False)
    data = b"".join(text(str(number)) for number in range(10))
    wire.feed(data[: at * 3], data[at * 3 : at * 3 + 1], data[at * 3 + 1 :]) if at < 10 else wire.feed(data)
    assert wire.listener.payloads == [str(number).encode() for number in range(10)]
    assert [str(record.exc_info[1]) for record in caplog.records] == [str(number) for number in range(10)]
    wire.lose()


def test_the_first_of_several_exceptions_reaches_the_waiter_and_the_others_the_log(loop, caplog):
    def fail(self, transport, frame=None):
        raise LookupError("first" if frame else "second")

    wire = Wire(loop, Scripted(on_ws_frame=fail, on_ws_disconnected=fail))
    wire.feed(text("a"))
    error = wire.end()
    assert error.args == ("first",)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["first", "second"]


def test_a_callback_that_closes_and_raises_sends_one_close(loop):
    def act(transport):
        transport.send_close(4000)
        raise LookupError("mine")

    wire, _ = drive(loop, act, "on_ws_frame")
    assert [(sent.opcode, sent.payload) for sent in wire.sent()] == [(CLOSE, b"\x0f\xa0")]
    assert isinstance(wire.end(), LookupError)
    assert wire.transport.close_info[:3] == ("local", 4000, "")


def test_a_callback_that_aborts_and_raises_sends_nothing(loop):
    def act(transport):
        transport.abort()
        raise LookupError("mine")

    wire, listener = drive(loop, act, "on_ws_frame")
    assert wire.sent() == []
    assert listener.payloads == [b"a"]
    assert isinstance(wire.end(), LookupError)


@pytest.mark.parametrize("exc", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("callback", ["on_ws_connected", "on_ws_frame", "on_ws_disconnected"])
def test_an_interrupt_gets_out_and_ends_the_connection(loop, exc, callback):
    def interrupt(self, *args):
        raise exc

    listener = Scripted(**{callback: interrupt})
    if callback == "on_ws_connected":
        with pytest.raises(exc):
            Wire(loop, listener)
        transport = listener.transport
        transport.connection_lost(None)
    else:
        wire = Wire(loop, listener)
        transport = wire.transport
        if callback == "on_ws_frame":
            with pytest.raises(exc):
                wire.feed(text("a") + text("b"))
            assert [sent.opcode for sent in wire.sent()] == [CLOSE]
            assert listener.payloads == [b"a"]
            wire.lose()
        else:
            with pytest.raises(exc):
                wire.lose()
    assert transport.is_disconnected


@pytest.mark.parametrize("exc", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("callback", ["pause_writing", "resume_writing"])
def test_an_interrupt_gets_out_of_the_flow_control_callbacks(loop, exc, callback):
    def interrupt(self):
        raise exc

    wire = Wire(loop, Scripted(**{callback: interrupt}))
    if callback == "resume_writing":
        wire.transport.pause_writing()
    with pytest.raises(exc):
        getattr(wire.transport, callback)()
    wire.lose()


def test_a_cancellederror_of_a_callback_is_an_exception_like_others(loop):
    wire, _ = drive(loop, raising(asyncio.CancelledError()), "on_ws_frame", disconnect_on_exception=False)
    assert [sent.opcode for sent in wire.sent()] == [CLOSE]
    wire.lose()


class DropsItself(WSListener):
    """Forgets the connection, and is forgotten, inside a callback."""

    def __init__(self, holder: dict, callback: str) -> None:
        self.holder = holder
        self.callback = callback
        self.frames = 0

    def _drop(self, callback: str) -> None:
        if callback == self.callback:
            self.holder.clear()
            gc.collect()

    def on_ws_connected(self, transport: WSTransport) -> None:
        del transport
        self._drop("on_ws_connected")

    def on_ws_frame(self, transport, frame) -> None:
        del transport, frame
        self.frames += 1
        self._drop("on_ws_frame")

    def on_ws_disconnected(self, transport) -> None:
        del transport
        self._drop("on_ws_disconnected")

    def pause_writing(self) -> None:
        self._drop("pause_writing")

    def resume_writing(self) -> None:
        self._drop("resume_writing")


@pytest.mark.memory
@callbacks
def test_the_last_reference_may_be_dropped_in_a_callback(loop, callback):
    holder: dict = {}
    holder["wire"] = wire = Wire(loop, DropsItself(holder, callback))
    # The event loop, too, holds bound methods only while they are called.
    calls = [
        (wire.transport.pause_writing,),
        (wire.transport.resume_writing,),
        (wire.transport.data_received, text("a") + text("b") + frame(PING)),
        (wire.transport.connection_lost, None),
    ]
    alive = weakref.ref(wire.transport)
    del wire
    for method, *args in [calls.pop(0) for _ in range(len(calls))]:
        method(*args)
        del method
    calls.clear()
    holder.clear()
    gc.collect()
    assert alive() is None


@pytest.mark.memory
def test_a_listener_may_be_replaced_by_nobody_during_its_frames(loop):
    """The only reference to the transport is the call itself."""
    seen = []

    def drop(self, transport, frame):
        holder.clear()
        seen.append(bytes(frame))

    holder = {"wire": Wire(loop, Scripted(on_ws_frame=drop))}
    feed = holder["wire"].transport.data_received
    feed(text("a") + text("b"))
    feed(text("c"))
    assert seen == [b"a", b"b", b"c"]
    feed.__self__.connection_lost(None)


def test_on_ws_frame_of_an_instance_takes_precedence(loop):
    seen = []
    listener = Recorder()
    listener.on_ws_frame = lambda transport, frame: seen.append(bytes(frame))
    wire = Wire(loop, listener)
    wire.feed(text("a"))
    assert seen == [b"a"]
    assert listener.frames == []
    wire.lose()


def test_a_listener_that_overrides_nothing_is_fine(loop):
    wire = Wire(loop, WSListener())
    wire.feed(text("a"), frame(PING), frames.close(1000))
    assert [sent.opcode for sent in wire.sent()] == [0xA, CLOSE]
    wire.transport.pause_writing()
    wire.transport.resume_writing()
    assert wire.end() is None


def test_on_ws_frame_may_be_inherited(loop):
    class Child(Recorder):
        pass

    wire = Wire(loop, Child())
    wire.feed(text("a"))
    assert wire.listener.frames[0].msg_type is WSMsgType(TEXT)
    wire.lose()


async def test_a_callback_may_start_a_task_that_uses_the_connection():
    loop = asyncio.get_running_loop()
    tasks = []

    async def work(transport):
        await asyncio.sleep(0)
        transport.send(WSMsgType.TEXT, "x")
        transport.disconnect()
        await transport.wait_disconnected()

    def start(self, transport):
        tasks.append(loop.create_task(work(transport)))

    wire = Wire(loop, Scripted(on_ws_connected=start))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [sent.opcode for sent in wire.sent()] == [TEXT, CLOSE]
    wire.lose()
    await asyncio.gather(*tasks)

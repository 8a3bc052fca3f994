"""What arrives on an awaitable connection: a queue of frames, and the one who waits for them.

A frame that arrives is queued as it lies in the read buffer, without a copy, unless it must be inflated. When the bytes
of one read are all dispatched, the engine calls _read_done(), which runs the task that waits in recv() there and then:
no event-loop turn lies between the arrival of a message and the code that awaits it, and that code decodes the payload
out of the read buffer while it is in the cache. What nobody has taken by then is copied, so a slow program never pins
read buffers.

Text is checked as it arrives, so that what is not UTF-8 ends the connection even if nobody receives: that of fragments
by Incoming, that of whole messages by making them the str that recv() will return. Hence it is looked at once only.

Flow control counts frames, as websockets does: more than `high` of them after a read pause reading, `low` resume it.
"""

import asyncio

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.string cimport memcpy

from wsfast._engine cimport WSListener, WSTransport
from wsfast._frame cimport FrameFields, WSFrame, WSMsgType
from wsfast._messages cimport Incoming, decode as decode_text, is_text, take_reference, text_or_null
from wsfast._writer cimport State

from wsfast.exceptions import InvalidText


cdef extern from "Python.h":
    int PyContext_Enter(object context)
    int PyContext_Exit(object context)
    void PyErr_Clear()


cdef enum:
    # The ring of a connection that got a message or two.
    SMALLEST_RING = 16
    # What a queued frame counts against the slack besides its payload.
    FRAME_OVERHEAD = 64
    # Read past a full queue for the sake of a ping or of closing: as much as the default limit of a message.
    SLACK = 1024 * 1024
    # What is compressed is inflated as it is queued, all of a read, and may grow a thousandfold.
    COMPRESSED_READ_SIZE = 32 * 1024

# How long a closing connection whose queue is full waits for the receiver to take a message, in seconds.
cdef double PATIENCE = 0.25


cdef enum Outcome:
    NONE
    ARMED
    WOKEN
    CANCELLED


cdef object _current_task = asyncio.current_task


@cython.final
cdef class Waiter:
    """What a waiting recv() yields to its task: a future as far as the task can tell, but used again and again.

    A future tells its task by way of the event loop. This one can run the task at once, which is right whenever no
    other task is running: when the event loop has called the transport to read.
    """

    cdef object arm(self):
        self._asyncio_future_blocking = True
        self._outcome = Outcome.ARMED
        return self

    cdef bint is_armed(self) noexcept:
        return self._outcome == Outcome.ARMED

    cdef int wake(self, bint at_once) except -1:
        """Let the task go on: in this very call if `at_once` and possible, else in the loop's next iteration."""
        if self._outcome != Outcome.ARMED:
            return 0
        self._outcome = Outcome.WOKEN
        if self._callback is None:  # the task that was given this object has not asked to be told
            return 0
        callback, self._callback = self._callback, None
        context, self._context = self._context, None
        if not at_once or context is None or _current_task(self._loop) is not None:
            self._loop.call_soon(callback, self, context=context)
            return 0
        if PyContext_Enter(context) < 0:
            PyErr_Clear()
            self._loop.call_soon(callback, self, context=context)
            return 0
        try:
            callback(self)
        finally:
            PyContext_Exit(context)
        return 0

    # ---- what asyncio.Task calls

    def get_loop(self):
        return self._loop

    def add_done_callback(self, callback, *, context=None):
        if self._outcome == Outcome.ARMED:
            self._callback = callback
            self._context = context
        else:
            self._loop.call_soon(callback, self, context=context)

    def remove_done_callback(self, callback):
        if self._callback is None or self._callback != callback:
            return 0
        self._callback = self._context = None
        return 1

    def cancel(self, msg=None):
        if self._outcome != Outcome.ARMED:
            return False
        self._outcome = Outcome.CANCELLED
        self._message = msg
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
            self._callback = self._context = None
        return True

    def cancelled(self):
        return self._outcome == Outcome.CANCELLED

    def done(self):
        return self._outcome != Outcome.ARMED

    def result(self):
        if self._outcome == Outcome.CANCELLED:
            message, self._message = self._message, None
            raise asyncio.CancelledError() if message is None else asyncio.CancelledError(message)
        if self._outcome == Outcome.ARMED:
            raise asyncio.InvalidStateError("Result is not set.")

    def exception(self):
        self.result()


@cython.final
cdef class Inbox(WSListener):
    """The listener of an awaitable connection."""

    def __init__(self, owner, WSTransport transport not None, high, low, max_message, max_fragment):
        self.owner = owner
        self.transport = transport
        self.waiter = Waiter.__new__(Waiter)
        self.waiter._loop = transport._loop
        self._slack = SLACK
        self._high = -1 if high is None else high
        self._low = -1 if low is None else low
        self._incoming = Incoming(transport, max_message, max_fragment)
        transport._tells_read_done = True
        if not self._incoming.is_plain:
            transport._max_read = min(transport._max_read, <Py_ssize_t>COMPRESSED_READ_SIZE)

    def __dealloc__(self):
        cdef Slot *slot
        while self.frames > 0:
            slot = &self._ring[self._head]
            Py_DECREF(<object>slot.owner)
            self._head = (self._head + 1) & (self._capacity - 1)
            self.frames -= 1
        PyMem_RawFree(self._ring)

    # ---- called by the engine

    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        if not (<FrameFields>frame).msg_type & 0x08:
            self._push(frame)
        elif (<FrameFields>frame).msg_type == WSMsgType.PONG:
            self.owner._pong_received(frame.get_payload_as_bytes())

    cdef int _read_done(self, WSTransport transport) except -1:
        """All frames of a read are here."""
        if self.waiter.is_armed() and self.ready():
            self.waiter.wake(True)
        if self.frames == 0:
            self._borrowed = False
            if self._capacity > SMALLEST_RING:
                self._shrink()
        elif self._borrowed and (not self.receiving or self.waiter.is_armed()):
            self._settle()
        if self.frames > self._high >= 0:
            self._control_flow()
        return 0

    cpdef on_ws_disconnected(self, WSTransport transport):
        self.closed = True
        self._stop_waiting()
        if self._borrowed:
            self._settle()
        owner, self.owner = self.owner, None
        try:
            owner._connection_lost()
        finally:
            self.waiter.wake(False)

    cpdef resume_writing(self):
        self.owner._resume_writing()

    # ---- the queue

    cdef bint ready(self) noexcept:
        """Is there what the receiver waits for?"""
        return self.frames > 0 if self.streaming else self.messages > 0

    cdef int _push(self, WSFrame frame) except -1:
        cdef:
            Slot *slot
            FrameFields fields = frame
        if self._discarding:
            return 0
        if self.frames == self._capacity:
            self._grow()
        slot = &self._ring[(self._head + self.frames) & (self._capacity - 1)]
        slot.opcode = fields.msg_type
        slot.fin = fields.fin
        if fields.fin and fields.msg_type != WSMsgType.CONTINUATION and self._incoming.is_plain:
            Py_INCREF(fields.buffer)
            slot.owner = <PyObject *>fields.buffer
            slot.data = fields.payload_ptr
            slot.size = fields.payload_size
            self._borrowed = True
        else:
            self._note_part(frame, slot)
        self.frames += 1
        self.messages += fields.fin
        if self._reading_on and self.frames > self._high:
            self._slack -= slot.size + FRAME_OVERHEAD
        return 0

    cdef int _note_part(self, WSFrame frame, Slot *slot) except -1:
        """Fill in a frame that may be a fragment, or compressed."""
        cdef:
            FrameFields fields = frame
            bytes inflated = self._incoming.add(frame)
            object owner = fields.buffer if inflated is None else inflated
        slot.data = fields.payload_ptr if inflated is None else PyBytes_AS_STRING(inflated)
        slot.size = fields.payload_size if inflated is None else PyBytes_GET_SIZE(inflated)
        if inflated is None:
            self._borrowed = True
        elif fields.msg_type == WSMsgType.TEXT and fields.fin:
            owner = decode_text(slot.data, slot.size)
            slot.data = NULL
        Py_INCREF(owner)
        slot.owner = <PyObject *>owner
        return 0

    cdef int _grow(self) except -1:
        cdef:
            Py_ssize_t capacity = max(SMALLEST_RING, 2 * self._capacity)
            Py_ssize_t first = self._capacity - self._head
            Slot *ring = <Slot *>PyMem_RawMalloc(capacity * sizeof(Slot))
        if ring == NULL:
            raise MemoryError(f"no memory for a queue of {capacity} frames")
        if self._ring != NULL:
            memcpy(ring, self._ring + self._head, first * sizeof(Slot))
            memcpy(ring + first, self._ring, self._head * sizeof(Slot))
            PyMem_RawFree(self._ring)
        self._ring = ring
        self._capacity = capacity
        self._head = 0
        self._peak = capacity
        return 0

    cdef int _shrink(self) except -1:
        """The queue is empty: give the ring back some reads after it was last full."""
        self._head = 0
        if self._peak > 0:
            self._peak -= max(1, self._peak >> 4)
            return 0
        PyMem_RawFree(self._ring)
        self._ring = NULL
        self._capacity = 0
        return 0

    cdef int _settle(self) except -1:
        """Copy the payloads that still lie in a read buffer."""
        cdef:
            Py_ssize_t i
            Slot *slot
            object payload
        self._borrowed = False
        for i in range(self.frames):
            slot = &self._ring[(self._head + i) & (self._capacity - 1)]
            if slot.data == NULL or PyBytes_CheckExact(<object>slot.owner):
                continue
            if slot.opcode == WSMsgType.TEXT and slot.fin:
                try:
                    payload = decode_text(slot.data, slot.size)
                except InvalidText as exc:
                    self._drop_from(i)
                    self.transport._fail(exc.code, f"{exc.reason} at position {exc.start}", exc)
                    return 0
                slot.data = NULL
            else:
                payload = PyBytes_FromStringAndSize(slot.data, slot.size)
                slot.data = PyBytes_AS_STRING(payload)
            Py_DECREF(<object>slot.owner)
            Py_INCREF(payload)
            slot.owner = <PyObject *>payload
        return 0

    cdef int _drop_from(self, Py_ssize_t first) except -1:
        """Forget the frames behind the first ones: nothing is received after a violation of the protocol."""
        cdef Slot *slot
        while self.frames > first:
            self.frames -= 1
            slot = &self._ring[(self._head + self.frames) & (self._capacity - 1)]
            self.messages -= slot.fin
            Py_DECREF(<object>slot.owner)
        return 0

    cdef int _pop(self, Slot *slot) except -1:
        """Move the first frame, and the reference to its owner, into `slot`."""
        slot[0] = self._ring[self._head]
        self._head = (self._head + 1) & (self._capacity - 1)
        self.frames -= 1
        self.messages -= slot.fin
        if self._slack < SLACK:
            self._slack = min(SLACK, self._slack + slot.size + FRAME_OVERHEAD)
        return 0

    cdef int _popped(self) except -1:
        if self.paused and self.frames <= self._low:
            self.resume()
        return 0

    cdef object take(self, int decode):
        """The first message, which is complete; None if it must be text and is not, see `invalid_text`."""
        cdef:
            Slot slot = self._ring[self._head]
            object owner
            PyObject *text
        if decode == BY_TYPE:
            decode = slot.opcode == WSMsgType.TEXT
        if slot.fin:
            self._pop(&slot)
            owner = <object>slot.owner
            Py_DECREF(owner)
        else:
            owner = self._join()
            slot.data = PyBytes_AS_STRING(owner)
            slot.size = PyBytes_GET_SIZE(owner)
        if self.paused:
            self._popped()
        if not decode or slot.data == NULL:
            return self._undecoded(&slot, owner, decode)
        text = text_or_null(slot.data, slot.size)
        if text == NULL:
            return self._note_invalid_text(&slot)
        return take_reference(text)

    cdef object _undecoded(self, Slot *slot, owner, bint decode):
        """The payload of a message or frame that need not be decoded, or is already; None as take() returns it."""
        if slot.data == NULL:
            return owner if decode else PyUnicode_AsUTF8String(owner)
        if PyBytes_CheckExact(owner):
            return owner
        if slot.opcode == WSMsgType.TEXT and slot.fin and not is_text(slot.data, slot.size):
            return self._note_invalid_text(slot)
        return PyBytes_FromStringAndSize(slot.data, slot.size)

    cdef object _note_invalid_text(self, Slot *slot):
        PyErr_Clear()
        try:
            return decode_text(slot.data, slot.size)
        except InvalidText as exc:
            self.invalid_text = exc
            if slot.opcode == WSMsgType.TEXT:
                self._drop_from(0)
            return None

    cdef bytes _join(self):
        """Take the fragments of the first message, and join them."""
        cdef:
            Py_ssize_t size = 0, i = 0
            Slot slot
            bytes joined
            char *end
        while True:
            slot = self._ring[(self._head + i) & (self._capacity - 1)]
            size += slot.size
            i += 1
            if slot.fin:
                break
        joined = PyBytes_FromStringAndSize(NULL, size)
        end = PyBytes_AS_STRING(joined)
        for _ in range(i):
            self._pop(&slot)
            memcpy(end, slot.data, slot.size)
            end += slot.size
            Py_DECREF(<object>slot.owner)
        return joined

    cdef object take_frame(self):
        """The first frame: its opcode, its payload, and whether it ends a message; None as take() returns it."""
        cdef:
            Slot slot
            object payload
        self._pop(&slot)
        payload = <object>slot.owner
        Py_DECREF(payload)
        if self.paused:
            self._popped()
        payload = self._undecoded(&slot, payload, False)
        return None if payload is None else (slot.opcode, payload, <bint>slot.fin)

    # ---- flow control

    cdef int _control_flow(self) except -1:
        """There are more frames than the mark allows."""
        if self.paused or self._discarding or self.closed or (self.receiving and self.waiter.is_armed()):
            return 0
        if self._reading_on and self._slack > 0:
            return 0
        if self.transport._state > State.CLOSING:
            return self._discard()
        self.paused = True
        self.transport.underlying_transport.pause_reading()
        if self.transport._state == State.CLOSING:
            self._wait_for_receiver()
        return 0

    cdef int _wait_for_receiver(self) except -1:
        self._patience = self.transport._loop.call_later(PATIENCE, self._discard_or_wait, self.frames)
        return 0

    def _discard_or_wait(self, Py_ssize_t frames):
        """There were so many frames a while ago, and none has come since."""
        if self.frames < frames:
            self._wait_for_receiver()
        else:
            self._discard()

    cdef int _stop_waiting(self) except -1:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        return 0

    cdef int _discard(self) except -1:
        """Nobody may ever receive what comes now, and the server's CLOSE is behind it."""
        self._discarding = True
        self._incoming.forget()
        if self.paused:
            self.resume()
        return 0

    cdef int resume(self) except -1:
        self.paused = False
        self._stop_waiting()
        if not self.closed:
            self.transport.underlying_transport.resume_reading()
        return 0

    def read_on(self):
        """Read past a full queue, but not without bounds: something is awaited that lies behind the messages."""
        self._reading_on = True
        if self.paused and (self._slack > 0 or self.transport._state >= State.CLOSING):
            self.resume()

    def read_no_further(self):
        """What was awaited has come."""
        if self.transport._state < State.CLOSING:
            self._reading_on = False
            if self.frames > self._high >= 0:
                self._control_flow()

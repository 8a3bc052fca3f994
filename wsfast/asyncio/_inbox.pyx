"""The frames that arrive on an awaitable connection: a queue of them, and the task that waits for them.

A frame that arrives is queued as it lies in the read buffer, without a copy, unless it must be inflated. When the bytes
of one read are all dispatched, the engine calls _read_done(), which runs the task that waits in recv() there and then.
So no iteration of the event loop lies between a message and the code that awaits it, and that code decodes the payload
out of the read buffer while it is in the cache.

A frame that no task has taken by then is settled: it is copied, so a slow program never pins read buffers, and text is
checked, so text that is not UTF-8 ends the connection even if the program does not receive. It stays bytes until it is
taken: a str may be four times as large. A message that a receiver waits for is put together as its fragments arrive.

Flow control counts frames, as websockets does: more than `high` of them after a read pause reading, `low` resume it.
Amid a read it counts the memory that they cost: the rest of a read that costs too much is held back, as it came from
the wire, until there is room again.

That is overflow="pause". With any other policy the Inbox has a Policy (_overflow.pyx), which decides instead. Then
fragments are put together before they are queued: every queued frame is a whole message, and none is dropped in part.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.list cimport PyList_SetItem
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from wsfast._engine.core cimport WSF_CLOSING_PATIENCE, WSF_CLOSING_SLACK, WSF_CONTROL_BIT
from wsfast._engine.transport cimport WSListener, WSTransport
from wsfast._engine.frames.frame cimport FrameFields, WSFrame, WSMsgType
from wsfast._engine.frames.link cimport State
from wsfast._engine.messages cimport AS_TEXT, AS_VIEW, BATCH_BYTES, BY_TYPE, Fragments, Incoming, message_info
from wsfast._engine.messages cimport decode as decode_text, is_text, take_reference, text_or_null
from wsfast.asyncio._slot cimport FRAME_COST, Slot, stamp, undecoded, viewed
from wsfast.asyncio._waiter cimport Waiter

from wsfast._common.closing import reason_for
from wsfast.exceptions import InvalidText


cdef extern from "Python.h":
    PyObject *Py_NewRef(object)
    void PyErr_Clear()
    Py_ssize_t PY_SSIZE_T_MAX


cdef enum:
    # The ring of a connection that got a message or two.
    SMALLEST_RING = 16
    # The most bytes that the queue may cost: for each frame that it may hold, and at least. One message more may come.
    BYTES_PER_FRAME = 64 * 1024
    LEAST_HIGH_BYTES = 1024 * 1024
    # The rest of a compressed read waits until there is room: the less the better.
    COMPRESSED_READ_SIZE = 32 * 1024

# Seconds that a closing connection whose queue is full waits for the receiver to take a message.
cdef double PATIENCE = WSF_CLOSING_PATIENCE / 1000.0


cdef class Policy:
    """Decides about messages that arrive faster than the program receives them. See _overflow.pyx."""

    cdef int queued(self, Inbox inbox) except -1:
        return 0

    cdef bint limit(self, Inbox inbox) except -1:
        raise NotImplementedError


@cython.final
cdef class Inbox(WSListener):
    """The listener of an awaitable connection."""

    def __init__(self, owner, WSTransport transport not None, limits, Policy policy=None):
        high, low = limits.queue
        self.owner = owner
        self._policy = policy
        self.transport = transport
        self.waiter = Waiter(transport.loop)
        self._head = 1 << 24  # put_back() goes below, and the numbers of frames are never negative
        self._high = -1 if high is None else high
        self._low = -1 if low is None else low
        self._high_bytes = PY_SSIZE_T_MAX - WSF_CLOSING_SLACK
        if high is not None:
            self._high_bytes = max(min(high * BYTES_PER_FRAME, self._high_bytes), LEAST_HIGH_BYTES)
        self._most = self._high_bytes
        self._fragments = Fragments.__new__(Fragments)
        self._incoming = Incoming(transport, limits.message, limits.fragment)
        self._stamps = transport.stamps_frames
        self._choose()
        transport.notify_read_done()
        if not self._incoming.is_plain:
            transport._read_at_most(min(transport.max_read, <Py_ssize_t>COMPRESSED_READ_SIZE))

    def __dealloc__(self):
        cdef Slot *slot
        while self.frames > 0:
            self.frames -= 1
            slot = self._at(self.frames)
            Py_XDECREF(slot.owner)
            Py_XDECREF(slot.extra)
        PyMem_RawFree(self._ring)

    # ---- called by the engine

    @cython.nonecheck(False)  # the frame is looked at here
    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        # A frame that is a message, and for which there is a slot. No local variable is an object: each would cost a
        # reference counted up and down.
        cdef:
            Slot *slot
            WSMsgType msg_type
        if frame is None:
            raise TypeError("on_ws_frame() is for the engine to call")
        msg_type = (<FrameFields>frame).msg_type
        if (not self._takes_frames or not (<FrameFields>frame).fin or self.frames == self._capacity
                or (msg_type != WSMsgType.TEXT and msg_type != WSMsgType.BINARY)):
            return self._on_other_frame(frame)
        slot = self._at(self.frames)
        slot.opcode = msg_type
        slot.owner = Py_NewRef((<FrameFields>frame).buffer)
        slot.extra = NULL
        slot.data = (<FrameFields>frame).payload_ptr
        slot.size = (<FrameFields>frame).payload_size
        self._queued(slot, True)

    cdef object _on_other_frame(self, WSFrame frame):
        if not (<FrameFields>frame).msg_type & WSF_CONTROL_BIT:
            self._push(frame)
        elif (<FrameFields>frame).msg_type == WSMsgType.PONG:
            self.owner._pong_received(frame.get_payload_as_bytes())

    @cython.nonecheck(False)  # on_ws_frame() has looked at the frame, and the others are looked at here
    cdef int _push(self, WSFrame frame) except -1:
        """Queue any frame with data, unless messages are discarded."""
        cdef:
            Slot *slot
            Slot part
            bint fin = (<FrameFields>frame).fin
        if self._discarding:
            self.dropped += fin
            self.discarded += fin
            return 0
        if self._incoming is None or self.transport is None:
            raise RuntimeError("the inbox was not initialised")
        if (self._look is not None and fin and self._incoming.is_plain and not self._stamps
                and (<FrameFields>frame).msg_type != WSMsgType.CONTINUATION):
            return self._push_shown(frame)
        self.transport.begin_message()
        try:
            # These may run anything, so no slot is taken before.
            owner = self._note_part(frame, &part)
            info = message_info(self.transport, frame, self._incoming.msg_type) if self._stamps and fin else None
        finally:
            self.transport.end_message()
        if owner is None:
            return 0
        if self.frames == self._capacity:
            self._grow()
        slot = self._at(self.frames)
        slot[0] = part
        slot.owner = Py_NewRef(owner)
        slot.extra = NULL if info is None else Py_NewRef(info)
        slot.shown = False
        self._queued(slot, fin)
        if fin and self._look is not None:
            self._show()
        return 0

    cdef int _read_done(self, WSTransport transport) except -1:
        """All frames of a read are here, or held back."""
        if self.waiter.is_armed() and self.ready():
            try:
                self.waiter.wake(True)
            except BaseException:  # Ctrl-C in the task
                self._read_handed_on()
                raise
        return self._read_handed_on()

    cdef int _read_handed_on(self) except -1:
        if self.frames == 0:
            self._unsettled = False
            if self._capacity > SMALLEST_RING:
                self._shrink()
        else:
            if self._unsettled:
                if not self.receiving or self.streaming or self.waiter.is_armed():
                    self._settle(0)
                elif self._policy is not None:
                    self._settle(1)
            if self._policy is not None:
                self._policy.queued(self)
        if self.frames > self._high >= 0 or self.transport.held is not None:
            self._control_flow()
        return 0

    cdef int _frames_end(self) except -1:
        if self.owner is not None:
            self.owner._frames_end()
        return 0

    cpdef on_ws_disconnected(self, WSTransport transport):
        self.closed = True
        self._look = self.on_high_water = None
        self._stop_waiting()
        if self._unsettled:
            self._settle(0)
        owner, self.owner = self.owner, None
        try:
            owner._connection_lost()
        finally:
            self.waiter.wake(False)

    cpdef resume_writing(self):
        self.owner._resume_writing()

    # ---- the ring of frames

    cdef bint ready(self) noexcept:
        """True if the queue has the message, or the frame, that the receiver waits for."""
        return self.frames > 0 if self.streaming else self.messages > 0

    cdef int _grow(self) except -1:
        cdef:
            Py_ssize_t capacity = max(SMALLEST_RING, 2 * self._capacity)
            Py_ssize_t i
            Slot *ring = <Slot *>PyMem_RawMalloc(capacity * sizeof(Slot))
        if ring == NULL:
            raise MemoryError(f"no memory for a queue of {capacity} frames")
        for i in range(self.frames):
            ring[(self._head + i) & (capacity - 1)] = self._at(i)[0]
        self._exchange_ring(ring, capacity)
        self._peak = capacity
        return 0

    cdef int _shrink(self) except -1:
        """The queue is empty: give the ring back some reads after it was last full."""
        if self._peak > 0:
            self._peak -= max(1, self._peak >> 4)
            return 0
        self._exchange_ring(NULL, 0)
        return 0

    cdef int _exchange_ring(self, Slot *ring, Py_ssize_t capacity) except -1:
        with cython.critical_section(self):  # backlog() may read the ring in another thread
            PyMem_RawFree(self._ring)
            self._ring = ring
            self._capacity = capacity
        return 0

    cdef int _drop_from(self, Py_ssize_t first) except -1:
        """Forget the frames behind the first ones: nothing is received after a violation of the protocol."""
        cdef Slot *slot
        while self.frames > first:
            self.frames -= 1
            slot = self._at(self.frames)
            self._release(slot)
        return 0

    def forget(self):
        """Drop all messages that wait, because the program does not receive."""
        self.dropped += self.messages
        self._drop_from(0)
        if self._above:
            self._popped()

    # ---- fragments, and settling frames that no task has taken

    cdef object _note_part(self, WSFrame frame, Slot *part):
        """Note what a frame is that may be a fragment, or compressed. Returns the owner of its payload, or None if
        there is nothing to queue yet."""
        cdef:
            FrameFields fields = frame
            bytes inflated = self._incoming.add(frame)
            object owner = fields.buffer
        part.opcode = fields.msg_type
        part.data = fields.payload_ptr
        part.size = fields.payload_size
        if inflated is not None:
            owner = inflated
            part.data = PyBytes_AS_STRING(inflated)
            part.size = PyBytes_GET_SIZE(inflated)
        if self._policy is None or (fields.fin and fields.msg_type != WSMsgType.CONTINUATION):
            return owner
        return self._note_fragment(fields.fin, part)

    cdef object _note_fragment(self, bint fin, Slot *part):
        """Put fragments together before they are queued. Returns the whole payload with the last one, else None."""
        cdef bytes payload
        self._fragments.append(part.data, part.size)
        if not fin:
            return None
        payload = PyBytes_FromStringAndSize(self._fragments.data, self._fragments.size)
        self._fragments.clear()
        part.opcode = self._incoming.msg_type
        part.data = PyBytes_AS_STRING(payload)
        part.size = PyBytes_GET_SIZE(payload)
        return payload

    cdef int _overflow(self) except -1:
        """The queue costs more than it may."""
        if self.receiving and not self.streaming and self.messages == 0:
            return self._join()  # the receiver waits for the end of this message, which is as long as it may be at most
        return self.transport.hold_back()

    cdef int _settle(self, Py_ssize_t spared) except -1:
        """No task takes these frames at once: copy the payloads that lie in a read buffer, and check those of text.

        :param spared: 1 leaves out the first message, which the receiver may be taking
        """
        cdef:
            Py_ssize_t i = self.frames
            Slot *slot
            object payload
            uint32_t now = 0 if self._policy is None else stamp()
        self._unsettled = spared > 0
        if self.messages == 0 < self.frames and self.receiving and not self.streaming:
            return self._join()
        while i > spared and not self._at(i - 1).settled:
            i -= 1
        if i > 0 == spared and not self._at(0).settled:
            i = 0  # the first one was spared before
        for i in range(i, self.frames):
            slot = self._at(i)
            if slot.settled:
                continue
            if not PyBytes_CheckExact(<object>slot.owner):
                payload = PyBytes_FromStringAndSize(slot.data, slot.size)
                slot.data = PyBytes_AS_STRING(payload)
                Py_DECREF(<object>slot.owner)
                slot.owner = Py_NewRef(payload)
            if slot.extra != NULL and slot.shown:  # so it is text; and that may be four times as large
                Py_DECREF(<object>slot.extra)
                slot.extra = NULL
            elif slot.opcode == WSMsgType.TEXT and slot.fin and not is_text(slot.data, slot.size):
                payload = <object>slot.owner
                self._drop_from(i)
                self._text_or_none(payload)
                exc, self.invalid_text = self.invalid_text, None
                self.transport._fail(exc.code, reason_for(exc), exc)
                return 0
            slot.settled = True
            slot.stamp = now
        return 0

    cdef int _join(self) except -1:
        """Put together the queued fragments, which are all that is queued: then they cost no more than their bytes."""
        cdef:
            Slot *first = self._at(0)
            Slot *slot
        if first.data != NULL:
            self._fragments.append(first.data, first.size)
            Py_DECREF(<object>first.owner)
            first.owner = NULL
            first.data = NULL
            first.settled = True
        while self.frames > 1:
            slot = self._at(1)
            self._fragments.append(slot.data, slot.size)
            Py_DECREF(<object>slot.owner)
            slot[0] = first[0]
            slot.size = self._fragments.size
            first = slot
            self._head += 1
            self.frames -= 1
            self.bytes -= FRAME_COST
        return 0

    cdef bytes _joined(self, Py_ssize_t first, Py_ssize_t *count):
        """The payload of the message that begins with this frame, and how many frames it has."""
        cdef:
            Py_ssize_t size = 0, i
            Slot *slot
            bytes joined
            char *end
        while True:
            slot = self._at(first + count[0])
            size += slot.size
            count[0] += 1
            if slot.fin:
                break
        joined = PyBytes_FromStringAndSize(NULL, size)
        end = PyBytes_AS_STRING(joined)
        for i in range(first, first + count[0]):
            slot = self._at(i)
            if slot.size > 0:
                memcpy(end, slot.data if slot.data != NULL else self._fragments.data, slot.size)
                end += slot.size
        return joined

    # ---- messages that are shown to a function

    cdef int _choose(self) except -1:
        """Choose whether on_ws_frame() may queue frames as they are."""
        self._takes_frames = (
            self._incoming.is_plain and not self._stamps and not self._discarding and self._look is None)
        return 0

    def _show_to(self, look):
        """See show_messages()."""
        self._look = look
        self._choose()

    @cython.nonecheck(False)  # _push() has looked at the frame
    cdef int _push_shown(self, WSFrame frame) except -1:
        """Show a frame that is a whole message, and queue it with the object that was shown."""
        cdef:
            Slot *slot
            PyObject *text
            object message = None, verdict = False
            int opcode = (<FrameFields>frame).msg_type
        if opcode != WSMsgType.TEXT:
            message = PyBytes_FromStringAndSize(frame.payload_ptr, (<FrameFields>frame).payload_size)
        else:
            text = text_or_null(frame.payload_ptr, (<FrameFields>frame).payload_size)
            if text == NULL:
                PyErr_Clear()  # the receiver finds that out, too
            else:
                message = take_reference(text)
        try:
            if message is not None:
                verdict = self._ask(message)
        finally:  # also if Ctrl-C came
            if verdict is False:
                if self.frames == self._capacity:
                    self._grow()
                slot = self._at(self.frames)
                slot.opcode = opcode
                slot.owner = Py_NewRef((<FrameFields>frame).buffer)
                slot.extra = NULL if message is None else Py_NewRef(message)
                slot.shown = True
                slot.data = (<FrameFields>frame).payload_ptr
                slot.size = (<FrameFields>frame).payload_size
                self._queued(slot, True)
        if verdict is not False and verdict is not True:
            verdict.append((opcode, message, None))
        return 0

    cdef int _show(self) except -1:
        """Show the message that is complete now, the last one of the queue, and forget it if it is not wanted."""
        cdef:
            Py_ssize_t first = self.frames - 1, frames = self.frames, count = 0
            int opcode
            Slot *slot
        while first > 0 and not self._at(first - 1).fin:
            first -= 1
        slot = self._at(first)
        opcode = slot.opcode
        info = None if self._at(frames - 1).extra == NULL else <object>self._at(frames - 1).extra
        message = self._joined(first, &count)
        if opcode == WSMsgType.TEXT:
            message = self._text_or_none(message)
            if message is None:
                self.invalid_text = None
                return 0  # the receiver finds that out, too
        verdict = self._ask(message)
        if verdict is not False and self.frames == frames:
            self._drop_from(first)
            if verdict is not True:
                verdict.append((opcode, message, info))
        return 0

    cdef object _ask(self, message):
        """Show the message, and return the verdict of the function that looks at messages."""
        cdef:
            bint receiving = self.receiving
            object look = self._look  # a finalizer may end the looking before it is called
        if look is None:
            return False
        # Nobody takes messages out of the queue, or reads, while the program's code runs in here.
        self.receiving = True
        self.transport.begin_message()
        try:
            return look(message)
        finally:
            self.transport.end_message()
            self.receiving = receiving

    def put_back(self, list messages):
        """Queue messages that were shown and kept out of the queue, before the frames that are in it. The program could
        not receive them before, so no policy counts them."""
        cdef:
            Slot *slot
            bytes payload
            Py_ssize_t i
        self._exempt_until = max(self._exempt_until, self._head)
        for i in range(len(messages) - 1, -1, -1):
            opcode, message, info = messages[i]
            payload = message.encode() if isinstance(message, str) else message
            if self.frames == self._capacity:
                self._grow()
            self._head -= 1
            slot = self._at(0)
            slot.opcode = opcode
            slot.owner = Py_NewRef(payload)
            slot.extra = NULL if info is None else Py_NewRef(info)
            slot.shown = False
            slot.data = PyBytes_AS_STRING(payload)
            slot.size = PyBytes_GET_SIZE(payload)
            slot.fin = slot.settled = True
            slot.stamp = 0 if self._policy is None else stamp()
            self.frames += 1
            self.messages += 1
            self.bytes += slot.size + FRAME_COST
        self.waiter.wake(False)
        if self.closed:
            return
        if self._policy is None:
            self._read_handed_on()
        else:
            self._policy.queued(self)

    # ---- taking messages

    # Only the receiver calls take(), take_many() and take_frame(), while it is `receiving`. They make what they return
    # before the frame leaves the queue: if there is no memory, it stays. Meanwhile frames may arrive, and the ring may
    # grow, so no Slot is looked at afterwards. None: text is not UTF-8, see `invalid_text`.

    @cython.nonecheck(False)  # there is only self
    cdef object take(self, int decode):
        """The first message, which is complete."""
        cdef:
            Slot *slot = self._at(0)
            PyObject *text
            object message
        if slot.extra != NULL and slot.shown and (decode == BY_TYPE or decode == (slot.opcode == WSMsgType.TEXT)):
            return self._take_shown(slot)
        if decode == BY_TYPE:
            decode = slot.opcode == WSMsgType.TEXT
        if not slot.fin:
            message = self._take_fragments(decode)
        else:
            if decode == AS_TEXT:
                text = text_or_null(slot.data, slot.size)
                if text == NULL:
                    PyErr_Clear()
                    return self._take_invalid()
                message = take_reference(text)
            else:
                message = viewed(slot) if decode == AS_VIEW else undecoded(slot)
                if message is None:
                    return self._take_invalid()
            self._pop()
        if self._above:
            self._popped()
        return message

    cdef list take_many(self, int decode, Py_ssize_t most):
        """The first messages, BATCH_BYTES of them or a little more. What cannot be taken is left for the next call,
        unless it is the first one."""
        cdef:
            Py_ssize_t count = min(most, self.messages), taken = 0, size = 0
            list messages = [None] * count  # so no memory is needed for the list once a message is taken
            object message
        try:
            while taken < count and self.messages > 0 and size < BATCH_BYTES:
                size += self._at(0).size
                message = self.take(decode)
                if message is None:
                    break
                Py_INCREF(message)  # for the list
                PyList_SetItem(messages, taken, message)
                taken += 1
                self._leaves_invalid = True
        except MemoryError:
            if taken == 0:
                raise
        finally:
            self._leaves_invalid = False
        del messages[taken:]
        return messages or None

    cdef object _take_shown(self, Slot *slot):
        """The first message, as it was shown: the receiver wants the same type."""
        message = <object>slot.extra
        self._pop()
        if self._above:
            self._popped()
        return message

    cdef object take_frame(self):
        """The first frame: its opcode, its payload, and whether it ends a message."""
        cdef:
            Slot *slot = self._at(0)
            object payload
        if slot.data == NULL:
            payload = PyBytes_FromStringAndSize(self._fragments.data, slot.size)
        else:
            payload = undecoded(slot)
        if payload is None:
            return self._take_invalid()
        frame = (slot.opcode, payload, <bint>slot.fin)
        self._pop()
        if self._above:
            self._popped()
        return frame

    cdef object _take_invalid(self):
        """The first message, of one frame: it must be text, and could not be decoded."""
        cdef:
            bint is_text_message = self._at(0).opcode == WSMsgType.TEXT
            bytes payload
            object text
        if self._leaves_invalid:
            return None
        payload = PyBytes_FromStringAndSize(self._at(0).data, self._at(0).size)
        text = self._text_or_none(payload)
        if text is None and is_text_message:
            self._drop_from(0)
        elif self.frames > 0:
            self._pop()
        return text

    cdef void _give_extra(self, Slot *slot) noexcept:
        """The first message leaves the queue with what belongs to it."""
        if not slot.shown and self.transport is not None:
            self.transport.gave_message(<object>slot.extra)
        Py_DECREF(<object>slot.extra)

    cdef object _take_fragments(self, int decode):
        """The first message, of several frames."""
        cdef Py_ssize_t count = 0
        cdef bytes joined
        if self._leaves_invalid and decode == AS_TEXT and self._at(0).opcode != WSMsgType.TEXT:
            return None  # it may be no text
        joined = self._joined(0, &count)
        if decode == AS_TEXT:
            message = self._text_or_none(joined)
        else:
            message = PyMemoryView_FromObject(joined) if decode == AS_VIEW else joined
        for _ in range(count):
            self._pop()
        return message

    cdef object _text_or_none(self, bytes payload):
        try:
            return decode_text(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        except InvalidText as exc:
            self.invalid_text = exc
            return None

    cdef int _popped(self) except -1:
        """The queue was above its high-water mark, and is shorter now."""
        if self._has_room():
            self._above = self._announced = False
            if self.paused:
                self.resume()
        return 0

    # ---- flow control

    @cython.nonecheck(False)
    cdef inline bint _has_room(self) noexcept:
        """Reading may go on after it was paused."""
        return self.frames <= self._low and self.bytes <= self._high_bytes >> 2

    cdef int _control_flow(self) except -1:
        """There are more frames than the mark allows, or the rest of a read is held back."""
        cdef:
            bint is_held = self.transport.held is not None
            bint is_awaited = self.receiving and self.waiter.is_armed()
        if self._policy is not None and self._policy.limit(self):
            return 0
        if self.paused or self._discarding or self.closed or self.transport.deferred:
            return 0
        if not is_held and (is_awaited or (self._reading_on and self.bytes <= self._most)):
            return 0
        if self.transport.state > State.CLOSING:
            return self._discard()
        self._pause()
        if is_held and (is_awaited or self._has_room()):
            return self.resume()  # but what is held back comes first
        if self.transport.state == State.CLOSING:
            self._wait_for_receiver()
        return self.rise()

    cdef int _pause(self) except -1:
        self.paused = self._above = True
        self.transport.underlying_transport.pause_reading()
        return 0

    cdef int resume(self) except -1:
        self.paused = False
        self._stop_waiting()
        if self.closed:
            return 0
        if self.transport.held is not None:
            # Not here: the caller is in the midst of something.
            self.transport.loop.call_soon(self._go_on)
        else:
            self.transport.underlying_transport.resume_reading()
        return 0

    def _go_on(self):
        """Deliver the bytes that were held back, and then read on."""
        if self.closed or self.paused:
            return
        self.transport.check_loop_callback()
        self.transport.deliver_held()
        if self.closed or self.paused or (self.transport.held is not None and not self.transport.deferred):
            return
        if not self.transport.underlying_transport.is_closing():
            self.transport.underlying_transport.resume_reading()  # or soon, if the rest is deferred

    cdef int rise(self) except -1:
        """The queue is above its high-water mark: say so once, until it has been at the low-water mark."""
        cdef bint first = not self._announced
        self._above = self._announced = True
        if first and self.on_high_water is not None:
            self.transport.loop.call_soon(self.on_high_water)
        return 0

    def read_on(self):
        """Read past a full queue, but not without bounds: the program waits for a frame behind the messages."""
        self._reading_on = True
        self._most = self._high_bytes + WSF_CLOSING_SLACK
        if self.transport.state != State.CONNECTING and not self.transport.is_open():
            # The connection is lost, or will be in a moment, behind bytes that are held back: the program may never
            # take the messages before them.
            self.transport.start_close_timer()
        if self.paused and (self.bytes <= self._most or self.transport.state >= State.CLOSING):
            self.resume()

    def read_no_further(self):
        """The frame for which read_on() was called has come."""
        if self.transport.state < State.CLOSING:
            self._reading_on = False
            self._most = self._high_bytes
            if self.frames > self._high >= 0:
                self._control_flow()

    # ---- the end of a connection with a full queue

    cdef int _wait_for_receiver(self) except -1:
        self._patience = self.transport.loop.call_later(PATIENCE, self._discard_or_wait, self.frames)
        return 0

    def _discard_or_wait(self, Py_ssize_t frames):
        """The queue had so many frames a while ago, and no frame has come since."""
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
        """Drop the messages that come now: the program may never receive them, and the server's CLOSE is behind."""
        self._discarding = True
        self._choose()
        self._incoming.forget()
        if self.paused or self.transport.held is not None:
            self.resume()
        return 0

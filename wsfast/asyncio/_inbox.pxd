cimport cython
from cpython.ref cimport Py_XDECREF

from wsfast._engine.transport cimport WSListener, WSTransport
from wsfast._engine.frames.frame cimport WSFrame
from wsfast._engine.messages cimport Fragments, Incoming
from wsfast.asyncio._slot cimport FRAME_COST, Slot
from wsfast.asyncio._waiter cimport Waiter


# Decides about messages that arrive faster than the program receives them. Without a policy reading pauses.
cdef class Policy:
    # After each read that left something in the queue.
    cdef int queued(self, Inbox inbox) except -1
    # There are more messages than the mark allows, or the rest of a read is held back. False leaves it to the Inbox,
    # which pauses reading.
    cdef bint limit(self, Inbox inbox) except -1


cdef class Inbox(WSListener):
    cdef:
        object owner                # the connection, which is notified of rare events
        WSTransport transport
        Waiter waiter

        # A ring of frames, its capacity a power of two or 0. Frames are numbered: a frame keeps its number as long as
        # it is queued, and its place is the number modulo the capacity.
        Slot *_ring
        Py_ssize_t _capacity
        readonly Py_ssize_t _head   # the number of the first frame
        Py_ssize_t _exempt_until    # frames before this one were put back, and no policy counts them
        Py_ssize_t _peak            # of `frames` during this read
        readonly Py_ssize_t frames
        Py_ssize_t messages         # how many of the queued frames end a message
        readonly Py_ssize_t bytes   # that the queued frames cost
        bint _unsettled             # the last frames are not settled
        bint _stamps                # a WSMessageInfo is kept for each message
        bint _takes_frames          # see _choose(); False before __init__()

        Incoming _incoming          # the message that is arriving
        object _look                # a function that is shown each complete message; None: messages are not shown
        Fragments _fragments        # of the first queued message, if its first fragments were put together

        # The receiver.
        bint receiving              # a recv has begun and is not over
        bint streaming              # it wants single frames
        object invalid_text         # why take() gave None
        bint _leaves_invalid        # what cannot be taken is left: recv_many() has messages to return

        # Flow control.
        Py_ssize_t _high            # frames; -1: no limit
        Py_ssize_t _low
        Py_ssize_t _high_bytes
        Py_ssize_t _most            # bytes before delivery is held back: _high_bytes, and more while reading on
        bint _reading_on            # past the marks, for a ping or for closing
        readonly bint paused
        object _patience            # the timer of a queue that is full while the connection closes
        bint _above                 # the queue has been above the high-water mark, and not at the low one since
        bint _announced             # and on_high_water was called
        public object on_high_water  # the owner's, or None
        bint _discarding
        readonly bint closed
        Policy _policy              # None: reading pauses
        readonly Py_ssize_t dropped  # messages that were received, and that the program will not get
        readonly Py_ssize_t discarded  # of these: that were not even shown, because the connection was closing
        readonly Py_ssize_t conflated  # of these: for a newer one of their key

    @cython.nonecheck(False)
    cdef inline Slot *_at(self, Py_ssize_t i) noexcept:
        """The slot of the frame with i frames before it."""
        return &self._ring[(self._head + i) & (self._capacity - 1)]

    cdef bint ready(self) noexcept
    cdef object take(self, int decode)
    cdef list take_many(self, int decode, Py_ssize_t most)
    cdef object _take_shown(self, Slot *slot)
    cdef object take_frame(self)
    cdef object _take_fragments(self, int decode)
    cdef object _take_invalid(self)
    cdef object _text_or_none(self, bytes payload)

    cdef int _read_handed_on(self) except -1
    cdef object _on_other_frame(self, WSFrame frame)
    cdef int _push(self, WSFrame frame) except -1
    @cython.nonecheck(False)
    cdef inline int _queued(self, Slot *slot, bint fin) except -1:
        """The next frame has filled this slot."""
        slot.fin = fin
        slot.settled = False
        self._unsettled = True
        self.frames += 1
        self.messages += fin
        self.bytes += slot.size + FRAME_COST
        if self.bytes > self._most:
            self._overflow()
        return 0

    cdef int _choose(self) except -1
    cdef int _push_shown(self, WSFrame frame) except -1
    cdef object _ask(self, message)
    cdef int _show(self) except -1
    cdef bytes _joined(self, Py_ssize_t first, Py_ssize_t *count)
    cdef object _note_part(self, WSFrame frame, Slot *part)
    cdef object _note_fragment(self, bint fin, Slot *part)
    cdef int _grow(self) except -1
    cdef int _shrink(self) except -1
    cdef int _exchange_ring(self, Slot *ring, Py_ssize_t capacity) except -1
    cdef int _overflow(self) except -1
    cdef int _settle(self, Py_ssize_t spared) except -1
    cdef int _join(self) except -1
    cdef int _drop_from(self, Py_ssize_t first) except -1
    @cython.nonecheck(False)
    cdef inline void _release_payload(self, Slot *slot) noexcept:
        """The slot is no longer in the ring."""
        self.messages -= slot.fin
        self.bytes -= slot.size + FRAME_COST
        if slot.owner == NULL:
            self._fragments.clear()
        Py_XDECREF(slot.owner)

    cdef inline void _release(self, Slot *slot) noexcept:
        """The slot is no longer in the ring, and its message was not taken."""
        self._release_payload(slot)
        Py_XDECREF(slot.extra)

    @cython.nonecheck(False)
    cdef inline void _pop(self) noexcept:
        """Forget the first frame."""
        cdef Slot *first = self._at(0)
        self._head += 1
        self.frames -= 1
        if first.extra != NULL:
            self._give_extra(first)
        self._release_payload(first)

    cdef void _give_extra(self, Slot *slot) noexcept
    cdef int _popped(self) except -1
    cdef bint _has_room(self) noexcept
    cdef int _control_flow(self) except -1
    cdef int _pause(self) except -1
    cdef int _wait_for_receiver(self) except -1
    cdef int _stop_waiting(self) except -1
    cdef int _discard(self) except -1
    cdef int resume(self) except -1
    cdef int rise(self) except -1

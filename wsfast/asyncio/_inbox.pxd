from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from wsfast._engine cimport WSListener, WSTransport
from wsfast._frame cimport WSFrame
from wsfast._messages cimport Incoming


cdef enum:
    # What `decode` is in C: by the type of the message, never, always.
    BY_TYPE = -1
    AS_BYTES = 0
    AS_TEXT = 1


# A queued frame. `owner` keeps `data` valid: the read buffer it lies in, or a bytes object that is just this payload.
# It may also be a str, a whole message of text; then `data` is NULL.
cdef struct Slot:
    PyObject *owner
    const char *data
    Py_ssize_t size
    uint8_t opcode
    uint8_t fin


cdef class Waiter:
    cdef:
        public bint _asyncio_future_blocking
        object _loop
        object _callback
        object _context
        object _message             # of the cancellation
        int _outcome

    cdef object arm(self)
    cdef bint is_armed(self) noexcept
    cdef int wake(self, bint at_once) except -1


cdef class Inbox(WSListener):
    cdef:
        object owner                # the connection, told about what is rare
        WSTransport transport
        Waiter waiter

        # A ring of frames, its capacity a power of two or 0.
        Slot *_ring
        Py_ssize_t _capacity
        Py_ssize_t _head
        Py_ssize_t _peak            # of `frames` during this read
        readonly Py_ssize_t frames
        Py_ssize_t messages         # how many of the queued frames end a message
        bint _borrowed              # some payloads still lie in a read buffer

        Incoming _incoming          # the message that is arriving

        # Who receives.
        bint receiving              # a recv has begun and is not over
        bint streaming              # it wants single frames
        object invalid_text         # why take() gave None

        # Flow control, in frames.
        Py_ssize_t _high            # -1: none
        Py_ssize_t _low
        bint _reading_on            # past the mark, for the sake of a ping or of closing
        Py_ssize_t _slack           # how many more bytes
        readonly bint paused
        object _patience            # the timer of a queue that is full while the connection closes
        bint _discarding
        readonly bint closed

    cdef bint ready(self) noexcept
    cdef object take(self, int decode)
    cdef object take_frame(self)
    cdef object _undecoded(self, Slot *slot, owner, bint decode)
    cdef object _note_invalid_text(self, Slot *slot)

    cdef int _push(self, WSFrame frame) except -1
    cdef int _note_part(self, WSFrame frame, Slot *slot) except -1
    cdef int _grow(self) except -1
    cdef int _shrink(self) except -1
    cdef int _settle(self) except -1
    cdef int _drop_from(self, Py_ssize_t first) except -1
    cdef bytes _join(self)
    cdef int _pop(self, Slot *slot) except -1
    cdef int _popped(self) except -1
    cdef int _control_flow(self) except -1
    cdef int _wait_for_receiver(self) except -1
    cdef int _stop_waiting(self) except -1
    cdef int _discard(self) except -1
    cdef int resume(self) except -1

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from wsfast._engine.core cimport wsf_decoder, wsf_header, wsf_status, wsf_utf8
from wsfast._engine.frame cimport WSFrame
from wsfast._engine.memory cimport ReadBuffer
from wsfast._engine.writer cimport FrameWriter


# What its methods use is set by them alone, unless another class is named.
cdef class FrameReader(FrameWriter):
    cdef:
        wsf_decoder _decoder
        char *_rest                 # a short beginning of a frame
        Py_ssize_t _rest_size
        ReadBuffer _own             # a long one: its first _own_size bytes
        Py_ssize_t _own_size
        Py_ssize_t _own_frame       # the size of the whole: it is not delivered before it is there

        # Set by WSTransport, and by Inbox with _read_at_most().
        Py_ssize_t _max_read        # bytes to read at once, at most

        # What is left of a read because the listener has no room for more; None if nothing is. Inbox looks whether
        # something is, has it kept by _hold_back(), and takes it back by _deliver_held().
        ReadBuffer _held
        Py_ssize_t _held_size
        tuple _lost_held            # WSTransport: the arguments of connection_lost(), which came meanwhile

        # Kept by whoever puts messages together, and wants incomplete frames to be looked into.
        bint _looks_ahead
        uint64_t _frame_limit       # how long the next data frame may be, inflated
        bint _message_is_text       # that has begun
        bint _message_deflated
        wsf_utf8 _text              # what has come of it, in frames that were complete

        # The frame of which only the beginning has come, if it was looked into.
        bint _ahead_is_text
        Py_ssize_t _ahead_header
        Py_ssize_t _ahead_checked   # of its payload
        wsf_utf8 _text_ahead

        # The bytes that are being delivered: what is left of them lies from _frame_end to _read_end. A callback may
        # read on, and must deliver these first. The reference is that of _consume().
        PyObject *_reading
        Py_ssize_t _read_end
        Py_ssize_t _frame_end

        # Set by WSTransport: what the options and keepalive want to know.
        bint _expect_pong
        bint _stamp_reads           # also set by the awaitable connection, for its own pings
        bint _stamp_frames
        bint _tells_read_done       # the listener wants to know when the frames of a read are all dispatched

        # When the bytes came that were read last.
        readonly double last_received
        int64_t _received_at        # for the frames; 0 unless _stamp_frames
        int64_t _kernel_received_at
        int64_t _kernel_stamp       # SocketTransport: by the wall clock; 0: there is none

        # Read by WSTransport.stats.
        uint64_t _frames_received
        uint64_t _bytes_received
        uint64_t _reads
        uint64_t _empty_wakeups

    cdef void _tell_read_done(self) noexcept
    cdef void _woken_for_nothing(self) noexcept
    cdef void _stamp(self) noexcept
    cdef int _consume(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _deliver_rest(self) except -1
    cdef int _hold_back(self) except -1
    cdef int _hold(self, const char *data, Py_ssize_t size) except -1
    cdef int _deliver_held(self) except -1
    cdef int _drop_held(self) except -1
    cdef int _deliver(self, ReadBuffer buffer, Py_ssize_t end) except -1
    cdef uint64_t _length_in(self, const uint8_t *p, size_t size) noexcept
    cdef int _keep_rest(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end, uint64_t frame_size) except -1
    cdef int _look_ahead(self, const wsf_header *header, const char *payload, Py_ssize_t size) except -1
    cdef int _check_ahead(self, const char *payload, Py_ssize_t size) except -1

    # Overridden by WSTransport.
    cdef Py_ssize_t _upgrade(self, bytes data) except -1
    cdef int _upgraded(self) except -1
    cdef int _dispatch(self, WSFrame frame) except -1
    cdef int _dispatch_control(self, WSFrame frame) except -1
    cdef bint _is_expected_pong(self, WSFrame frame) except -1
    cdef int _violated(self, wsf_status status, uint64_t payload_size) except -1
    cdef int _invalid_text(self, bytes part) except -1
    cdef int _delivery_raised(self, exc, bint from_callback) except -1
    cdef int _read_done(self) except -1

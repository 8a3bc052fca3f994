from libc.stdint cimport uint8_t, uint64_t

from wsfast._core cimport wsf_decoder, wsf_status
from wsfast._frame cimport WSFrame
from wsfast._memory cimport ReadBuffer
from wsfast._writer cimport FrameWriter


cdef class FrameReader(FrameWriter):
    cdef:
        wsf_decoder _decoder
        char *_rest                 # a short beginning of a frame
        Py_ssize_t _rest_size
        ReadBuffer _own             # a long one: its first _own_size bytes
        Py_ssize_t _own_size
        Py_ssize_t _frame_end       # where the last dispatched frame ends, for exceptions
        bint _expect_pong
        bint _stamp_reads
        readonly double last_received
        bint _tells_read_done       # the listener wants to know when the frames of a read are all dispatched

    cdef int _consume(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _deliver(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef uint64_t _length_in(self, const uint8_t *p, size_t size) noexcept
    cdef int _keep_rest(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end, uint64_t frame_size) except -1

    # Overridden by WSTransport.
    cdef Py_ssize_t _upgrade(self, bytes data) except -1
    cdef int _dispatch(self, WSFrame frame) except -1
    cdef int _dispatch_control(self, WSFrame frame) except -1
    cdef bint _is_expected_pong(self, WSFrame frame) except -1
    cdef int _violated(self, wsf_status status, uint64_t payload_size) except -1
    cdef int _delivery_raised(self, exc, bint from_callback) except -1
    cdef int _read_done(self) except -1

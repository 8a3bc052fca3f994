cimport cython

from wsfast._engine.frames.reader cimport FrameReader
from wsfast._engine.base_transport cimport BaseTransport


cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1


# The outcome of an attempt to read the socket.
cdef enum Attempt:
    RAISED = -1
    NOTHING
    RECEIVED
    STOPPED                         # reading is paused, or the connection has ended


cdef class SocketTransport(BaseTransport):
    cdef:
        FrameReader _reader
        bytearray _unsent           # what the kernel did not take at once: _write_backlog_size bytes behind
        Py_ssize_t _taken           # those that it has taken meanwhile
        bint _write_eof             # nothing more is written,
        bint _eof_sent              # and the kernel knows
        bint _kernel_stamps
        bint _begun

    cdef Attempt read_now(self, object context) except Attempt.RAISED
    @cython.final
    cdef int _read_failed(self, object context) except -1
    @cython.final
    cdef Py_ssize_t _receive(self, char *ptr, Py_ssize_t size) except -2
    cdef bint _holds_something(self) noexcept
    @cython.final
    cdef bint _send_or_queue(self, char *ptr, Py_ssize_t size) except -1
    cdef int _queue(self, const char *ptr, Py_ssize_t size) except -1
    cdef int _all_sent(self) except -1
    cdef int _end_writing(self) except -1


cdef void acknowledge_at_once(int fd) noexcept

"""The engine, for Cython programs: ``from wsfast._engine cimport WSListener, WSTransport, WSFrame, WSMsgType``.

Subclass WSListener and override its cpdef methods: they are then called without Python in between, and so is
WSTransport.send_ptr(). Fields and methods that start with an underscore are the engine's own.
"""

from aiofastnet.transport cimport Protocol, Transport
from aiofastnet.utils cimport NoResult
from libc.stdint cimport uint8_t, uint64_t

from wsfast._core cimport wsf_decoder, wsf_status
from wsfast._frame cimport WSCloseCode, WSFrame, WSMsgType
from wsfast._memory cimport ReadBuffer, Scratch


cdef class WSListener:
    cdef object __weakref__

    cpdef on_ws_connected(self, WSTransport transport)
    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame)
    cpdef on_ws_disconnected(self, WSTransport transport)

    cpdef send_user_specific_ping(self, WSTransport transport)
    cpdef is_user_specific_pong(self, WSFrame frame)

    cpdef pause_writing(self)
    cpdef resume_writing(self)


cdef class WSTransport(Protocol):
    cdef:
        object __weakref__

        # What the connection is and whom it serves.
        object _loop
        object _logger
        object _opening             # the opening handshake, until it is over
        WSListener _listener
        object _on_frame            # the listener's on_ws_frame if that is Python, else None
        readonly object underlying_transport
        Transport _fast             # underlying_transport if it can be called from C, else None
        unsigned long _thread_id
        readonly object request
        readonly object response
        readonly object subprotocol
        readonly bint is_secure

        # Reading.
        Scratch _scratch
        wsf_decoder _decoder
        char *_rest                 # a short beginning of a frame
        Py_ssize_t _rest_size
        ReadBuffer _own             # a long one: [_own_start, _own_end) is filled
        Py_ssize_t _own_start
        Py_ssize_t _own_end
        Py_ssize_t _frame_end       # where the last dispatched frame ends, for exceptions

        # Writing.
        char *_gathered             # frames that leave together
        Py_ssize_t _gathered_size
        int _cork_depth
        bint _gather                # write_policy="gather"
        bint _flush_scheduled
        bint _sending_fragments
        bint _writing_paused
        bint _writing_large
        bint _pause_owed
        bytes _pong_owed

        # Pings.
        bint _auto_pong
        bint _stamp_reads
        readonly double last_received
        object _keepalive
        bint _expect_pong

        # The end.
        int _state
        bint _disconnect_on_exception
        bint _half_closed
        bint _aborted
        object _close_timeout
        object _close_timer
        object _close_sent
        object _close_received
        bint _received_then_sent
        object _failure
        object _cause
        readonly object close_info
        object _disconnected

    # Python's send() for callers in C: no Python object is created or looked at.
    cdef int send_ptr(self, WSMsgType msg_type, const char *payload, Py_ssize_t size, bint fin=*) except -1
    # The same, masking in place: 14 bytes before `payload` and the payload itself are overwritten.
    cdef int send_reuse_external_buffer(
        self, WSMsgType msg_type, char *payload, Py_ssize_t size,
        bint fin=*, bint rsv1=*, bint rsv2=*, bint rsv3=*) except -1

    cpdef send(self, msg_type, message, bint fin=*, bint rsv1=*, bint rsv2=*, bint rsv3=*)
    cpdef send_many(self, msg_type, messages)
    cpdef send_reuse_external_bytearray(
        self, msg_type, bytearray buffer, Py_ssize_t msg_offset,
        bint fin=*, bint rsv1=*, bint rsv2=*, bint rsv3=*)
    cpdef send_ping(self, message=*)
    cpdef send_pong(self, message=*)
    cpdef send_close(self, close_code=*, close_message=*)
    cpdef disconnect(self, bint graceful=*)
    cpdef abort(self)
    cpdef notify_user_specific_pong_received(self)

    cdef int _check_thread(self, str method) except -1
    cdef int _require_open(self) except -1
    cdef int _first_byte(self, int opcode, bint fin, bint rsv1, bint rsv2, bint rsv3) except -1
    cdef int _send_object(self, uint8_t first_byte, message) except -1
    cdef int _send_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    cdef int _gather_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    cdef int _send_large(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    cdef int _write(self, char *ptr, Py_ssize_t size) except -1
    cdef int _flush(self) except -1
    cdef int _uncork(self) except -1

    cdef int _consume(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _deliver(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _keep_rest(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end, uint64_t frame_size) except -1
    cdef int _dispatch(self, WSFrame frame) except -1
    cdef int _dispatch_control(self, WSFrame frame) except -1
    cdef int _answer_ping(self, bytes payload) except -1
    cdef int _close_frame_received(self, WSFrame frame) except -1

    cdef int _send_close_frame(self, int code, bytes reason) except -1
    cdef int _start_close_timer(self) except -1
    cdef int _drain(self) except -1

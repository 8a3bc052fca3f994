"""The head of the engine. Programs say ``from wsfast cimport WSListener, WSTransport``; what else may be used is here.

Subclass WSListener and override its cpdef methods: they are then called without Python in between, and so is
WSTransport.send_ptr(). Fields and methods that start with an underscore are the engine's own.
"""

from libc.stdint cimport uint64_t

from wsfast._engine.core cimport wsf_status
from wsfast._engine.streams cimport Inflater
from wsfast._engine.frame cimport WSCloseCode, WSFrame, WSMsgType
from wsfast._engine.methods cimport python_override
from wsfast._engine.polling cimport PollingReader
from wsfast._engine.writer cimport State


cdef class WSListener:
    cdef object __weakref__

    cpdef on_ws_connected(self, WSTransport transport)
    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame)
    cpdef on_ws_message(self, WSTransport transport, msg_type, payload)
    cpdef on_ws_disconnected(self, WSTransport transport)

    cpdef send_user_specific_ping(self, WSTransport transport)
    cpdef is_user_specific_pong(self, WSFrame frame)

    cpdef pause_writing(self)
    cpdef resume_writing(self)

    # For C only, and only if the transport's _tells_read_done is set.
    cdef int _read_done(self, WSTransport transport) except -1


cdef class WSTransport(PollingReader):
    cdef:
        object __weakref__

        object _logger
        object _opening             # the opening handshake, until it is over
        WSListener _listener
        object _on_frame            # the listener's on_ws_frame if that is Python, else None
        readonly object request
        readonly object response
        readonly object subprotocol
        readonly bint is_secure

        readonly object compression
        Inflater _inflater          # for the listener to use, if compression was negotiated

        bint _told_paused           # what the listener was told last: pause_writing() or resume_writing()

        # Pings.
        bint _auto_pong
        bytes _pong_owed
        object _keepalive
        object _ping_histogram

        bint _quickack
        int _socket_fd              # only if _quickack

        # The end.
        bint _disconnect_on_exception
        bint _disconnecting         # disconnect() was called, or something failed
        bint _drain_owed            # during a write
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

    cpdef send_close(self, close_code=*, close_message=*)
    cpdef disconnect(self, bint graceful=*)
    cpdef abort(self)
    cpdef notify_user_specific_pong_received(self)

    cdef int _answer_ping(self, bytes payload) except -1
    cdef int _close_frame_received(self, WSFrame frame) except -1
    cdef int _send_close_frame(self, int code, bytes reason, State next) except -1
    cdef int _start_close_timer(self) except -1
    cdef int _drain(self) except -1
    cdef int _drop(self) except -1

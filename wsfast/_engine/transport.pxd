"""The head of the engine. Programs say ``from wsfast cimport WSListener, WSTransport``; the rest is here.

Subclass WSListener and override its cpdef methods: they are then called without Python in between, and so is
WSTransport.send_ptr(). docs/howto/cython.md has the members that a program may use.

Fields and methods that start with an underscore are private to the engine. The others are for all folders of wsfast, if
they are C. These would be visible to programs, and are for all folders, too (a test compares):

    opening      _open _compress _keep_alive _log_frames _read_at_most _run_beneath
    its end      _fail _callback_raised _closed _set_close_timeout
    for reports  _stats _data_received
"""

cimport cython
from libc.stdint cimport uint64_t

from wsfast._engine.core cimport wsf_status
from wsfast._engine.frames.streams cimport Inflater
from wsfast._engine.frames.frame cimport WSCloseCode, WSFrame, WSMsgType
from wsfast._engine.subclasses cimport python_override
from wsfast._engine.frames.link cimport State
from wsfast._engine.sockets.polling cimport PollingReader


cdef class WSListener:
    cdef object __weakref__

    cpdef on_ws_connected(self, WSTransport transport)
    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame)
    cpdef on_ws_message(self, WSTransport transport, msg_type, payload)
    cpdef on_ws_messages(self, WSTransport transport, list messages)
    cpdef on_ws_disconnected(self, WSTransport transport)

    cpdef send_user_specific_ping(self, WSTransport transport)
    cpdef is_user_specific_pong(self, WSFrame frame)

    cpdef pause_writing(self)
    cpdef resume_writing(self)

    # For C only, and only if the transport's _notifies_read_done is set.
    cdef int _read_done(self, WSTransport transport) except -1
    # For C only.
    cdef int _failing(self, WSTransport transport) except -1
    cdef int _frames_end(self) except -1


cdef class WSTransport(PollingReader):
    cdef:
        object __weakref__

        # All of this is set here alone. Set once, when it is made:
        object _logger
        bint _auto_pong
        bint _disconnect_on_exception
        object _ping_histogram
        bint _quickack
        int _socket_fd              # only if _quickack

        # From the first byte to the upgrade, and from then to the end.
        object _opening             # the opening handshake, until it is over
        WSListener _listener        # until the connection is gone, and it was notified of that
        object _on_frame            # the Python function called for frames: the listener's on_ws_frame, say; or None

        # Set when the connection opens.
        readonly object request
        readonly object response
        readonly object subprotocol
        readonly bint is_secure

        readonly object compression
        Inflater _inflater          # for the listener to use; None: compression was not negotiated

        bint _notified_paused       # the listener's last notification was pause_writing()

        bytes _pong_owed            # the answer to the last PING, while writing is paused

        # Made when something pings; refers to this object until the connection is gone.
        object _keepalive

        # The end. Which CLOSE frames were seen is also read by the awaitable connection.
        bint _disconnecting         # disconnect() was called, or something failed
        bint _frames_ended          # the listener was told that it gets no more frames
        bint _drain_owed            # _drain() came during a write, and waits for its end
        bint _half_closed           # nothing more will be sent, and the transport beneath knows
        bint _aborted
        object _close_timeout
        object _close_timer         # runs from the first sign of an end on
        object close_sent
        object close_received
        bint received_then_sent
        object _failure             # the error that this side found: wait_disconnected() raises it
        object _cause               # why the connection was cut: a time-out
        readonly object close_info  # None until the connection is gone
        object _disconnected        # the future of wait_disconnected()

    @cython.final
    cdef inline void _deliver_frames_to(self, on_frame) noexcept:
        """Call this Python function for frames. None calls the listener's on_ws_frame, which is compiled."""
        self._on_frame = on_frame

    cpdef send_close(self, close_code=*, close_message=*)
    cpdef disconnect(self, bint graceful=*)
    cpdef abort(self)
    cpdef notify_user_specific_pong_received(self)

    cdef int _log_received(self, WSFrame frame) except -1
    cdef int _answer_ping(self, bytes payload) except -1
    cdef int _close_frame_received(self, WSFrame frame) except -1
    cdef int _send_close_frame(self, int code, bytes reason, State next) except -1
    cdef int start_close_timer(self) except -1
    cdef int _give_up_pings(self) except -1
    cdef int _end_received(self) except -1
    cdef int _drain(self) except -1
    cdef int _drop(self) except -1

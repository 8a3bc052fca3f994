from wsfast._engine.sockets.socket cimport SocketTransport


cdef class TLSSession:
    cdef:
        void *_stream
        int _step                   # what reading has come to: a wst_result
        bint _has_transport         # which uses _stream from now on

    cdef void *_used(self) except NULL
    cdef void *_taken(self) except NULL
    cdef size_t _to_send(self) noexcept


# The memory that the connections of a thread share: never in use when Python runs.
cdef class CipherArea:
    cdef:
        char *incoming
        char *outgoing


cdef class TLSTransport(SocketTransport):
    cdef:
        TLSSession _session
        CipherArea _area
        readonly object tls         # a TLSInfo
        bint _end_said              # close_notify is sent or queued
        object _shutdown_timeout
        object _shutdown_timer      # runs while close() waits for the server's close_notify

    cdef int _send_pending(self) except -1
    cdef int _say_end(self) except -1
    cdef int _peer_ended(self) except -1
    cdef int _stop_waiting(self) except -1

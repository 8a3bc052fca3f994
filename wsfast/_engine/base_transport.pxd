cdef class BaseTransport:
    cdef:
        dict __dict__               # for the methods that FrameReader replaces while it defers
        object __weakref__
        object _loop
        unsigned long _thread_id    # the loop's
        object _protocol
        dict _extra                 # for get_extra_info()
        object _sock                # None once it is closed
        object _fileno_obj
        int _fileno
        bint _connected             # the protocol is owed connection_lost()
        bint _eof_reported
        bint _read_paused           # by the program, or by closing
        bint _closing               # nothing more is delivered; queued bytes still leave
        bint _finalizing_close      # _finalize_close() is scheduled, or has run
        bint _write_ready_registered

        # Flow control. The derived class counts what it queues.
        Py_ssize_t _write_backlog_size
        Py_ssize_t _high_water
        Py_ssize_t _low_water
        bint _writing_paused

    cdef int _take(self, loop, sock) except -1
    cdef int _check_thread(self, str method) except -1

    cpdef set_protocol(self, protocol)
    cpdef close(self)
    cpdef write_eof(self)

    cdef int _start_reading(self) except -1
    cdef int _stop_reading(self) except -1
    cdef int _pause_reading(self) except -1

    # Implemented by SocketTransport.
    cdef int write_c(self, char *ptr, Py_ssize_t size) except -1
    cdef Py_ssize_t _gathered(self) noexcept
    cdef int _forget_queue(self) except -1

    cdef int _start_backlog_writing(self) except -1
    cdef int _stop_backlog_writing(self) except -1
    cdef Py_ssize_t _unsent_size(self) noexcept
    cdef int _maybe_pause_protocol(self) except -1
    cdef int _maybe_resume_protocol(self) except -1
    cdef int _set_limits(self, high, low) except -1
    cdef int _call_protocol(self, str method) except -1
    cdef int _call_connection_made(self) except -1
    cdef int _call_eof_received(self) except -1

    cdef int _report(self, str message, exc) except -1
    cdef int _handle_error(self, str message) except -1
    cdef int _schedule_finalize_close(self, exc) except -1
    cpdef _force_close(self, exc)
    cpdef _finalize_close(self, exc)

cdef enum Outcome:
    NONE
    ARMED
    WOKEN
    CANCELLED


cdef class Waiter:
    cdef:
        public bint _asyncio_future_blocking
        readonly object _loop
        object _callback
        object _context
        object _message             # of the cancellation
        int _outcome
        bint is_late                # the time of recv_many() is over; it sets that back

    cdef object arm(self)
    cdef inline bint is_armed(self) noexcept:
        return self._outcome == Outcome.ARMED

    cdef int wake(self, bint at_once) except -1

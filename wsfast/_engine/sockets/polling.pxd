cimport cython
from libc.stdint cimport uint64_t

from wsfast._engine.frames.reader cimport FrameReader


cdef class Poller:
    cdef:
        object __weakref__
        object _loop
        object _context             # of the poll rounds, for which it is of no importance
        object _next_round          # a bound method while awake: so nothing keeps the poller alive when it sleeps
        set _members
        list _direct                # members whose sockets are read in every poll round
        double _until               # the end of the last busy_poll of a member

    cdef int add(self, PollingReader member) except -1
    cdef int remove(self, PollingReader member) except -1
    cdef int event(self, PollingReader member) except -1
    cdef int _renew(self, PollingReader member, double now) except -1
    cdef int _make_room(self) except -1
    cdef int _poll_direct(self) except -1


cdef class PollingReader(FrameReader):
    cdef:
        # Set by begin_message() while Messages and Inbox take a message out of its frame, and by WSTransport before a
        # frame is delivered; tested by poll(), which would touch these bytes, or deliver those behind them. Meanwhile
        # the collector may run, and with it any code.
        bint _takes_message

        # Set by WSTransport.
        double _busy_poll           # in seconds
        uint64_t _frames_kept       # frames that were not delivered: PINGs that wsfast answered, expected PONGs

        # Set while the connection is open and polls; the Poller reads them, and keeps the time.
        Poller _poller              # None: it does not
        object _context             # the one in which the connection was opened: a poll's callbacks run in it
        double _polled_from         # when something was last sent or received, as far as the poller has noticed

        # Set here and by the Poller. Read by WSTransport.stats.
        uint64_t _poll_hits
        uint64_t _poll_misses

    @cython.final
    @cython.nonecheck(False)
    cdef inline void begin_message(self) noexcept:
        self._takes_message = True
    @cython.final
    @cython.nonecheck(False)
    cdef inline void end_message(self) noexcept:
        self._takes_message = False

    cpdef bint poll(self, double timeout, bint sleep=*) except -1

    cdef int _start_polling(self) except -1
    cdef int _stop_polling(self) except -1
    cdef bint _holds_something(self) except -1
    cdef int _attempt(self) except -1
    cdef int _sleep(self, double left) except -1
    cdef int _require_reading(self) except -1

    # Overridden by WSTransport.
    cdef int _require_receiving(self) except -1

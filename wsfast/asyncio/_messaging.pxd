"""The part of an awaitable connection that every message meets.

The supervisor may use, beside public names: _successor _read_on _read_no_further
"""

from libc.stdint cimport int64_t

from wsfast._engine.transport cimport WSTransport
from wsfast.asyncio._inbox cimport Inbox


cdef class Connection:
    cdef:
        object __weakref__
        WSTransport _transport
        Inbox _inbox
        # Called by a recv() that finds the connection closed; makes the coroutine that receives from the next one.
        public object _successor
        bint _fragmenting           # a fragmented message is being sent: other messages wait for the send lock

        # The time since this connection let other tasks run.
        int _credit
        int _allowance
        bint _iteration_awaited          # the loop will call _loop_iterated()
        int64_t _run_began          # since when no iteration of the loop is known of; 0: the clock was not read yet

    cdef bint _must_yield(self) except -1
    cdef void _run_begins(self) noexcept

    cdef inline int _has_credit(self) except -1:
        """An await that could end at once may: false if it must let other tasks run first."""
        self._credit -= 1
        return self._credit > 0 or not self._must_yield()

from wsfast._engine cimport WSTransport
from wsfast.asyncio._inbox cimport Inbox


cdef class Connection:
    cdef:
        object __weakref__
        WSTransport _transport
        Inbox _inbox
        bint _fragmenting           # a fragmented message is being sent: other messages wait for their turn

        # How long this connection has not let other tasks run.
        int _credit
        int _allowance
        bint _turn_scheduled
        double _since
        object _turned

    cdef bint _must_yield(self) except -1

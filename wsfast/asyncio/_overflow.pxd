from wsfast.asyncio._inbox cimport Inbox, Policy


cdef class Dropping(Policy):
    cdef bint _newest               # else the oldest

    cdef bint limit(self, Inbox inbox) except -1


cdef class Failing(Policy):
    cdef bint limit(self, Inbox inbox) except -1


# The newest queued message of a key.
cdef class Newest:
    cdef:
        Py_ssize_t number           # of its frame, see Inbox._ring
        Py_ssize_t epoch


cdef class Conflating(Policy):
    cdef:
        object _key                 # the program's function
        object _logger
        bint _is_conflating
        bint _has_complained
        dict _newest                # by key: Newest; of taken messages, too, but not of many
        Py_ssize_t _epoch           # how many messages without a key there were: nothing passes them

    cdef int queued(self, Inbox inbox) except -1
    cdef bint limit(self, Inbox inbox) except -1
    cdef Py_ssize_t _gather(self, Inbox inbox, list payloads) except -1
    cdef Newest _newest_of(self, bytes payload)
    cdef int _replace(self, Inbox inbox, Py_ssize_t first, list newest) except -1
    cdef int _forget_taken(self, Inbox inbox) except -1

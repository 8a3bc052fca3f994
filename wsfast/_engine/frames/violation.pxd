from libc.stdint cimport uint8_t

from wsfast._engine.core cimport wsf_message, wsf_status


# The words for the broken rule, which are the reason of the CLOSE frame. `size` bytes of the frame are there.
cdef str violation_reason(wsf_status status, const uint8_t *frame, Py_ssize_t size)
# The exception.
cdef object violation(const wsf_message *message, wsf_status status, const uint8_t *frame, Py_ssize_t size)
# Lets the core check inflated bytes; raises the violation that it finds.
cdef int add_content(wsf_message *message, bytes data, bint fin) except -1

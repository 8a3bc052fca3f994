cdef void *address_of(name) except NULL

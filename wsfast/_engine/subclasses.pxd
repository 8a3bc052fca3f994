cdef int enter_method(cls, str name) except -1
# The object's method of this name if it was written in Python, else None: a cpdef method is called without a look-up.
cdef object python_override(object listener, str name)
cdef tuple reduce_listener(object listener, type base)

cdef enum:
    # The bytes that a sender leaves out at the end of a compressed message (RFC 7692 section 7.2.1): 00 00 ff ff.
    TAIL_SIZE = 4


# Flags above the first byte of a frame: compress the message always, or never. By default its size decides.
cdef enum Compression:
    ALWAYS = 0x100
    NEVER = 0x200


# The override of one message, for its argument `compress`; 0 for None, which leaves it to the size.
cpdef int compression(compress) except -1


cdef class Inflater:
    cdef:
        object _agreed
        object _new_stream
        object _stream
        object _decompress          # of the stream
        tuple _error                # the exceptions that it raises
        bint _forgets               # the server does not take its context over to the next message
        int _trial                  # how many more messages decide between the libraries; 0: decided
        int _large                  # how many were large
        Py_ssize_t _message_size
        object _new_large           # makes streams of the library that is faster with those
        bytes _window               # the end of their contents
        Py_ssize_t _window_size

    cpdef bytes inflate(self, data, Py_ssize_t size, Py_ssize_t limit, bint fin, current_size=*)
    cdef bytes _inflate_on(self, data, Py_ssize_t size, Py_ssize_t limit, bytes first)
    cdef int _begin(self, bytes window=*) except -1
    cdef int _observe(self, bytes inflated, bint fin) except -1


cdef class Deflater:
    cdef:
        object _agreed
        object _stream
        readonly Py_ssize_t threshold
        public bint in_message      # a compressed message is being sent in fragments
        bint busy                   # a finalizer that runs meanwhile may send, but not through the stream

    cpdef bint wants(self, int head, Py_ssize_t size)
    cpdef bytes deflate(self, data, bint fin)
    cpdef reset(self)

cdef enum:
    # One recv(2) takes what the kernel has, and both it and what is built from it fit into a second-level cache.
    READ_SIZE = 256 * 1024
    # A longer beginning of a frame is not put in front of the next read, but gets a buffer of its own.
    REST_LIMIT = 16 * 1024
    # Room for 64 KiB of gathered frames and one frame of that size.
    WRITE_SIZE = 128 * 1024
    CACHE_LINE = 64
    # Behind the last byte that is read there is room for the tail of a compressed message (streams.pyx).
    ROOM_FOR_TAIL = 4


cdef class ReadBuffer:
    cdef:
        char *data
        Py_ssize_t capacity


cdef class Scratch:
    cdef:
        ReadBuffer _buffer
        Py_ssize_t _start
        char *_spare_write

    cdef int reading_area(self, Py_ssize_t headroom, char **ptr, Py_ssize_t *size) except -1
    cdef ReadBuffer take_read(self, Py_ssize_t *start)
    cdef void give_read(self, ReadBuffer buffer, Py_ssize_t end)

    cdef char *take_write(self) except NULL
    cdef void give_write(self, char *area) noexcept


cdef ReadBuffer new_read_buffer(Py_ssize_t capacity)
cdef Scratch scratch_of_thread()

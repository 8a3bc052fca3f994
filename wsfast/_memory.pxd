cdef enum:
    READ_HEADROOM = 16 * 1024
    READ_SIZE = 256 * 1024
    WRITE_SIZE = 128 * 1024


cdef class ReadBuffer:
    cdef:
        char *data
        Py_ssize_t capacity


cdef class Scratch:
    cdef:
        ReadBuffer _buffer
        Py_ssize_t _start
        char *_spare_write

    cdef int reading_area(self, char **ptr, Py_ssize_t *size) except -1
    cdef ReadBuffer take_read(self, Py_ssize_t *start)
    cdef void give_read(self, ReadBuffer buffer, Py_ssize_t end)

    cdef char *take_write(self) except NULL
    cdef void give_write(self, char *area) noexcept


cdef ReadBuffer new_read_buffer(Py_ssize_t capacity)
cdef Scratch scratch_of_thread()

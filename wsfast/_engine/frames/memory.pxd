from libc.stdint cimport uint64_t


cdef enum:
    # One recv(2) takes the kernel's bytes, which fit into a second-level cache with the objects built of them.
    READ_SIZE = 256 * 1024
    # Frames with up to so many bytes of payload are read by one recv(2), if they are there, and written by one send(2).
    # The memory for it grows when such frames come, and is given back when they do not.
    LONG_FRAME = 4 * 1024 * 1024
    # A longer beginning of a frame is not put in front of the next read, but gets a buffer of its own.
    REST_LIMIT = 16 * 1024
    # Room behind a long frame for the bytes after it. If that is the beginning of another, it can be put in front.
    SLACK = 16 * 1024
    LONGEST_HEADER = 14
    # Room for 64 KiB of gathered frames and one frame of that size.
    WRITE_SIZE = 128 * 1024
    CACHE_LINE = 64
    # Behind the last byte that is read there is room for the tail of a compressed message (streams.pyx).
    ROOM_FOR_TAIL = 4


cdef inline Py_ssize_t aligned(Py_ssize_t size) noexcept:
    """The next cache line."""
    return (size + CACHE_LINE - 1) & ~<Py_ssize_t>(CACHE_LINE - 1)


cdef class ReadBuffer:
    cdef:
        char *data                  # at a cache line
        Py_ssize_t capacity
        # Bytes before it are not read into until nobody else refers to the buffer. Readers claim what they read, and
        # claims never go back while anybody refers to the buffer.
        Py_ssize_t claimed

    cdef Py_ssize_t claim(self, Py_ssize_t end) noexcept


cdef class Scratch:
    cdef:
        ReadBuffer _buffer
        void *_unreported           # the reader to which the buffer was lent last, if it has not been read into since
        int _short_reads            # since a long one, while the buffer is larger than READ_SIZE
        char *_spare_write
        char *_spare_large          # for frames that are longer
        Py_ssize_t _large_size
        int _short_writes           # since a long one, while there is such an area

    cdef int reading_area(self, Py_ssize_t headroom, Py_ssize_t most, char **ptr, Py_ssize_t *size) except -1
    cdef int _fit(self, Py_ssize_t headroom, Py_ssize_t most, Py_ssize_t least) except -1
    cdef ReadBuffer take_read(self, Py_ssize_t *start)
    cdef void give_read(self, ReadBuffer buffer) noexcept
    cdef void return_lent(self, ReadBuffer buffer, void *reader) noexcept

    cdef char *take_write(self) except NULL
    cdef void give_write(self, char *area) noexcept
    cdef char *take_large(self, Py_ssize_t *size) except NULL
    cdef void give_large(self, char *area, Py_ssize_t size) noexcept


cdef char *allocate(Py_ssize_t size) except NULL
cdef void release(char *memory) noexcept
cdef ReadBuffer new_read_buffer(Py_ssize_t capacity)
cdef ReadBuffer new_frame_buffer(uint64_t size)
cdef Scratch scratch_of_thread()

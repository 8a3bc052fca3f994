"""The memory that the connections of a thread share, so that an idle connection owns none.

Reading. Every connection of a thread reads into one buffer, which therefore stays in the processor's cache. Frames are
decoded where they arrived, and what a listener keeps (a frame, a memoryview) holds a reference to the buffer. The rule
that makes this safe: bytes are overwritten only when nobody else refers to the buffer. If someone does, the next read
starts behind the bytes that were handed out, and when too little room is left there, the buffer is left to its users
and a fresh one is taken. So kept frames cost about the bytes that were received, not a buffer each.

A reader may ask for room in front of its read. There the engine puts the beginning of a frame that an earlier read left
incomplete, which makes the frame contiguous without moving the new bytes.

Writing. A frame is built in a piece of memory that is borrowed for the call (or, while writes are being gathered, until
they leave). One piece per thread is kept for the next borrower.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from libc.stdlib cimport free

from wsfast._engine.python cimport Py_REFCNT

import threading


cdef extern from "<stdlib.h>":
    void *aligned_alloc(size_t alignment, size_t size) noexcept


cdef enum:
    # Less room than this behind the bytes in use: take a fresh buffer rather than read in small pieces.
    READ_MINIMUM = 128 * 1024


cdef class ReadBuffer:
    """Memory for received bytes. It lives as long as a frame or a memoryview refers to it."""

    def __dealloc__(self):
        PyMem_RawFree(self.data)


cdef ReadBuffer new_read_buffer(Py_ssize_t capacity):
    cdef ReadBuffer buffer = ReadBuffer.__new__(ReadBuffer)
    buffer.data = <char *>PyMem_RawMalloc(capacity + ROOM_FOR_TAIL)
    if buffer.data == NULL:
        raise MemoryError(f"no memory for {capacity} bytes to read into")
    buffer.capacity = capacity
    return buffer


cdef class Scratch:
    """What the connections of one thread share. Only that thread may call."""

    def __dealloc__(self):
        free(self._spare_write)

    cdef int reading_area(self, Py_ssize_t headroom, char **ptr, Py_ssize_t *size) except -1:
        """Where the next read may put its bytes, with `headroom` bytes free in front. They are claimed with
        take_read()."""
        if self._buffer is None:
            self._buffer = new_read_buffer(READ_SIZE)
            self._start = 0
        ptr[0] = self._buffer.data + self._start + headroom
        size[0] = self._buffer.capacity - self._start - headroom
        return 0

    cdef ReadBuffer take_read(self, Py_ssize_t *start):
        """The buffer that was just read into, and where its headroom starts. The caller has it alone until give_read(),
        so that a read nested in a callback gets another one."""
        cdef ReadBuffer buffer = self._buffer
        self._buffer = None
        start[0] = self._start
        return buffer

    cdef void give_read(self, ReadBuffer buffer, Py_ssize_t end):
        """Return a buffer whose bytes before `end` may be in use by whoever still refers to it."""
        if self._buffer is not None:
            return
        # One reference is the caller's variable: it passes the buffer without a new one.
        if Py_REFCNT(<PyObject *>buffer) > 1:
            end = (end + CACHE_LINE - 1) & ~(<Py_ssize_t>CACHE_LINE - 1)
            if buffer.capacity - end < READ_MINIMUM:
                return
            self._start = end
        else:
            self._start = 0
        self._buffer = buffer

    cdef char *take_write(self) except NULL:
        """WRITE_SIZE bytes behind a cache line for a header, borrowed until give_write().

        A payload that starts at the second cache line is masked fastest.
        """
        cdef char *area = self._spare_write
        if area != NULL:
            self._spare_write = NULL
            return area
        area = <char *>aligned_alloc(CACHE_LINE, CACHE_LINE + WRITE_SIZE)
        if area == NULL:
            raise MemoryError(f"no memory for {WRITE_SIZE} bytes to write from")
        return area

    cdef void give_write(self, char *area) noexcept:
        if self._spare_write == NULL:
            self._spare_write = area
        else:
            free(area)


cdef object _threads = threading.local()


cdef Scratch scratch_of_thread():
    """The calling thread's scratch memory; it is freed with its last connection, or with the thread."""
    try:
        return _threads.scratch
    except AttributeError:
        _threads.scratch = Scratch.__new__(Scratch)
        return _threads.scratch

"""The memory that the connections of a thread share, so that an idle connection owns none.

Reading. Every connection of a thread reads into one buffer, which therefore stays in the processor's cache. Frames are
decoded where they arrived, and what a listener keeps (a frame, a memoryview) holds a reference to the buffer. The rule
that makes this safe: bytes that were claimed are overwritten only when nobody else refers to the buffer. If someone
does, the next read starts behind them, and when too little room is left there, the buffer is left to its users and a
fresh one is taken. So kept frames cost about the bytes that were received, not a buffer each. So
references and claims alone decide who may read where: a buffer may serve two readers at once, or be given back twice.

A reader may ask for room in front of its read. There the engine puts the beginning of a frame that an earlier read left
incomplete, which makes the frame contiguous without moving the new bytes.

Long frames. The buffer is as large as what is read at once: READ_SIZE, and for a connection that had longer frames,
twice the longest, so that a frame that begins in the middle of a read is completed where it lies. Memory that nothing
was read into costs nothing, because the kernel provides pages when they are written to: so what a thread has is bounded
by what has arrived. When SHORT_AFTER reads did without, the buffer is exchanged for a usual one.

Writing. A frame is built in a piece of memory that is borrowed for the call (or, while writes are being gathered, until
they leave). One piece per thread is kept for the next borrower, and one for long frames, by the same rule.

Where. All reads and all masked payloads begin at a cache line: elsewhere the kernel, and masking, take up to 1.4 times
as long (bench/machine/offsets.c).
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t, uintptr_t
from libc.stdlib cimport free

from wsfast._engine.python cimport wsf_is_unique

import threading


cdef extern from "<stdlib.h>":
    int posix_memalign(void **memory, size_t alignment, size_t size) noexcept


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    int PyTraceMalloc_Track(unsigned int domain, uintptr_t ptr, size_t size)
    int PyTraceMalloc_Untrack(unsigned int domain, uintptr_t ptr)


cdef enum:
    # Less room than this behind the bytes in use: take a fresh buffer rather than read in small pieces.
    READ_MINIMUM = 128 * 1024
    # Long frames have ended when there was none among so many reads, or writes. To exchange memory costs a page fault
    # for each of its pages, some hundred of them: nothing, against so many system calls.
    SHORT_AFTER = 1024
    LARGEST_BUFFER = 2 * (LONG_FRAME + 2 * SLACK)


cdef char *allocate(Py_ssize_t size) except NULL:
    """Memory at a cache line. tracemalloc knows of it as of all memory."""
    cdef void *memory = NULL
    if size < 0 or size > PY_SSIZE_T_MAX - CACHE_LINE or posix_memalign(&memory, CACHE_LINE, size) != 0:
        raise MemoryError(f"no memory for {size} bytes")
    PyTraceMalloc_Track(0, <uintptr_t>memory, size)
    return <char *>memory


cdef void release(char *memory) noexcept:
    if memory != NULL:
        PyTraceMalloc_Untrack(0, <uintptr_t>memory)
        free(memory)


cdef class ReadBuffer:
    """Memory for received bytes. It lives as long as a frame or a memoryview refers to it."""

    def __dealloc__(self):
        release(self.data)

    cdef Py_ssize_t claim(self, Py_ssize_t end) noexcept:
        """The bytes before `end` belong to the objects that refer to the buffer. Returns where the next read may go."""
        self.claimed = max(self.claimed, aligned(end + ROOM_FOR_TAIL))
        return self.claimed


cdef ReadBuffer new_read_buffer(Py_ssize_t capacity):
    cdef ReadBuffer buffer = ReadBuffer.__new__(ReadBuffer)
    buffer.data = allocate(capacity + ROOM_FOR_TAIL)
    buffer.capacity = capacity
    return buffer


cdef ReadBuffer new_frame_buffer(uint64_t size):
    """Make a buffer for a frame of `size` bytes, which is contiguous, wherever in the first cache line it begins."""
    if size <= READ_SIZE >> 1 or size > LONG_FRAME + LONGEST_HEADER:
        if size > <uint64_t>PY_SSIZE_T_MAX >> 1:
            raise MemoryError(f"no memory for a frame of {size} bytes")
        return new_read_buffer(aligned(size) + SLACK)
    # Later it serves the whole thread.
    return new_read_buffer(READ_SIZE if size + SLACK <= READ_SIZE else 2 * aligned(size + SLACK))


cdef class Scratch:
    """The buffers that the connections of one thread share. Only that thread may call."""

    def __dealloc__(self):
        release(self._spare_write)
        release(self._spare_large)

    cdef int reading_area(self, Py_ssize_t headroom, Py_ssize_t most, char **ptr, Py_ssize_t *size) except -1:
        """Return the memory for the next read: for `most` bytes, with `headroom` bytes free in front. take_read()
        claims it."""
        cdef:
            Py_ssize_t least = READ_MINIMUM if most <= READ_SIZE else most
            Py_ssize_t start
        if self._buffer is None:
            self._buffer = new_read_buffer(READ_SIZE if most <= READ_SIZE else 2 * aligned(most))
        elif wsf_is_unique(<PyObject *>self._buffer):
            self._buffer.claimed = 0
        start = self._buffer.claimed + aligned(headroom)
        if self._buffer.capacity != READ_SIZE or READ_SIZE - start < least:
            self._fit(headroom, most, least)
            start = self._buffer.claimed + aligned(headroom)
        ptr[0] = self._buffer.data + start
        size[0] = min(self._buffer.capacity - start, most)
        return 0

    cdef int _fit(self, Py_ssize_t headroom, Py_ssize_t most, Py_ssize_t least) except -1:
        """Take a fresh buffer if this one has too little room, or was too large for long enough."""
        self._short_reads = self._short_reads + 1 if most <= READ_SIZE else 0
        if (self._buffer.capacity - self._buffer.claimed - aligned(headroom) < least
                or (self._short_reads > SHORT_AFTER and self._buffer.capacity > READ_SIZE)):
            self._buffer = new_read_buffer(READ_SIZE if most <= READ_SIZE else 2 * aligned(most))
            self._short_reads = 0
        return 0

    cdef ReadBuffer take_read(self, Py_ssize_t *start):
        """The buffer that was just read into, and where its headroom starts. The caller claims what it has read, and
        has the buffer alone until give_read(), so that a read nested in a callback gets another one."""
        cdef ReadBuffer buffer = self._buffer
        self._buffer = None
        self._unreported = NULL
        start[0] = 0 if buffer is None else buffer.claimed
        return buffer

    cdef void give_read(self, ReadBuffer buffer) noexcept:
        """Return a buffer, which others may still refer to. Of two the larger one is kept, unless it is for one frame
        only."""
        if buffer.capacity < READ_SIZE or buffer.capacity > LARGEST_BUFFER:
            return
        if self._buffer is None or self._buffer.capacity < buffer.capacity:
            self._buffer = buffer

    cdef void return_lent(self, ReadBuffer buffer, void *reader) noexcept:
        """Return a buffer in which nothing was claimed since it was taken; take_read() gives the same again."""
        self._buffer = buffer
        self._unreported = reader

    cdef char *take_write(self) except NULL:
        """WRITE_SIZE bytes behind a cache line for a header, borrowed until give_write().

        A payload that starts at the second cache line is masked fastest.
        """
        cdef char *area = self._spare_write
        if self._spare_large != NULL:
            self._short_writes += 1
            if self._short_writes > SHORT_AFTER:
                release(self._spare_large)
                self._spare_large = NULL
        if area != NULL:
            self._spare_write = NULL
            return area
        return allocate(CACHE_LINE + WRITE_SIZE)

    cdef void give_write(self, char *area) noexcept:
        if self._spare_write == NULL:
            self._spare_write = area
        else:
            release(area)

    cdef char *take_large(self, Py_ssize_t *size) except NULL:
        """Borrow an area of `size` bytes or more until give_large(). Sets `size` to its size."""
        cdef char *area = self._spare_large
        self._spare_large = NULL
        self._short_writes = 0
        if area != NULL and self._large_size >= size[0]:
            size[0] = self._large_size
            return area
        release(area)
        return allocate(CACHE_LINE + size[0])

    cdef void give_large(self, char *area, Py_ssize_t size) noexcept:
        if self._spare_large == NULL:
            self._spare_large = area
            self._large_size = size
        else:
            release(area)


cdef object _threads = threading.local()


cdef Scratch scratch_of_thread():
    """The calling thread's scratch memory; it is freed with its last connection, or with the thread."""
    try:
        return _threads.scratch
    except AttributeError:
        _threads.scratch = Scratch.__new__(Scratch)
        return _threads.scratch

"""Receiving frames: they are read into shared memory, decoded in place, and handed on one by one."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from wsfast._engine.core cimport (
    WSF_CONTROL_BIT,
    WSF_FRAME,
    WSF_INCOMPLETE,
    WSF_OVER,
    WSF_PART,
    wsf_header,
    wsf_message_next,
    wsf_message_receive,
    wsf_monotonic_ns,
    wsf_realtime_ns,
    wsf_status,
)
from wsfast._engine.frames.frame cimport RSV1, RSV2, RSV3, FrameFields, WSFrame, WSMsgType
from wsfast._engine.frames.link cimport State
from wsfast._engine.frames.memory cimport (
    LONG_FRAME,
    LONGEST_HEADER,
    READ_SIZE,
    REST_LIMIT,
    ROOM_FOR_TAIL,
    SLACK,
    ReadBuffer,
    aligned,
    new_frame_buffer,
    new_read_buffer,
)
from wsfast._engine.python cimport PyThread_get_thread_ident, wsf_is_unique
from wsfast._engine.frames.writer cimport FrameWriter


cdef enum:
    # After so many reads without a long frame, the connection reads in small pieces again.
    SHORT_AFTER = 1024
    # After inflating so many bytes, and the message that exceeds them, the reader lets the event loop run. That is a
    # millisecond or two. A read of 256 KiB may become 250 MiB.
    INFLATED_AT_ONCE = 1024 * 1024
    # While inflated bytes wait, a transport of the loop's own reads only so many bytes at once. uvloop reads 32 times
    # in an iteration, so 512 bytes; a mebibyte is inflated from at least twice as many.
    SIP = 16


@cython.final
@cython.no_gc_clear  # to give back its buffer
cdef class Lent:
    """Memory for one read of a transport that is not wsfast's own. Such a transport runs Python before it reports what
    it has read (it logs; signal handlers and finalizers run), or lets other threads run. So the memory is out of the
    thread's Scratch until the transport has reported, or has dropped the view.
    """

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._buffer.data + self._start, self._size, 0, flags)

    def __dealloc__(self):
        if self._reader is not None:
            self._give_back()

    cdef void _give_back(self) noexcept:
        if self._reader._lent == <PyObject *>self:
            self._reader._lent = NULL
            # If another thread has collected this object, its memory is lost to the thread of the Scratch.
            if not self._is_own and PyThread_get_thread_ident() == self._reader.thread_id:
                self._reader._scratch.return_lent(self._buffer, <void *>self._reader)

    def __reduce__(self):
        raise TypeError("cannot pickle 'Lent' object")


cdef class FrameReader(FrameWriter):
    """The receiving half of :class:`WSTransport`."""

    def __cinit__(self):
        self.max_read = READ_SIZE  # never 0, whatever is called on an object that was not initialised

    def __dealloc__(self):
        PyMem_RawFree(self._rest)

    def is_buffered_protocol(self):
        return True

    # ---- for wsfast's own transports

    cdef int _read_area(self, char **ptr, Py_ssize_t *size) except -1:
        """Return the memory for the next read. It is not lent: no Python may run before _received()."""
        self._check_loop_thread()
        if self._own is not None:
            ptr[0] = self._own.data + self._own_end
            size[0] = min(self._own_limit - self._own_end, self.max_read)
        else:
            self._scratch.reading_area(self._rest_size, self._read_size, ptr, size)
        return 0

    def _read_at_most(self, Py_ssize_t size):
        if size <= 0:
            raise ValueError(f"size must be positive, not {size}")
        self.max_read = size
        self._read_size = min(size, <Py_ssize_t>READ_SIZE)

    cdef void _read_more(self, Py_ssize_t size) noexcept:
        """Read as many bytes at once as the frame that has arrived, because others like it may follow.

        This is not called when a long frame is announced: memory is used only for bytes that have come.
        """
        if READ_SIZE - SLACK < size <= LONG_FRAME + LONGEST_HEADER:
            self._read_size = min(max(self._read_size, size + SLACK), self.max_read)
            self._short_reads = 0

    cdef void _read_less(self, Py_ssize_t nbytes) noexcept:
        """Count reads without a long frame; `nbytes` is the size of this one. After SHORT_AFTER of them, read less at
        once."""
        self._short_reads = 0 if nbytes > READ_SIZE else self._short_reads + 1
        if self._short_reads > SHORT_AFTER:
            self._read_size = min(self.max_read, <Py_ssize_t>READ_SIZE)

    cdef void notify_read_done(self) noexcept:
        """Call _read_done() from now on."""
        self._notifies_read_done = True

    cdef void _woken_for_nothing(self) noexcept:
        """Note for stats that the loop reported bytes which a poll had read already."""
        self._empty_wakeups += 1

    # ---- for transports of others

    def get_buffer(self, Py_ssize_t sizehint):
        """A view of the memory that is lent for one read. buffer_updated() gives it back, or the end of the view."""
        return memoryview(self._lend())

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef bint busy = self._come_up()
        try:
            self._report_lent(nbytes)
        finally:
            self._go_down(busy)

    cdef bint _come_up(self) noexcept:
        """Note that the transport beneath has called back. Until _go_down() callbacks of the program may poll and send,
        and thereby enter the transport again."""
        cdef bint busy = self._busy_beneath
        if busy:
            self._busy_beneath = self._writing = False
        return busy

    cdef void _go_down(self, bint busy) noexcept:
        if busy:
            self._busy_beneath = self._writing = True

    cdef int _report_lent(self, Py_ssize_t nbytes) except -1:
        cdef:
            ReadBuffer buffer
            Lent lent
        if self._lent == NULL:
            # uvloop's TLS lets go of the view first. If there was another read since, the bytes may be its own.
            if self._own is None and (self._scratch._unreported != <void *>self or self._rest_size != self._lent_rest):
                raise RuntimeError("buffer_updated() without get_buffer()")
            return self._received(nbytes)
        lent = <Lent>self._lent
        buffer = lent._buffer
        lent._give_back()
        if nbytes < 0 or nbytes > lent._size:
            raise ValueError(f"{nbytes} bytes cannot have been received")
        if (self._own is buffer and self._own_end == lent._start if lent._is_own
                else self._own is None and self._rest_size == self._lent_rest):
            return self._received(nbytes)
        # Python ran meanwhile, and delivered bytes that were held back: these follow others than they were to.
        return self._copy_received(buffer.data + lent._start, nbytes)

    def data_received(self, data):
        """For transports that do not read into a protocol's buffer."""
        cdef Py_buffer view  # a typed memoryview would compile 140 KB of Cython's own code into the module
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self._copy_received(<const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int _copy_received(self, const char *data, Py_ssize_t size) except -1:
        cdef:
            char *ptr
            Py_ssize_t room, done = 0
        while done < size:
            self._read_area(&ptr, &room)
            room = min(room, size - done)
            memcpy(ptr, data + done, room)
            done += room
            self._received(room)
        return 0

    cdef Lent _lend(self):
        cdef:
            Lent lent = Lent.__new__(Lent)
            char *ptr
            Py_ssize_t claimed
        if self._lent != NULL:
            raise RuntimeError("get_buffer() while another read is under way")
        self._read_area(&ptr, &lent._size)
        if self._own is not None:
            lent._buffer = self._own
            lent._is_own = True
        else:
            lent._buffer = self._scratch.take_read(&claimed)
            self._lent_rest = self._rest_size
        lent._start = ptr - lent._buffer.data
        lent._reader = self
        if self.deferred and self._aiofastnet is None:
            lent._size = min(lent._size, <Py_ssize_t>SIP)
        self._lent = <PyObject *>lent
        return lent

    cdef int _received(self, Py_ssize_t nbytes) except -1:
        """Take the bytes that were read into the memory of _read_area()."""
        cdef:
            FrameReader alive = self  # a callback may drop every other reference
            ReadBuffer buffer = self._own
            Py_ssize_t start, end
        # No Python runs before the bytes are claimed: a read nested in it would overwrite them.
        if self._stamp_reads:
            self._stamp()
        self._reads += 1
        self._bytes_received += nbytes
        self._sent_in = 0
        if self._read_size > READ_SIZE:
            self._read_less(nbytes)
        if buffer is not None:
            alive._own_updated(buffer, nbytes)
            if alive._notifies_poller:
                alive._event()
            return 0
        buffer = self._scratch.take_read(&start)
        if buffer is None:
            raise RuntimeError("_received() without _read_area()")
        start += aligned(self._rest_size) - self._rest_size
        end = start + self._rest_size + nbytes
        if nbytes < 0 or end > buffer.capacity:
            self._scratch.give_read(buffer)
            raise ValueError(f"{nbytes} bytes cannot have been received")
        if self._rest_size:
            memcpy(buffer.data + start, self._rest, self._rest_size)
            PyMem_RawFree(self._rest)
            self._rest = NULL
            self._rest_size = 0
        buffer.claim(end)
        try:
            alive._consume(buffer, start, end)
            if alive._notifies_read_done:
                alive._read_done()
        finally:
            alive._scratch.give_read(buffer)
        if alive._notifies_poller:
            alive._event()
        return 0

    cdef int _own_updated(self, ReadBuffer buffer, Py_ssize_t nbytes) except -1:
        """Take the bytes that were read into `buffer`, which belongs to a long frame that is arriving."""
        cdef:
            wsf_header header
            wsf_status status
            Py_ssize_t start = self._own_start
            Py_ssize_t end = self._own_end + nbytes
        if nbytes < 0 or end > self._own_limit:
            raise ValueError(f"{nbytes} bytes cannot have been received")
        self._own_end = end
        if end - start < self._own_frame:
            # The bytes of it that have come are judged at once (RFC 6455 section 8.1).
            status = wsf_message_next(&self._message, <const uint8_t *>buffer.data + start, end - start, &header)
            if status < WSF_INCOMPLETE:
                self._own = None
                self._violated(status, <const uint8_t *>buffer.data + start, end - start)
            if self._notifies_read_done:
                self._read_done()
            return 0
        self._own = None
        self._read_more(self._own_frame)
        try:
            self._consume(buffer, start, end)
            if self._notifies_read_done:
                self._read_done()
        finally:
            self._scratch.give_read(buffer)
        return 0

    cdef void note_reads(self) noexcept:
        """Keep last_received from now on."""
        self._stamp_reads = True

    cdef void _stamp(self) noexcept:
        cdef int64_t now = wsf_monotonic_ns()
        self._last_received = <double>now * 1e-9
        if self.stamps_frames:
            self._received_at = now
            self._kernel_received_at = now - (wsf_realtime_ns() - self._kernel_stamp) if self._kernel_stamp else 0

    @property
    def last_received(self):
        """When bytes were last received, by ``time.monotonic()``. It is 0.0 unless the connection is kept alive by
        pings, or was made with ``timestamps``."""
        return self._last_received

    @property
    def last_message(self):
        """The facts about the last delivered message, a :class:`WSMessageInfo`: its type, when it arrived,
        whether it was compressed, whether more follow at once.

        It is kept with ``timestamps`` only, and not for a listener that takes frames: :class:`WSFrame` has the same.
        Else it is None.
        """
        with cython.critical_section(self):
            return self.last_info

    cdef void gave_message(self, info) noexcept:
        with cython.critical_section(self):  # other threads may ask for it
            self.last_info = info

    cdef int _consume(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        """Take the received bytes buffer[start:end]."""
        cdef:
            PyObject *outer = self._reading
            Py_ssize_t outer_read_end = self._read_end, outer_frame_end = self._frame_end
        if self.held is not None:  # it comes first
            return self._hold(buffer.data + start, end - start)
        self._reading = <PyObject *>buffer
        self._read_end = end
        self._frame_end = start
        try:
            if self.state == State.CONNECTING:
                # The bytes behind the server's reply, the last ones of this read, are frames already.
                self._frame_end = end - self._upgrade(PyBytes_FromStringAndSize(buffer.data + start, end - start))
                if self.state != State.CONNECTING:
                    self._upgraded()
            self._deliver_rest()
        finally:
            self._reading = outer
            self._read_end = outer_read_end
            self._frame_end = outer_frame_end
        return 0

    cdef int _deliver_rest(self) except -1:
        """Deliver the rest of the bytes that were read last."""
        cdef Py_ssize_t start
        while self.state != State.CONNECTING and self.state < State.FAILED:
            start = self._frame_end
            try:
                self._deliver(<ReadBuffer>self._reading, self._read_end)
                break
            except BaseException as exc:
                # If no frame was dispatched, it is not a callback that raised: out of memory, say.
                self._delivery_raised(exc, self._frame_end != start)
        return 0

    @property
    def _data_received(self):
        """The number of received frames, without control frames and answers to PINGs of the listener's own kind. So the
        supervisor knows if the server sends data."""
        return self._frames_received - self._control_received

    cdef int hold_back(self) except -1:
        """For a listener that has no room: deliver no more received bytes before deliver_held() is called.

        The rest is kept as it came from the wire, neither inflated nor checked. The listener pauses reading until
        then; bytes that a transport delivers nevertheless are added to the rest.
        """
        cdef Py_ssize_t start = self._frame_end
        if self._reading != NULL and start < self._read_end:
            self._hold((<ReadBuffer>self._reading).data + start, self._read_end - start)
            self._frame_end = self._read_end
        return 0

    cdef int _hold(self, const char *data, Py_ssize_t size) except -1:
        cdef ReadBuffer buffer = new_read_buffer(self._held_size + size)
        if self.held is not None:
            memcpy(buffer.data, self.held.data, self._held_size)
        memcpy(buffer.data + self._held_size, data, size)
        self.held = buffer
        self._held_size += size
        return 0

    cdef int deliver_held(self) except -1:
        """There is room again: go on. It may be held back again."""
        cdef:
            ReadBuffer buffer
            Py_ssize_t size
        if self.deferred:
            self._end_deferral()
        buffer, size = self.held, self._held_size
        if buffer is None:
            return 0
        self.held = None
        self._held_size = 0
        self._consume(buffer, 0, size)
        if self._notifies_read_done:
            self._read_done()
        return 0 if self.held is not None else self._drop_held()

    cdef int _drop_held(self) except -1:
        """Nothing is held any more. The end comes now, if the transport has reported it meanwhile."""
        self.held = None
        self._held_size = 0
        if self._lost_held is not None:
            self.loop.call_soon(self.connection_lost, *self._lost_held)
            self._lost_held = None
        return 0

    cdef int _defer(self) except -1:
        """Much was inflated: the rest of the read waits for the next iteration of the event loop."""
        self._inflated = 0
        if self.held is not None:
            return 0
        self.hold_back()
        if self.held is None:
            return 0
        self.deferred = True
        if self._fast is not None or self._aiofastnet is not None:
            self._pause_for_rest(self.underlying_transport)
        if not self._goes_on:
            self._goes_on = True
            self.loop.call_soon(self._go_on)
        return 0

    def _go_on(self):
        self._goes_on = False
        if self.deferred:
            self.check_loop_callback()
            self.deliver_held()

    cdef int check_loop_callback(self) except -1:
        """_check_loop_thread() for a callback of the loop. An error of it does not make the transport drop the
        connection, unlike that of a read."""
        try:
            self._check_loop_thread()
        except RuntimeError as exc:
            if self._fast is None and self._aiofastnet is None:
                self.underlying_transport.abort()
            else:
                self.underlying_transport._force_close(exc)  # the others' abort() refuses in this thread
            raise
        return 0

    cdef int _pause_for_rest(self, transport) except -1:
        """Pause until _end_deferral(). What the program calls meanwhile comes into effect then, and is_reading() says
        what it will be. A transport of the loop's own has no place for such methods: see _lend()."""
        cdef dict methods = transport.__dict__
        self._resumes = True
        methods["pause_reading"] = self._pause_later
        methods["resume_reading"] = self._resume_later
        methods["is_reading"] = self._reads_later
        self._resumes &= transport.is_closing() or type(transport).is_reading(transport)
        type(transport).pause_reading(transport)
        return 0

    def _pause_later(self):
        self._resumes = False

    def _resume_later(self):
        self._resumes = True

    def _reads_later(self):
        return self._resumes and not self.underlying_transport.is_closing()

    cdef int _end_deferral(self) except -1:
        self.deferred = False
        if self._fast is not None or self._aiofastnet is not None:
            for method in ("pause_reading", "resume_reading", "is_reading"):
                del self.underlying_transport.__dict__[method]
            if self._resumes and not self.underlying_transport.is_closing():
                self.underlying_transport.resume_reading()
        return 0

    @cython.nonecheck(False)  # see writer.pyx; `buffer` is what _consume() reads, and `frame` was made here
    cdef int _deliver(self, ReadBuffer buffer, Py_ssize_t end) except -1:
        """Dispatch the complete frames from _frame_end to `end` and keep the rest. A callback may do so as well, so
        where to go on is looked up for every frame."""
        cdef:
            wsf_header header
            wsf_status status
            WSFrame frame = None
            const uint8_t *p
            Py_ssize_t start
        while True:
            start = self._frame_end
            if start >= end:
                return 0
            p = <const uint8_t *>buffer.data + start
            status = wsf_message_receive(&self._message, p, end - start, &header)
            if status != WSF_FRAME:
                if status == WSF_INCOMPLETE:
                    self._keep_rest(buffer, start, end, 0)
                elif status == WSF_PART:
                    self._keep_rest(buffer, start, end, header.header_len + header.payload_len)
                elif status != WSF_OVER:
                    self._violated(status, p, end - start)
                break
            start += header.header_len + <Py_ssize_t>header.payload_len
            self._frame_end = start
            self._frames_received += 1
            if self.state > State.CLOSING and header.opcode != WSMsgType.CLOSE:
                continue

            if frame is None or not wsf_is_unique(<PyObject *>frame):
                frame = <WSFrame>WSFrame.__new__(WSFrame)
                frame.buffer = buffer
                (<FrameFields>frame).recv_time_ns = self._received_at
                (<FrameFields>frame).kernel_time_ns = self._kernel_received_at
            frame.payload_ptr = <char *>p + header.header_len
            (<FrameFields>frame).payload_size = <Py_ssize_t>header.payload_len
            (<FrameFields>frame).tail_size = end - start
            (<FrameFields>frame).msg_type = <WSMsgType>header.opcode
            (<FrameFields>frame).fin = header.fin
            (<FrameFields>frame).rsv1 = header.rsv & RSV1
            (<FrameFields>frame).rsv2 = header.rsv & RSV2
            (<FrameFields>frame).rsv3 = header.rsv & RSV3
            if self._expect_pong and self._is_expected_pong(frame):
                self._control_received += 1
                continue
            if header.opcode & WSF_CONTROL_BIT:
                self._control_received += 1
                self._dispatch_control(frame)
                if self.state >= State.FAILED:
                    break
            else:
                self._dispatch(frame)
                if self._inflated > INFLATED_AT_ONCE:
                    self._defer()
        self._frame_end = end
        return 0

    cdef int _keep_rest(
        self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end, uint64_t frame_size
    ) except -1:
        """Keep the beginning of a frame, buffer[start:end], until the rest of it arrives.

        A short one is copied, and put in front of the next read: so a frame that was merely announced takes no memory.
        Else the next reads go behind it: where it lies, if the frame is long, has room there, and nobody else was
        promised that room; or in a buffer for the frame. `frame_size` is 0 if even the header is incomplete.
        """
        cdef Py_ssize_t size = end - start
        if size <= REST_LIMIT:
            self._rest = <char *>PyMem_RawMalloc(size)
            if self._rest == NULL:
                raise MemoryError(f"no memory for {size} bytes of a frame")
            memcpy(self._rest, buffer.data + start, size)
            self._rest_size = size
            return 0
        if (READ_SIZE >> 1 < frame_size <= <uint64_t>(buffer.capacity - start)
                and <uint64_t>(buffer.capacity >> 2) <= frame_size
                and buffer.claimed == aligned(end + ROOM_FOR_TAIL)):
            self._own = buffer
            self._own_start = start
        else:
            self._own = new_frame_buffer(frame_size)
            self._own_start = aligned(size) - size  # so the next read goes to a cache line
            memcpy(self._own.data + self._own_start, buffer.data + start, size)
        self._own_end = self._own_start + size
        self._own_frame = frame_size
        self._own_limit = min(self._own_start + <Py_ssize_t>frame_size + SLACK, self._own.capacity)
        self._own.claim(self._own_limit)
        return 0

    # The methods by which WSTransport handles the frames.

    cdef Py_ssize_t _upgrade(self, bytes data) except -1:
        """Bytes of the server's reply to the upgrade request; returns how many at their end are already frames."""

    cdef int _upgraded(self) except -1:
        """The reply was complete."""

    cdef int _dispatch(self, WSFrame frame) except -1:
        """A data frame."""

    cdef int _dispatch_control(self, WSFrame frame) except -1:
        """A control frame."""

    cdef bint _is_expected_pong(self, WSFrame frame) except -1:
        """Asked for every frame while `_expect_pong`: true if it goes no further."""

    cdef int _violated(self, wsf_status status, const uint8_t *frame, Py_ssize_t size) except -1:
        """A frame broke this rule; `size` bytes of it are there."""

    cdef int _delivery_raised(self, exc, bint from_callback) except -1:
        """One of the methods above, or the reading itself, has raised."""

    cdef int _read_done(self) except -1:
        """The frames of a read are all dispatched, and its buffer is not yet given back."""

"""Sending of frames: checked, built in one pass, and written at once or gathered.

A frame costs no more than one send(2): header and masked payload are built side by side in borrowed memory (see
memory.pyx) and handed to the transport, which copies what the kernel does not take. Frames that are gathered, because
the connection is corked or because of write_policy="gather", are built one behind the other and leave together.

One write at a time. While a frame is built and handed to the transport, Python may run: a finalizer, a signal handler,
the loop's exception handler, pause_writing(). Any of them may send, close and uncork. None of that happens inside the
write: _send_later() puts frames aside, _owed notes all else, and _settle() does it when the write is over. So nothing
that a write has checked changes before the write is done.

nonecheck is off in the functions that every frame goes through: there it would count a reference up and down for each
`+=` on a field. They dereference self, which is never None, and objects that they have just compared with None. All
other objects, which the collector may have cleared, are used in functions of their own, where nonecheck is on.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wsfast._engine.core cimport (
    WSF_CONTROL_BIT,
    WSF_MAX_CONTROL,
    WSF_MAX_HEADER,
    WSF_OPCODE_BITS,
    wsf_encode_frame,
    wsf_encode_header,
    wsf_header_size,
    wsf_mask_best,
    wsf_mask_fn,
    wsf_mask_key,
)
from wsfast._engine.frames.streams cimport TAIL_SIZE, Deflater, compression
from wsfast._engine.frames.frame cimport FIN, RSV1, RSV2, RSV3, WSMsgType, opcode_of
from wsfast._engine.frames.link cimport Link, State
from wsfast._engine.frames.memory cimport CACHE_LINE, LONG_FRAME, WRITE_SIZE, release
from wsfast._engine.python cimport PyUnicode_AsUTF8AndSize, wsf_callback

from wsfast._common.logging import guarded
from wsfast._common.options import no_message
from wsfast._engine.frames.inspection import describe


cdef enum:
    # Gathered frames leave when there are this many bytes of them: more in one write gains nothing.
    GATHER_LIMIT = 64 * 1024


cdef wsf_mask_fn _mask = wsf_mask_best().fn

#: Name of the masking kernel in use: "scalar", "avx2", "avx512" or "neon".
mask_kernel = (<bytes>wsf_mask_best().name).decode()


@cython.final
@cython.internal
cdef class Cork:
    """``with transport.cork():`` may be nested; the outermost one writes."""

    cdef:
        FrameWriter _transport
        int _entered

    def __cinit__(self, FrameWriter transport not None):
        self._transport = transport

    def __enter__(self):
        self._transport.check_thread("cork")
        self._transport.begin_cork()
        self._entered += 1

    def __exit__(self, *exc_info):
        self._transport.check_thread("cork")
        if self._entered == 0:
            raise RuntimeError("cork() was left more often than it was entered")
        self._entered -= 1
        self._transport.end_cork()


cdef class FrameWriter(Link):
    """The sending half of :class:`WSTransport`."""

    def __dealloc__(self):
        release(self._gathered)
        self._forget_late()

    @property
    def write_buffer_size(self):
        """Bytes that were sent but that the kernel has not taken yet, including frames that are being gathered."""
        self.check_thread("write_buffer_size")
        if self.state == State.CLOSED:
            return 0
        cdef Py_ssize_t size = self.underlying_transport.get_write_buffer_size()
        return size if self._fast is not None else size + self._gathered_size

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the marks, in bytes, at which ``pause_writing`` and ``resume_writing`` are called.

        As ``asyncio.WriteTransport.set_write_buffer_limits``: 64 KiB and a quarter of `high` by default.
        """
        self.check_thread("set_write_buffer_limits")
        if self.state != State.CLOSED and not self.underlying_transport.is_closing():  # asyncio's may be half gone
            self.underlying_transport.set_write_buffer_limits(high, low)

    cpdef send(
        self, msg_type, message, bint fin=True, bint rsv1=False, bint rsv2=False, bint rsv3=False, compress=None
    ):
        """Send one frame.

        :param msg_type: a :class:`WSMsgType` other than CLOSE
        :param message: ``str`` (sent as UTF-8), a contiguous bytes-like object, or None for an empty payload. It is
            copied before this method returns, so the caller may reuse its buffer.
        :param fin: False for a fragment that more CONTINUATION frames follow
        :param rsv1, rsv2, rsv3: reserved bits, only if an extension was negotiated by hand
        :param compress: True or False overrides the ``threshold`` that messages are compressed from, if compression was
            negotiated. The first fragment decides for the whole message.
        :raises ConnectionClosed: a CLOSE frame was sent, or the connection is gone
        :raises TypeError, ValueError: an argument is wrong; nothing was sent
        """
        self.check_thread("send")
        cdef int head = self.first_byte(opcode_of(msg_type), fin, rsv1, rsv2, rsv3)
        if compress is not None:
            head |= compression(compress)
        self.send_object(head, message)

    cpdef send_many(self, msg_type, messages, compress=None):
        """Send every message of an iterable as a frame of its own, all of them in one write (64 KiB at a time).

        If a message is refused (see :meth:`send`), those before it are sent and the exception is raised.
        """
        self.check_thread("send_many")
        cdef int head = self.first_byte(opcode_of(msg_type), True, False, False, False) | compression(compress)
        if isinstance(messages, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"messages must be an iterable of messages, not {type(messages).__name__}")
        self.begin_cork()
        try:
            for message in messages:
                self.send_object(head, message)
        finally:
            self.end_cork()

    def cork(self):
        """A context manager: frames that are sent inside it leave in one write at its end (64 KiB at a time).

        It may be nested, and frames that were sent leave even if the block raises.
        """
        return Cork.__new__(Cork, self)

    cpdef send_reuse_external_bytearray(
        self, msg_type, bytearray buffer, Py_ssize_t msg_offset,
        bint fin=True, bint rsv1=False, bint rsv2=False, bint rsv3=False
    ):
        """Send ``buffer[msg_offset:]`` as one frame without copying it: header and mask are written into `buffer`.

        :param buffer: its content is destroyed; the caller may reuse it when this method returns. Until then code that
            resizes it, in ``pause_writing`` for instance, gets a :exc:`BufferError`.
        :param msg_offset: where the message starts; at least 14, the longest header
        """
        cdef Py_buffer view
        self.check_thread("send_reuse_external_bytearray")
        if buffer is None:
            raise TypeError("buffer must be a bytearray, not None")
        if msg_offset < WSF_MAX_HEADER:
            raise ValueError(f"msg_offset must be at least {WSF_MAX_HEADER}, the longest header, not {msg_offset}")
        cdef WSMsgType opcode = <WSMsgType>opcode_of(msg_type)
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if msg_offset > view.len:
                raise ValueError(f"msg_offset {msg_offset} lies behind the end of the buffer, {view.len}")
            self.send_reuse_external_buffer(
                opcode, <char *>view.buf + msg_offset, view.len - msg_offset, fin, rsv1, rsv2, rsv3)
        finally:
            PyBuffer_Release(&view)

    cdef int send_reuse_external_buffer(
        self, WSMsgType msg_type, char *payload, Py_ssize_t size,
        bint fin=True, bint rsv1=False, bint rsv2=False, bint rsv3=False
    ) except -1:
        self.check_thread("send_reuse_external_buffer")
        cdef:
            uint8_t first_byte = self.first_byte(msg_type, fin, rsv1, rsv2, rsv3)
            char *frame = payload - wsf_header_size(size)
            bint in_fragments = self._sending_fragments
            bint done = False
            uint32_t key
        self._require_open()
        if self._writing or self.cork_depth or self._flush_scheduled or self._gather or self._logs_or_deflates:
            return self._send_frame(first_byte, payload, size)
        if first_byte & WSF_CONTROL_BIT:
            raise ValueError("msg_type must not be a control frame: use send_ping() or send_pong()")
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        self._writing = True
        try:
            self._sending_fragments = not first_byte & FIN
            self._frames_sent += 1
            wsf_encode_header(<uint8_t *>frame, first_byte, size, key)
            _mask(<uint8_t *>payload, <uint8_t *>payload, size, key)
            self._write(frame, size + (payload - frame))
            done = True
        finally:
            self._end_write(done, in_fragments)
        return 0

    cdef int send_ptr(self, WSMsgType msg_type, const char *payload, Py_ssize_t size, bint fin=True) except -1:
        self.check_thread("send_ptr")
        return self._send_frame(self.first_byte(msg_type, fin, False, False, False), payload, size)

    cpdef send_ping(self, message=None):
        """Send a PING with a payload of at most 125 bytes."""
        self.send(WSMsgType.PING, message)

    cpdef send_pong(self, message=None):
        """Send a PONG with a payload of at most 125 bytes."""
        self.send(WSMsgType.PONG, message)

    @cython.final
    @cython.nonecheck(False)
    cdef int first_byte(self, int opcode, bint fin, bint rsv1, bint rsv2, bint rsv3) except -1:
        """The first byte of a frame, checked (RFC 6455 sections 5.2 and 5.4)."""
        if (opcode == WSMsgType.TEXT or opcode == WSMsgType.BINARY) and fin and not self._sending_fragments:
            if not (rsv1 or rsv2 or rsv3):
                return FIN | opcode
        if opcode == WSMsgType.CLOSE:
            raise ValueError("msg_type must not be CLOSE: use send_close()")
        cdef int rsv = rsv1 * RSV1 | rsv2 * RSV2 | rsv3 * RSV3
        if rsv & ~self._rsv_allowed:
            raise ValueError("rsv1, rsv2 and rsv3 may be set only if an extension that uses them was negotiated")
        if opcode == WSMsgType.PING or opcode == WSMsgType.PONG:
            if not fin:
                raise ValueError("fin must be True: a control frame cannot be fragmented")
        elif opcode == WSMsgType.CONTINUATION:
            if not self._sending_fragments:
                _wrong_sequence(False)
        elif opcode == WSMsgType.TEXT or opcode == WSMsgType.BINARY:
            if self._sending_fragments:
                _wrong_sequence(True)
        else:
            raise ValueError(f"msg_type must be a WSMsgType, not {opcode}")
        return (FIN if fin else 0) | rsv | opcode

    @cython.final
    @cython.nonecheck(False)
    cdef int send_object(self, int head, message) except -1:
        cdef:
            const char *text
            Py_ssize_t size
            Py_buffer view
        if type(message) is bytes:
            return self._send_frame(head, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
        if isinstance(message, str):
            text = PyUnicode_AsUTF8AndSize(message, &size)
            return self._send_frame(head, text, size)
        if message is None:
            return self._send_frame(head, b"", 0)
        try:
            PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
        except TypeError:
            raise no_message("message", message) from None
        except BufferError as exc:
            raise ValueError(f"message must be contiguous: {exc}") from None
        try:
            return self._send_frame(head, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    @cython.final
    @cython.nonecheck(False)
    cdef int _send_frame(self, int head, const char *payload, Py_ssize_t size) except -1:
        """Send a frame; `head` is its first byte, and whether to compress it (Compression)."""
        cdef:
            uint8_t first_byte = head
            bint in_fragments = self._sending_fragments
            bint done = False
        # WSTransport alone sends CLOSE, once, and when it has left the state OPEN already.
        if not self.is_open() and first_byte != (FIN | WSMsgType.CLOSE):
            self._raise_closed()
        if first_byte & WSF_CONTROL_BIT:
            if size > WSF_MAX_CONTROL:
                raise ValueError(
                    f"message must be at most {WSF_MAX_CONTROL} bytes in a control frame, not {size}")
        elif in_fragments != ((first_byte & WSF_OPCODE_BITS) == WSMsgType.CONTINUATION):
            # first_byte() has checked it, but since then the caller's code may have run: an iterator, a __bool__().
            _wrong_sequence(in_fragments)
        if self._writing:
            return self._send_later(head, payload, size)
        self._writing = True
        try:
            if not head & WSF_CONTROL_BIT:
                self._sending_fragments = not head & FIN
            self._emit_frame(head, payload, size)
            done = True
        finally:
            self._end_write(done, in_fragments)
        return 0

    # ---- one write at a time

    cdef int _send_later(self, int head, const char *payload, Py_ssize_t size) except -1:
        """Put a frame aside that was sent during a write. No Python runs in here, so their order is that of sending."""
        cdef LateFrame *late = <LateFrame *>PyMem_RawMalloc(sizeof(LateFrame) + size)
        if late == NULL:
            raise MemoryError(f"no memory for a frame of {size} bytes")
        late.next = NULL
        late.head = head | UNLOGGED if self._is_logging else head
        late.size = size
        memcpy(&late.payload[0], payload, size)
        if self._late == NULL:
            self._late = late
        else:
            self._latest.next = late
        self._latest = late
        if not head & WSF_CONTROL_BIT:
            self._sending_fragments = not head & FIN
        self._owed = True
        return 0

    @cython.nonecheck(False)
    cdef inline int _end_write(self, bint done, bint in_fragments) except -1:
        """The write of a frame is over, or has failed; `in_fragments` says whether a message was begun before it."""
        self._writing = False
        if not done:
            self._not_sent(in_fragments)
        if self._owed:
            self._settle()
        return 0

    cdef int _not_sent(self, bint in_fragments) except -1:
        """A frame was not sent; it may be sent again, unless others, which were accepted since, refer to it."""
        if self._late == NULL:
            self._sending_fragments = in_fragments
            return 0
        return self._break_off()

    cdef int _settle(self) except -1:
        """The write is over: do the work that had to wait for its end. Here a callback may do anything."""
        cdef:
            LateFrame *late
            bint done
        while self._owed and not self._writing:
            late = self._late
            if late == NULL and (self._gathered == NULL or self.cork_depth or self._flush_scheduled):
                self._owed = False
                self._catch_up()
                continue
            self._writing = True
            done = False
            try:
                if late == NULL:
                    self._write_gathered()
                else:
                    self._late = late.next
                    self._emit_frame(late.head, &late.payload[0], late.size)
                done = True
            finally:
                PyMem_RawFree(late)
                self._writing = False
                if not done:
                    self._break_off()
        return 0

    cdef void _forget_late(self) noexcept:
        cdef LateFrame *late
        while self._late != NULL:
            late = self._late
            self._late = late.next
            PyMem_RawFree(late)

    # ---- inside a write

    @cython.nonecheck(False)
    cdef inline int _emit_frame(self, int head, const char *payload, Py_ssize_t size) except -1:
        if self._logs_or_deflates:
            return self._log_and_deflate(head, payload, size)
        return self._encode_frame(head, payload, size)

    @cython.nonecheck(False)
    cdef inline int _encode_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        self._frames_sent += 1
        if size > WRITE_SIZE - WSF_MAX_HEADER:
            return self._write_large(first_byte, payload, size)
        if self.cork_depth or self._flush_scheduled or (self._gather and self._may_wait()):
            return self._gather_frame(first_byte, payload, size)
        return self._write_alone(first_byte, payload, size)

    @cython.final
    cdef int _write_alone(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        """A frame that is written at once."""
        cdef:
            uint32_t key
            char *area
            char *frame
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        area = self._scratch.take_write()
        try:
            frame = area + CACHE_LINE - wsf_header_size(size)
            self._write(
                frame, wsf_encode_frame(_mask, <uint8_t *>frame, first_byte, <const uint8_t *>payload, size, key))
        finally:
            self._scratch.give_write(area)
        return 0

    cdef int _log_and_deflate(self, int head, const char *payload, Py_ssize_t size) except -1:
        if self._log is not None and not head & UNLOGGED:
            self._log_frame("> %s", head & 0xFF, payload, size)
        if self._deflater is not None and not head & WSF_CONTROL_BIT:
            return self._deflate_frame(head, payload, size)
        return self._encode_frame(head, payload, size)

    cdef int _log_frame(self, str line, int head, const char *payload, Py_ssize_t size) except -1:
        """Whatever happens in here, the frame is sent or delivered. An exception is printed; the event loop raises
        KeyboardInterrupt and its like, which are meant for the program."""
        if self._is_logging:
            return 0
        self._is_logging = True
        try:
            guarded(self._log, line, describe(head, payload[:size]))
        except BaseException as exc:
            self.loop.call_soon(_raise, exc)
        finally:
            self._is_logging = False
        return 0

    cdef int _deflate_frame(self, int head, const char *payload, Py_ssize_t size) except -1:
        """A data frame, compressed if it is to be (RFC 7692 section 6: RSV1 of the first frame says so)."""
        cdef:
            Deflater deflater = self._deflater
            bint fin = head & FIN
            bint compressed = deflater.wants(head, size)
            bytes deflated
        if (head & WSF_OPCODE_BITS) != WSMsgType.CONTINUATION:
            deflater.in_message = compressed and not fin
            head |= RSV1 if compressed else 0
        if not compressed:
            return self._encode_frame(head, payload, size)
        try:
            deflated = deflater.deflate(PyMemoryView_FromMemory(<char *>payload, size, PyBUF_READ), fin)
            return self._encode_frame(
                head, PyBytes_AS_STRING(deflated), PyBytes_GET_SIZE(deflated) - (TAIL_SIZE if fin else 0))
        except BaseException:
            deflater.reset()  # the next message would refer to bytes that the server may not get
            raise

    cdef bint _may_wait(self) except -1:
        """write_policy="gather": true if another frame has left in this iteration of the loop.

        The first frame of an iteration leaves at once, the others when the iteration ends. To know its end costs a
        callback, which a program that answers every message with one would pay for each, and for nothing. So it is
        scheduled with the second frame since the last read. That one waits if the first left in the same callback of
        the loop, hence in the same iteration. Otherwise this is unknown, and it leaves at once.
        """
        cdef uint64_t callback = wsf_callback()
        if self._sent_in == 0:
            self._sent_in = callback
            return False
        self.loop.call_soon(self._iteration_ends)
        self._flush_scheduled = True
        return self._sent_in == callback

    @cython.nonecheck(False)
    cdef inline int _gather_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        cdef uint32_t key
        if self._gathered_size + size > WRITE_SIZE - WSF_MAX_HEADER:
            self._write_gathered()  # nothing joins it during a write, so the frame fits now: _encode_frame() saw to it
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        if self._gathered == NULL:
            self._begin_gathering()
        self._frames_gathered += 1
        self._gathered_size += wsf_encode_frame(
            _mask, <uint8_t *>self._gathered + self._gathered_size, first_byte, <const uint8_t *>payload, size, key)
        if self._gathered_size >= GATHER_LIMIT:
            self._write_gathered()
        return 0

    cdef int _begin_gathering(self) except -1:
        self._gathered = self._scratch.take_write()
        return 0

    cdef int _write_large(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        """A frame that leaves alone, by one write; if it is very long, by one for every LONG_FRAME bytes."""
        cdef:
            uint32_t key
            char *area
            char *ptr
            Py_ssize_t piece = min(size, <Py_ssize_t>LONG_FRAME), capacity = piece
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        self._write_gathered()
        area = self._scratch.take_large(&capacity)
        try:
            ptr = area + CACHE_LINE - wsf_header_size(size)
            wsf_encode_header(<uint8_t *>ptr, first_byte, size, key)
            while size > 0:
                # Four bytes of the mask repeat, and every piece but the last is a multiple of four.
                _mask(<uint8_t *>area + CACHE_LINE, <const uint8_t *>payload, piece, key)
                self._write(ptr, area + CACHE_LINE + piece - ptr)
                ptr = area + CACHE_LINE
                payload, size = payload + piece, size - piece
                piece = min(size, piece)
        finally:
            self._scratch.give_large(area, capacity)
        return 0

    cdef int _write_gathered(self) except -1:
        cdef:
            char *area = self._gathered
            Py_ssize_t size = self._gathered_size
        if area == NULL:
            return 0
        self._gathered = NULL
        self._gathered_size = 0
        try:
            if size and self.state != State.CLOSED:
                self._write(area, size)
        finally:
            self._scratch.give_write(area)
        return 0

    @cython.final
    @cython.nonecheck(False)
    cdef int _write(self, char *ptr, Py_ssize_t size) except -1:
        """Call send(2) if nothing is queued. The transport copies and queues the bytes that the kernel did not take."""
        cdef bint done = False
        self._writes += 1
        self._bytes_sent += size
        try:
            if self._notifies_poller:
                self._event()
            if self._fast is not None:
                self._fast.write_c(ptr, size)
            else:
                self.underlying_transport.write(PyBytes_FromStringAndSize(ptr, size))
            done = True
        finally:
            if not done:
                self._break_off()  # a part of it may have left: the server would take the next bytes for its rest
        if self.writing_paused:
            self._note_backlog(self.underlying_transport.get_write_buffer_size())
        return 0

    cdef void _note_backlog(self, Py_ssize_t size) noexcept:
        """Note for stats how many bytes wait for the kernel. SocketTransport calls it, too."""
        self._longest_backlog = max(self._longest_backlog, size)

    # ---- gathering

    cdef int flush(self) except -1:
        """Write the frames gathered so far."""
        if self._gathered == NULL:
            return 0
        if self._writing:
            self._owed = True
            return 0
        self._writing = True
        try:
            self._write_gathered()
        finally:
            self._writing = False
            if self._owed:
                self._settle()
        return 0

    cdef int end_cork(self) except -1:
        self.cork_depth -= 1
        if self.cork_depth == 0 and not self._flush_scheduled:
            self.flush()
        return 0

    def _iteration_ends(self):
        self._flush_scheduled = False
        self._sent_in = 0
        if self.cork_depth == 0:
            self.flush()

    @cython.nonecheck(False)
    cdef inline int _require_open(self) except -1:
        if not self.is_open():
            self._raise_closed()
        return 0

    cdef int _catch_up(self) except -1:
        """WSTransport does the work that had to wait for the end of a write, and notifies its listener."""

    cdef int _break_off(self) except -1:
        """WSTransport ends the connection at once."""

    # ---- called by the transport beneath

    def pause_writing(self):
        self._writing_changed(True)

    def resume_writing(self):
        self._resuming = True
        try:
            self._writing_changed(False)
        finally:
            self._resuming = False

    cdef int _writing_changed(self, bint paused) except -1:
        self.writing_paused = paused
        if self._writing:
            self._owed = True
            return 0
        return self._catch_up()


cdef int _wrong_sequence(bint in_fragments) except -1:
    """RFC 6455 section 5.4."""
    if in_fragments:
        raise ValueError("msg_type must be CONTINUATION until the fragmented message ends")
    raise ValueError("msg_type must not be CONTINUATION: no fragmented message was begun")


def _raise(exc):
    raise exc

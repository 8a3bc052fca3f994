"""The hot path: an asyncio protocol that decodes, dispatches and sends WebSocket frames.

WSTransport is both the protocol that aiofastnet's transport reads into and the object that a listener sends with, so
that a frame passes no layer in between. What happens once per connection is elsewhere: opening.py opens it, keepalive.py
pings, closing.py finds the words for its end.

The life of a connection:

    CONNECTING  the opening handshake; no listener yet
    OPEN        frames flow both ways
    CLOSING     CLOSE was sent; frames are still delivered until the server's CLOSE
    DRAINING    nothing is delivered any more; what arrives is read only to find the server's CLOSE and the end of the
                stream, because closing a socket that holds unread bytes resets it and may destroy what was sent last
    FAILED      like DRAINING after a violation of the protocol: what arrives has no meaning
    CLOSED      the connection is gone

From CLOSING on a timer runs: close_timeout after its start the connection is aborted, whatever the server does.
"""

import asyncio

cimport cython
from aiofastnet.transport cimport Protocol, Transport
from aiofastnet.utils cimport NoResult
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from wsfast._core cimport (
    WSF_FRAME,
    WSF_INCOMPLETE,
    WSF_MAX_HEADER,
    wsf_close_code_valid,
    wsf_decode_header,
    wsf_decoder_advance,
    wsf_encode_frame,
    wsf_encode_header,
    wsf_header,
    wsf_header_size,
    wsf_mask_best,
    wsf_mask_fn,
    wsf_mask_key,
    wsf_status,
    wsf_status_close_code,
    wsf_status_reason,
)
from wsfast._frame cimport FrameFields, WSFrame, WSMsgType
from wsfast._memory cimport (
    CACHE_LINE,
    READ_SIZE,
    REST_LIMIT,
    WRITE_SIZE,
    ReadBuffer,
    new_read_buffer,
    scratch_of_thread,
)

from wsfast import closing
from wsfast.exceptions import Close, PayloadTooBig, ProtocolError, WSProtocolError
from wsfast.keepalive import Keepalive


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object s, Py_ssize_t *size) except NULL
    unsigned long PyThread_get_thread_ident()
    Py_ssize_t Py_REFCNT(PyObject *o)


cdef extern from *:
    """
    #include <time.h>

    static inline double wsf_monotonic(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    }
    """
    double wsf_monotonic() noexcept


cdef enum State:
    CONNECTING
    OPEN
    CLOSING
    DRAINING
    FAILED
    CLOSED


cdef enum:
    FIN = 0x80
    RSV1 = 0x40
    RSV2 = 0x20
    RSV3 = 0x10
    # RFC 6455 section 5.5: the payload of a control frame; in a CLOSE frame the code takes two bytes of it.
    MAX_CONTROL_PAYLOAD = 125
    MAX_CLOSE_REASON = 123
    # Gathered frames leave when there are this many bytes of them: more in one write gains nothing.
    GATHER_LIMIT = 64 * 1024
    # A long frame is received into a buffer of its own, with this much room behind it for what follows.
    OWN_SLACK = 16 * 1024


cdef wsf_mask_fn _mask = wsf_mask_best().fn

#: Name of the masking kernel in use: "scalar", "avx2", "avx512" or "neon".
mask_kernel = (<bytes>wsf_mask_best().name).decode()


cdef class WSListener:
    """What a program does with a connection: subclass it and override the callbacks you need.

    A callback may send, close, raise, and drop the last reference to anything. An exception that leaves a callback ends
    the connection with code 1011, or with the code of a :class:`WSProtocolError`, and is raised again by
    :meth:`WSTransport.wait_disconnected`.
    """

    cpdef on_ws_connected(self, WSTransport transport):
        """The opening handshake is over; the connection is open."""

    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        """A frame arrived.

        PING frames come here only with ``enable_auto_pong=False``, and PONG frames only if no PING of wsfast itself was
        waiting for them. A CLOSE frame is the last one, and is answered when this method returns.
        """

    cpdef on_ws_disconnected(self, WSTransport transport):
        """The connection is gone. ``transport.close_info`` tells why."""

    cpdef send_user_specific_ping(self, WSTransport transport):
        """Send what the server answers to, if that is not a PING frame."""
        transport.send_ping()

    cpdef is_user_specific_pong(self, WSFrame frame):
        """True if the frame answers :meth:`send_user_specific_ping`. Such a frame is not delivered."""
        return (<FrameFields>frame).msg_type == WSMsgType.PONG

    cpdef pause_writing(self):
        """The write buffer grew over its high-water mark: stop sending, or it grows without bounds."""

    cpdef resume_writing(self):
        """The write buffer shrank below its low-water mark."""


@cython.final
@cython.internal
cdef class Cork:
    """``with transport.cork():`` may be nested; the outermost one writes."""

    cdef WSTransport _transport

    def __cinit__(self, WSTransport transport):
        self._transport = transport

    def __enter__(self):
        self._transport._check_thread("cork")
        self._transport._cork_depth += 1

    def __exit__(self, *exc_info):
        self._transport._uncork()


@cython.final
cdef class WSTransport(Protocol):
    """An open connection: what a listener sends with. Made by :func:`wsfast.ws_connect`, not by hand.

    All methods are to be called in the thread of the event loop and raise :exc:`RuntimeError` elsewhere.

    .. attribute:: underlying_transport

        The ``asyncio.Transport`` beneath.

    .. attribute:: request
    .. attribute:: response

        The upgrade request and the server's reply, with ``headers``.

    .. attribute:: subprotocol

        The subprotocol that the server picked, or None.

    .. attribute:: is_secure

        True over TLS.

    .. attribute:: close_info

        A :class:`WSDisconnectInfo` that says who ended the connection, how and why; None until it has ended.
    """

    def __init__(
        self, loop, opening, *, logger, bint secure, uint64_t max_frame_size, bint auto_pong,
        bint disconnect_on_exception, close_timeout, bint gather
    ):
        self._loop = loop
        self._opening = opening
        self._logger = logger
        self.is_secure = secure
        self._decoder.max_payload = max_frame_size
        self._auto_pong = auto_pong
        self._disconnect_on_exception = disconnect_on_exception
        self._close_timeout = close_timeout
        self._gather = gather
        self._state = State.CONNECTING

    def __dealloc__(self):
        PyMem_RawFree(self._rest)
        free(self._gathered)

    def __repr__(self):
        names = ("connecting", "open", "closing", "draining", "failed", "closed")
        return f"<WSTransport {names[self._state]} {self.underlying_transport!r}>"

    # ---- attributes

    @property
    def is_client_side(self):
        """Always True: wsfast is a client."""
        return True

    @property
    def is_close_frame_sent(self):
        """True once a CLOSE frame was sent. From then on nothing else can be."""
        return self._close_sent is not None

    @property
    def is_disconnected(self):
        """True once the connection is gone."""
        return self._state == State.CLOSED

    @property
    def close_handshake(self):
        """The CLOSE frames seen so far as a :class:`WSCloseHandshake`, or None."""
        return closing.close_handshake(self._close_received, self._close_sent, self._received_then_sent)

    @property
    def write_buffer_size(self):
        """Bytes that were sent but that the kernel has not taken yet, including frames that are being gathered."""
        self._check_thread("write_buffer_size")
        if self._state == State.CLOSED:
            return 0
        cdef Py_ssize_t size = self.underlying_transport.get_write_buffer_size()
        return size if self._fast is not None else size + self._gathered_size

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the marks, in bytes, at which ``pause_writing`` and ``resume_writing`` are called.

        As ``asyncio.WriteTransport.set_write_buffer_limits``: 64 KiB and a quarter of `high` by default.
        """
        self._check_thread("set_write_buffer_limits")
        if self._state != State.CLOSED:
            self.underlying_transport.set_write_buffer_limits(high, low)

    # ---- sending

    cpdef send(self, msg_type, message, bint fin=True, bint rsv1=False, bint rsv2=False, bint rsv3=False):
        """Send one frame.

        :param msg_type: a :class:`WSMsgType` other than CLOSE
        :param message: ``str`` (sent as UTF-8), a contiguous bytes-like object, or None for an empty payload. It is
            copied before this method returns, so the caller may reuse its buffer.
        :param fin: False for a fragment that more CONTINUATION frames follow
        :param rsv1, rsv2, rsv3: reserved bits, only if an extension was negotiated
        :raises ConnectionClosed: a CLOSE frame was sent, or the connection is gone
        :raises TypeError, ValueError: an argument is wrong; nothing was sent
        """
        self._check_thread("send")
        self._send_object(self._first_byte(_opcode(msg_type), fin, rsv1, rsv2, rsv3), message)

    cpdef send_many(self, msg_type, messages):
        """Send every message of an iterable as a frame of its own, all of them in one write (64 KiB at a time).

        If a message is refused (see :meth:`send`), those before it are sent and the exception is raised.
        """
        self._check_thread("send_many")
        cdef int first_byte = self._first_byte(_opcode(msg_type), True, False, False, False)
        if isinstance(messages, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"messages must be an iterable of messages, not {type(messages).__name__}")
        self._cork_depth += 1
        try:
            for message in messages:
                self._send_object(first_byte, message)
        finally:
            self._uncork()

    def cork(self):
        """A context manager: what is sent inside it leaves in one write at its end (64 KiB at a time).

        It may be nested, and frames that were sent leave even if the block raises.
        """
        return Cork.__new__(Cork, self)

    cpdef send_reuse_external_bytearray(
        self, msg_type, bytearray buffer, Py_ssize_t msg_offset,
        bint fin=True, bint rsv1=False, bint rsv2=False, bint rsv3=False
    ):
        """Send ``buffer[msg_offset:]`` as one frame without copying it: header and mask are written into `buffer`.

        :param buffer: its content is destroyed; it may be reused when this method returns
        :param msg_offset: where the message starts; at least 14, the longest header
        """
        self._check_thread("send_reuse_external_bytearray")
        if buffer is None:
            raise TypeError("buffer must be a bytearray, not None")
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(buffer) - msg_offset
        if msg_offset < WSF_MAX_HEADER:
            raise ValueError(f"msg_offset must be at least {WSF_MAX_HEADER}, the longest header, not {msg_offset}")
        if size < 0:
            raise ValueError(f"msg_offset {msg_offset} lies behind the end of the buffer, {len(buffer)}")
        self.send_reuse_external_buffer(
            <WSMsgType>_opcode(msg_type), PyByteArray_AS_STRING(buffer) + msg_offset, size, fin, rsv1, rsv2, rsv3)

    cdef int send_reuse_external_buffer(
        self, WSMsgType msg_type, char *payload, Py_ssize_t size,
        bint fin=True, bint rsv1=False, bint rsv2=False, bint rsv3=False
    ) except -1:
        self._check_thread("send_reuse_external_buffer")
        cdef:
            uint8_t first_byte = self._first_byte(msg_type, fin, rsv1, rsv2, rsv3)
            char *frame = payload - wsf_header_size(size)
            uint32_t key
        self._require_open()
        if self._cork_depth or self._flush_scheduled or self._gather:
            return self._send_frame(first_byte, payload, size)
        if first_byte & 0x08:
            raise ValueError("msg_type must not be a control frame: use send_ping() or send_pong()")
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        self._sending_fragments = not first_byte & FIN
        wsf_encode_header(<uint8_t *>frame, first_byte, size, key)
        _mask(<uint8_t *>payload, <uint8_t *>payload, size, key)
        return self._write(frame, size + (payload - frame))

    cdef int send_ptr(self, WSMsgType msg_type, const char *payload, Py_ssize_t size, bint fin=True) except -1:
        self._check_thread("send_ptr")
        return self._send_frame(self._first_byte(msg_type, fin, False, False, False), payload, size)

    cpdef send_ping(self, message=None):
        """Send a PING with a payload of at most 125 bytes."""
        self.send(WSMsgType.PING, message)

    cpdef send_pong(self, message=None):
        """Send a PONG with a payload of at most 125 bytes."""
        self.send(WSMsgType.PONG, message)

    cdef int _first_byte(self, int opcode, bint fin, bint rsv1, bint rsv2, bint rsv3) except -1:
        """The first byte of a frame, checked (RFC 6455 sections 5.2 and 5.4)."""
        if (opcode == WSMsgType.TEXT or opcode == WSMsgType.BINARY) and fin and not self._sending_fragments:
            if not (rsv1 or rsv2 or rsv3):
                return FIN | opcode
        if opcode == WSMsgType.CLOSE:
            raise ValueError("msg_type must not be CLOSE: use send_close()")
        cdef int rsv = rsv1 * RSV1 | rsv2 * RSV2 | rsv3 * RSV3
        if rsv & ~self._decoder.rsv_allowed:
            raise ValueError("rsv1, rsv2 and rsv3 may be set only if an extension that uses them was negotiated")
        if opcode == WSMsgType.PING or opcode == WSMsgType.PONG:
            if not fin:
                raise ValueError("fin must be True: a control frame cannot be fragmented")
        elif opcode == WSMsgType.CONTINUATION:
            if not self._sending_fragments:
                raise ValueError("msg_type must not be CONTINUATION: no fragmented message was begun")
        elif opcode == WSMsgType.TEXT or opcode == WSMsgType.BINARY:
            if self._sending_fragments:
                raise ValueError("msg_type must be CONTINUATION until the fragmented message ends")
        else:
            raise ValueError(f"msg_type must be a WSMsgType, not {opcode}")
        return (FIN if fin else 0) | rsv | opcode

    cdef int _send_object(self, uint8_t first_byte, message) except -1:
        cdef:
            const char *text
            Py_ssize_t size
            Py_buffer view
        if type(message) is bytes:
            return self._send_frame(first_byte, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
        if isinstance(message, str):
            text = PyUnicode_AsUTF8AndSize(message, &size)
            return self._send_frame(first_byte, text, size)
        if message is None:
            return self._send_frame(first_byte, b"", 0)
        try:
            PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
        except TypeError:
            raise TypeError(f"message must be str or bytes-like, not {type(message).__name__}") from None
        except BufferError as exc:
            raise ValueError(f"message must be contiguous: {exc}") from None
        try:
            return self._send_frame(first_byte, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int _send_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        self._require_open()
        if size > MAX_CONTROL_PAYLOAD and first_byte & 0x08:
            raise ValueError(f"message must be at most {MAX_CONTROL_PAYLOAD} bytes in a control frame, not {size}")
        if not first_byte & 0x08:
            self._sending_fragments = not first_byte & FIN
        if size > WRITE_SIZE - WSF_MAX_HEADER:
            return self._send_large(first_byte, payload, size)
        if self._cork_depth or self._flush_scheduled:
            return self._gather_frame(first_byte, payload, size)
        if self._gather:
            # The first frame of a loop iteration leaves at once, the others when the iteration ends.
            self._loop.call_soon(self._iteration_ends)
            self._flush_scheduled = True
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

    cdef int _gather_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        cdef uint32_t key
        if self._gathered_size + size > WRITE_SIZE - WSF_MAX_HEADER:
            self._flush()
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        if self._gathered == NULL:
            self._gathered = self._scratch.take_write()
        self._gathered_size += wsf_encode_frame(
            _mask, <uint8_t *>self._gathered + self._gathered_size, first_byte, <const uint8_t *>payload, size, key)
        if self._gathered_size >= GATHER_LIMIT:
            self._flush()
        return 0

    cdef int _send_large(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1:
        """Send a frame that is masked and written piece by piece, each small enough to stay in the cache.

        Between the pieces a callback (pause_writing) may run only after the last one, and what is sent meanwhile, by a
        finalizer for instance, is gathered: nothing may get into the middle of the frame.
        """
        cdef:
            uint32_t key
            char *area
            Py_ssize_t header, piece
        if wsf_mask_key(&key) != 0:
            PyErr_SetFromErrno(OSError)
        self._flush()
        area = self._scratch.take_write()
        self._cork_depth += 1
        self._writing_large = True
        try:
            header = wsf_encode_header(<uint8_t *>area, first_byte, size, key)
            while size > 0:
                # Four bytes of the mask repeat, so every piece but the last is a multiple of four.
                piece = min(size, (WRITE_SIZE - header) & ~<Py_ssize_t>3)
                _mask(<uint8_t *>area + header, <const uint8_t *>payload, piece, key)
                self._write(area, header + piece)
                payload += piece
                size -= piece
                header = 0
        finally:
            self._writing_large = False
            self._scratch.give_write(area)
            self._uncork()
        if self._pause_owed:
            self._pause_owed = False
            self.pause_writing()
        return 0

    cdef int _write(self, char *ptr, Py_ssize_t size) except -1:
        """send(2) if nothing is queued; what the kernel does not take is copied and queued."""
        if self._fast is not None:
            self._fast.write_c(ptr, size)
        else:
            self.underlying_transport.write(PyBytes_FromStringAndSize(ptr, size))
        return 0

    cdef int _flush(self) except -1:
        """Write the frames gathered so far."""
        cdef:
            char *area = self._gathered
            Py_ssize_t size = self._gathered_size
        if area == NULL:
            return 0
        self._gathered = NULL
        self._gathered_size = 0
        try:
            if self._state != State.CLOSED:
                self._write(area, size)
        finally:
            self._scratch.give_write(area)
        return 0

    cdef int _uncork(self) except -1:
        self._cork_depth -= 1
        if self._cork_depth == 0 and not self._flush_scheduled:
            self._flush()
        return 0

    def _iteration_ends(self):
        self._flush_scheduled = False
        if self._cork_depth == 0:
            self._flush()

    cdef int _check_thread(self, str method) except -1:
        if PyThread_get_thread_ident() != self._thread_id:
            raise RuntimeError(
                f"WSTransport.{method}() called from a wrong thread: use loop.call_soon_threadsafe()")
        return 0

    cdef int _require_open(self) except -1:
        if self._state != State.OPEN:
            raise closing.connection_closed(self._close_received, self._close_sent, self._received_then_sent)
        return 0

    # ---- reading

    cpdef is_buffered_protocol(self):
        return True

    cdef NoResult get_buffer_c(self, Py_ssize_t hint, char **ptr, Py_ssize_t *size) except NoResult.EXC:
        if self._own is not None:
            ptr[0] = self._own.data + self._own_end
            size[0] = self._own.capacity - self._own_end
        else:
            self._scratch.reading_area(self._rest_size, ptr, size)
        return NoResult.OK

    cpdef get_buffer(self, Py_ssize_t hint):
        """For transports that know no C interface."""
        cdef:
            char *ptr
            Py_ssize_t size
        self.get_buffer_c(hint, &ptr, &size)
        return PyMemoryView_FromMemory(ptr, size, PyBUF_WRITE)

    cpdef data_received(self, data):
        """For transports that do not read into a protocol's buffer."""
        cdef:
            const unsigned char[::1] view = data
            char *ptr
            Py_ssize_t size, done = 0
        while done < len(view):
            self.get_buffer_c(-1, &ptr, &size)
            size = min(size, len(view) - done)
            memcpy(ptr, &view[done], size)
            done += size
            self.buffer_updated(size)

    cpdef buffer_updated(self, Py_ssize_t nbytes):
        cdef:
            WSTransport alive = self  # a callback may drop every other reference
            ReadBuffer buffer = self._own
            Py_ssize_t start, end
        if self._stamp_reads:
            self.last_received = wsf_monotonic()
        if buffer is not None:
            start, end = self._own_start, self._own_end + nbytes
            self._own = None
            alive._consume(buffer, start, end)
            return
        buffer = self._scratch.take_read(&start)
        end = start + self._rest_size + nbytes
        if self._rest_size:
            memcpy(buffer.data + start, self._rest, self._rest_size)
            PyMem_RawFree(self._rest)
            self._rest = NULL
            self._rest_size = 0
        try:
            alive._consume(buffer, start, end)
        finally:
            alive._scratch.give_read(buffer, end)

    cdef int _consume(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        """Take the received bytes buffer[start:end]."""
        if self._state == State.CONNECTING:
            # What follows the server's reply, the last bytes of this read, is frames already.
            start = end - <Py_ssize_t>self._opening.data_received(
                PyBytes_FromStringAndSize(buffer.data + start, end - start))
        while self._state != State.CONNECTING and self._state < State.FAILED:
            try:
                self._frame_end = start
                self._deliver(buffer, start, end)
                break
            except BaseException as exc:
                if self._frame_end == start:
                    self._fail(1011, "", exc)  # no frame was dispatched: this is not the listener's (MemoryError, say)
                else:
                    self._callback_raised("on_ws_frame", exc)
                if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                    raise
                start = self._frame_end
        return 0

    cdef int _deliver(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        """Dispatch the complete frames of buffer[start:end] and keep the rest."""
        cdef:
            wsf_header header
            wsf_status status
            WSFrame frame = None
            const uint8_t *p
            Py_ssize_t size
        while start < end:
            p = <const uint8_t *>buffer.data + start
            status = wsf_decode_header(&self._decoder, p, end - start, &header)
            if status != WSF_FRAME:
                if status == WSF_INCOMPLETE:
                    return self._keep_rest(buffer, start, end, 0)
                self._violated(status, header.payload_len)
                return 0
            # No overflow: a payload is not longer than max_frame_size, which ws_connect() bounds.
            size = header.header_len + <Py_ssize_t>header.payload_len
            if size > end - start:
                return self._keep_rest(buffer, start, end, size)
            wsf_decoder_advance(&self._decoder, &header)
            start += size
            self._frame_end = start
            if self._state > State.CLOSING and header.opcode != WSMsgType.CLOSE:
                continue

            if frame is None or Py_REFCNT(<PyObject *>frame) > 1:
                frame = <WSFrame>WSFrame.__new__(WSFrame)
                frame.buffer = buffer
            frame.payload_ptr = <char *>p + header.header_len
            (<FrameFields>frame).payload_size = <Py_ssize_t>header.payload_len
            (<FrameFields>frame).tail_size = end - start
            (<FrameFields>frame).msg_type = <WSMsgType>header.opcode
            (<FrameFields>frame).fin = header.fin
            (<FrameFields>frame).rsv1 = header.rsv & RSV1
            (<FrameFields>frame).rsv2 = header.rsv & RSV2
            (<FrameFields>frame).rsv3 = header.rsv & RSV3
            if self._expect_pong and self._keepalive.is_pong(frame):
                continue
            if header.opcode & 0x08:
                self._dispatch_control(frame)
                if self._state >= State.FAILED:
                    return 0
            else:
                self._dispatch(frame)
        return 0

    cdef int _keep_rest(
        self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end, uint64_t frame_size
    ) except -1:
        """Keep the beginning of a frame, buffer[start:end], until the rest of it arrives.

        A short one is copied, and put in front of the next read. If it is long, or the frame is, a buffer that holds
        the frame is read into instead. `frame_size` is 0 if even the header is incomplete.
        """
        cdef Py_ssize_t size = end - start
        if size <= REST_LIMIT and frame_size <= <uint64_t>READ_SIZE >> 1:
            self._rest = <char *>PyMem_RawMalloc(size)
            if self._rest == NULL:
                raise MemoryError(f"no memory for {size} bytes of a frame")
            memcpy(self._rest, buffer.data + start, size)
            self._rest_size = size
            return 0
        self._own = new_read_buffer(frame_size + OWN_SLACK)
        memcpy(self._own.data, buffer.data + start, size)
        self._own_start = 0
        self._own_end = size
        return 0

    cdef int _dispatch(self, WSFrame frame) except -1:
        if self._on_frame is None:
            self._listener.on_ws_frame(self, frame)
        else:
            self._on_frame(self, frame)
        return 0

    cdef int _dispatch_control(self, WSFrame frame) except -1:
        if (<FrameFields>frame).msg_type == WSMsgType.CLOSE:
            return self._close_frame_received(frame)
        if (<FrameFields>frame).msg_type == WSMsgType.PING and self._auto_pong:
            return self._answer_ping(frame.get_payload_as_bytes())
        return self._dispatch(frame)

    cdef int _answer_ping(self, bytes payload) except -1:
        """RFC 6455 section 5.5.3: of several PINGs only the last need be answered. So while the server does not read,
        one answer is owed, however many PINGs it sends."""
        if self._state != State.OPEN:
            return 0
        if self._writing_paused:
            self._pong_owed = payload
            return 0
        return self._send_frame(FIN | WSMsgType.PONG, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))

    def _violated(self, int status, uint64_t payload_len):
        code = wsf_status_close_code(<wsf_status>status)
        reason = (<bytes>wsf_status_reason(<wsf_status>status)).decode()
        if self._state >= State.DRAINING:
            self._state = State.FAILED  # nobody waits for these frames any more
        elif code == 1009:
            self._fail(code, reason, PayloadTooBig(payload_len, self._decoder.max_payload))
        else:
            self._fail(code, reason, ProtocolError(reason))

    # ---- the protocol's other methods, called by the transport beneath

    def connection_made(self, transport):
        self.underlying_transport = transport
        if isinstance(transport, Transport):
            self._fast = transport
        self._thread_id = PyThread_get_thread_ident()
        self._scratch = scratch_of_thread()
        self._opening.connection_made(self)

    def connection_lost(self, exc):
        if self._state == State.CONNECTING:
            self._state = State.CLOSED
            self._opening.connection_lost(exc)
            self._opening = None
            return
        self._state = State.CLOSED
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        self._own = None
        self._flush()
        self.close_info = closing.disconnect_info(
            self._close_received, self._close_sent, self._received_then_sent, self._aborted,
            self._failure or self._cause or exc)
        try:
            self._disconnected_callbacks()
        finally:
            if self._disconnected is not None and not self._disconnected.done():
                self._disconnected.set_result(None)

    def _disconnected_callbacks(self):
        """Tell everybody but wait_disconnected(), and let go of them: they refer to each other."""
        if self._keepalive is not None:
            self._keepalive.stop(
                closing.connection_closed(self._close_received, self._close_sent, self._received_then_sent))
            self._keepalive = None
            self._expect_pong = False
        listener, self._listener, self._on_frame = self._listener, None, None
        try:
            listener.on_ws_disconnected(self)
        except BaseException as exc:
            self._callback_raised("on_ws_disconnected", exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise

    def eof_received(self):
        if self._state == State.CONNECTING:
            return False
        self._flush()
        self._start_close_timer()
        return False

    def pause_writing(self):
        self._writing_paused = True
        if self._writing_large:
            self._pause_owed = True
        elif self._listener is not None:
            try:
                self._listener.pause_writing()
            except Exception as exc:
                self._callback_raised("pause_writing", exc)

    def resume_writing(self):
        self._writing_paused = False
        if self._pause_owed:
            self._pause_owed = False
            return
        if self._pong_owed is not None:
            payload, self._pong_owed = self._pong_owed, None
            self._answer_ping(payload)
        if self._listener is not None:
            try:
                self._listener.resume_writing()
            except Exception as exc:
                self._callback_raised("resume_writing", exc)

    cpdef Py_ssize_t get_local_write_buffer_size(self) except -1:
        return self._gathered_size

    # ---- from the opening handshake to OPEN

    def _open(self, WSListener listener not None, request, response, subprotocol, int rsv_allowed):
        """The server agreed: deliver to this listener from now on."""
        self._opening = None
        self._listener = listener
        self._on_frame = _python_override(listener)
        self.request = request
        self.response = response
        self.subprotocol = subprotocol
        self._decoder.rsv_allowed = rsv_allowed
        self._state = State.OPEN

    def _connected(self):
        try:
            self._listener.on_ws_connected(self)
        except BaseException as exc:
            self._callback_raised("on_ws_connected", exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise

    # ---- pings

    def _keep_alive(self, idle_timeout, reply_timeout, strategy):
        """Send PINGs and end the connection if nothing answers; None as `idle_timeout` never pings by itself."""
        self._keepalive = Keepalive(self, self._listener, idle_timeout, reply_timeout, strategy)
        self._stamp_reads = idle_timeout is not None

    def _expect(self, bint pong):
        self._expect_pong = pong

    async def measure_roundtrip_time(self, int rounds):
        """Measure how long the server takes to answer a PING.

        :param rounds: how many PINGs to send, one after the other
        :returns: a list of `rounds` times in seconds
        :raises ConnectionClosed: the connection ended meanwhile
        """
        self._check_thread("measure_roundtrip_time")
        self._require_open()
        if self._keepalive is None:
            self._keep_alive(None, None, None)
        return await self._keepalive.measure(rounds)

    cpdef notify_user_specific_pong_received(self):
        """Say that the answer to :meth:`WSListener.send_user_specific_ping` arrived, if only your own decoding of the
        frames can tell. Does nothing if none is waited for."""
        self._check_thread("notify_user_specific_pong_received")
        if self._expect_pong:
            self._keepalive.pong_received()

    # ---- closing

    cpdef send_close(self, close_code=0, close_message=None):
        """Send a CLOSE frame; nothing can be sent after it. Frames are delivered until the server answers.

        The connection ends when the server has answered and closed it, at the latest ``close_timeout`` later.
        Does nothing if a CLOSE frame was sent before or the connection is gone.

        :param close_code: a :class:`WSCloseCode` or 3000-4999; ``NO_INFO`` (0) sends an empty CLOSE frame
        :param close_message: the reason, ``str`` or UTF-8 bytes, at most 123 bytes
        """
        self._check_thread("send_close")
        if not isinstance(close_code, int):
            raise TypeError(f"close_code must be a WSCloseCode, not {close_code!r}")
        if close_code and not (close_code in range(0x10000) and wsf_close_code_valid(close_code)):
            raise ValueError(f"close_code {close_code!r} must not be sent (RFC 6455 section 7.4)")
        cdef bytes reason = _close_reason(close_message)
        if reason and not close_code:
            raise ValueError("close_message needs a close_code")
        if self._state == State.OPEN:
            self._send_close_frame(close_code, reason)

    cdef int _send_close_frame(self, int code, bytes reason) except -1:
        cdef bytes payload = code.to_bytes(2, "big") + reason if code else b""
        sent = Close(code or closing.NO_STATUS_RECEIVED, reason.decode())
        self._send_frame(FIN | WSMsgType.CLOSE, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        self._close_sent = sent
        self._received_then_sent = self._close_received is not None
        self._state = State.CLOSING
        return self._start_close_timer()

    cdef int _close_frame_received(self, WSFrame frame) except -1:
        """RFC 6455 section 5.5.1: the code and reason must be legal, and the CLOSE frame is answered."""
        cdef:
            const uint8_t *payload = <const uint8_t *>frame.payload_ptr
            Py_ssize_t size = (<FrameFields>frame).payload_size
            int code = payload[0] << 8 | payload[1] if size >= 2 else 0
        if self._close_received is not None:
            return 0
        if size == 1 or (size >= 2 and not wsf_close_code_valid(code)):
            reason = f"invalid close code {code}" if size > 1 else "CLOSE frame with a payload of one byte"
            self._fail(1002, reason, ProtocolError(reason))
            return 0
        try:
            reason = PyUnicode_DecodeUTF8(frame.payload_ptr + 2, size - 2, NULL) if size > 2 else ""
        except UnicodeDecodeError:
            self._fail(1007, "close reason is not UTF-8", WSProtocolError(1007, "close reason is not UTF-8"))
            return 0
        self._close_received = Close(code or closing.NO_STATUS_RECEIVED, reason)
        self._start_close_timer()
        try:
            if self._state <= State.CLOSING:
                self._dispatch(frame)
        finally:
            if self._state == State.OPEN:
                self._send_close_frame(code, reason.encode())
                if self._cork_depth == 0:
                    self._flush()
            if self._state == State.CLOSING:
                self._state = State.DRAINING
        return 0

    cpdef disconnect(self, bint graceful=True):
        """End the connection. Nothing is delivered any more.

        :param graceful: send a CLOSE frame with code 1000 if none was sent, let everything that was sent reach the
            server, and then close; this takes ``close_timeout`` at most. If False, as :meth:`abort`.

        Does nothing if the connection is gone.
        """
        self._check_thread("disconnect")
        if not graceful:
            self.abort()
        elif self._state != State.CLOSED:
            if self._state == State.OPEN:
                self._send_close_frame(1000, b"")
            self._drain()

    cpdef abort(self):
        """Drop the connection at once, with everything that was not sent yet."""
        self._check_thread("abort")
        if self._state == State.CLOSED:
            return
        self._aborted = True
        self._state = max(self._state, <int>State.DRAINING)
        self._gathered_size = 0
        self.underlying_transport.abort()

    async def wait_disconnected(self):
        """Wait until the connection is gone and ``on_ws_disconnected`` has returned.

        :raises Exception: what ended the connection on this side: the exception of a callback, a
            :class:`WSProtocolError` if the server broke the protocol, :class:`KeepaliveTimeout` if it fell silent.
            Whatever the server did within the protocol is no error; see ``close_info``.
        """
        self._check_thread("wait_disconnected")
        if self._state != State.CLOSED:
            if self._disconnected is None:
                self._disconnected = self._loop.create_future()
            await asyncio.shield(self._disconnected)
        if self._failure is not None:
            raise self._failure

    cdef int _drain(self) except -1:
        """Say that nothing more will be sent, and read until the server has closed the connection too."""
        if self._state < State.DRAINING:
            self._state = State.DRAINING
        if self._half_closed or self._state == State.CLOSED:
            return 0
        self._half_closed = True
        self._flush()
        self._start_close_timer()
        if self.underlying_transport.is_closing():
            return 0
        self.underlying_transport.resume_reading()
        if self.underlying_transport.can_write_eof():
            self.underlying_transport.write_eof()
        else:
            # TLS: sends close_notify after what is queued, and reads until the server's.
            self.underlying_transport.close()
        return 0

    cdef int _start_close_timer(self) except -1:
        if self._close_timer is None and self._close_timeout is not None and self._state != State.CLOSED:
            self._close_timer = self._loop.call_later(self._close_timeout, self._close_timed_out)
        return 0

    def _close_timed_out(self):
        self._cause = TimeoutError(f"the server did not close the connection within {self._close_timeout} seconds")
        self.underlying_transport.abort()

    def _callback_raised(self, str callback, exc):
        """A callback raised: end the connection, unless that is all it was asked not to do."""
        if isinstance(exc, WSProtocolError):
            self._fail(exc.code, str(exc), exc)
        elif callback == "on_ws_frame" and not self._disconnect_on_exception and isinstance(exc, Exception):
            self._logger.error("exception in %s", callback, exc_info=exc)
        else:
            self._fail(1011, "", exc)

    def _fail(self, int code, str reason, exc):
        """End the connection because of `exc`: CLOSE with this code, and the exception to whoever waits."""
        if self._failure is None:
            self._failure = exc
            self._logger.warning("connection ended: %s: %s", type(exc).__name__, exc)
        else:
            self._logger.error("another exception while the connection ends", exc_info=exc)
        if self._state == State.CLOSED:
            return
        if self._state == State.OPEN:
            if not wsf_close_code_valid(code):
                code, reason = 1011, ""
            self._send_close_frame(code, reason.encode()[:MAX_CLOSE_REASON].decode(errors="ignore").encode())
        self._state = State.FAILED
        self._drain()


cdef int _opcode(msg_type) except -1:
    """A WSMsgType, or the int that it is, for _first_byte() to check."""
    if not isinstance(msg_type, int):
        raise TypeError(f"msg_type must be a WSMsgType, not {msg_type!r}")
    try:
        return max(<int>msg_type, 0x10) if <int>msg_type < 0 else <int>msg_type
    except OverflowError:
        raise ValueError(f"msg_type must be a WSMsgType, not {msg_type!r}") from None


cdef bytes _close_reason(close_message):
    """The reason of a CLOSE frame as UTF-8."""
    try:
        reason = close_message.encode() if isinstance(close_message, str) else bytes(memoryview(close_message or b""))
    except TypeError:
        raise TypeError(f"close_message must be str or bytes-like, not {type(close_message).__name__}") from None
    try:
        reason.decode()
    except UnicodeDecodeError as exc:
        raise ValueError(f"close_message must be UTF-8: {exc}") from None
    if len(reason) > MAX_CLOSE_REASON:
        raise ValueError(f"close_message must be at most {MAX_CLOSE_REASON} bytes, not {len(reason)}")
    return reason


cdef _python_override(WSListener listener):
    """The listener's on_ws_frame if it was written in Python, else None: a cpdef method is called without a look-up."""
    if "on_ws_frame" in getattr(listener, "__dict__", ()):
        return listener.on_ws_frame
    for cls in type(listener).__mro__:
        if "on_ws_frame" in cls.__dict__:
            # Py_TPFLAGS_HEAPTYPE: a class made by a class statement of Python, not an extension type.
            return listener.on_ws_frame if cls.__flags__ & (1 << 9) else None
    return None

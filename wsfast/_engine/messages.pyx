"""Messages from frames: fragments put together, inflated, and checked to be text, all within the limits.

Incoming is the part that every face needs. It takes frame by frame as they arrive, so a message fails with the frame
that breaks a rule. Messages stands between the engine and a listener that overrides on_ws_message(), or
on_ws_messages().
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from wsfast._engine.core cimport (
    WSF_CONTROL_BIT,
    wsf_is_ascii,
    wsf_is_text,
    wsf_message,
    wsf_message_forget,
    wsf_message_limit,
)
from wsfast._engine.frames.streams cimport TAIL_SIZE
from wsfast._engine.transport cimport WSListener, WSTransport, python_override
from wsfast._engine.frames.frame cimport FrameFields, WSFrame, WSMsgType
from wsfast._engine.frames.link cimport State
from wsfast._engine.frames.violation cimport add_content

from wsfast._common import protocol_numbers
from wsfast._engine.frames.inspection import WSMessageInfo
from wsfast.exceptions import InvalidText


cdef extern from "Python.h":
    void PyErr_Clear()
    # Without an exception handler around it: setting one up for every message costs more than it seems.
    PyObject *utf8_or_null "PyUnicode_DecodeUTF8"(const char *data, Py_ssize_t size, const char *errors)
    PyObject *ascii_or_null "PyUnicode_New"(Py_ssize_t size, Py_UCS4 largest)
    void *text_data "PyUnicode_DATA"(PyObject *text)


cdef enum:
    # CPython may have an object of a shorter text already.
    SHORT_TEXT = 16
    # Bytes of memory for the first fragments, at least.
    SMALLEST_CAPACITY = 512


# For Python: the `decode` of recv() for each form, and the form for None.
DECODE_BY_TYPE = BY_TYPE
DECODE = {BY_TYPE: None, AS_BYTES: False, AS_TEXT: True, AS_VIEW: memoryview}

cdef dict _payload_types = {memoryview: AS_VIEW, bytes: AS_BYTES, str: AS_TEXT}
cdef object _new_tuple = tuple.__new__
cdef tuple _msg_types = (None, protocol_numbers.WSMsgType.TEXT, protocol_numbers.WSMsgType.BINARY)


@cython.final
cdef class Incoming:
    """The message that is arriving. The core has judged its frames already, but not the content of compressed ones.

    :param max_message: bytes of a message, inflated
    :param max_fragment: bytes of a frame, inflated
    """

    def __init__(self, WSTransport transport not None, uint64_t max_message, uint64_t max_fragment):
        self.transport = transport
        self.is_plain = transport._inflater is None
        transport._message.whole = True
        transport._message.inflates = not self.is_plain
        wsf_message_limit(&transport._message, max_message, max_fragment)

    cdef bytes add(self, WSFrame frame):
        """Take note of the next frame, unless `is_plain` and it is a whole message. Returns the inflated payload;
        None if it was not compressed.

        Text is checked as far as it has arrived, but not that of whole messages: the caller that makes a str checks it.
        """
        cdef:
            wsf_message *message = &self.transport._message
            bint fin = (<FrameFields>frame).fin
            bint is_first = (<FrameFields>frame).msg_type != WSMsgType.CONTINUATION
            bytes inflated
        if is_first:
            self.msg_type = (<FrameFields>frame).msg_type
        if self.is_plain or not ((<FrameFields>frame).rsv1 if is_first else message.decoder.encoded):
            return None
        inflated = self._inflate(frame)
        self.transport._inflated += PyBytes_GET_SIZE(inflated)
        if not (is_first and fin):
            add_content(message, inflated, fin)
        return inflated

    cdef bytes _inflate(self, WSFrame frame):
        """Inflate the payload in place, with the tail behind it. The bytes that are there are put back afterwards."""
        cdef:
            bint fin = (<FrameFields>frame).fin
            Py_ssize_t limit = self.transport._message.decoder.max_payload
            Py_ssize_t size = (<FrameFields>frame).payload_size
            char *end = frame.payload_ptr + size
            char behind[TAIL_SIZE]
            object current = self.transport._message.size or None
        if not fin:
            return self.transport._inflater.inflate(frame, size, limit, False, current)
        memcpy(behind, end, TAIL_SIZE)
        memcpy(end, b"\x00\x00\xff\xff", TAIL_SIZE)
        (<FrameFields>frame).payload_size = size + TAIL_SIZE
        try:
            return self.transport._inflater.inflate(frame, size + TAIL_SIZE, limit, True, current)
        finally:
            (<FrameFields>frame).payload_size = size
            memcpy(end, behind, TAIL_SIZE)

    cdef void forget(self) noexcept:
        """Nothing more will be added."""
        wsf_message_forget(&self.transport._message)


@cython.final
cdef class Fragments:
    """The bytes of fragments, one after the other.

    They take at most half as much memory again as they are long, however many fragments they came in: so fragments need
    no limit but that of their bytes.
    """

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int append(self, const char *data, Py_ssize_t size) except -1:
        """Append bytes. Without memory, those appended before are still there."""
        cdef:
            Py_ssize_t needed = self.size + size, capacity
            char *larger
        if needed > self._capacity:
            capacity = max(needed, self._capacity + (self._capacity >> 1), <Py_ssize_t>SMALLEST_CAPACITY)
            larger = <char *>PyMem_RawRealloc(self.data, capacity)
            if larger == NULL:
                raise MemoryError(f"no memory for {needed} bytes of a fragmented message")
            self.data = larger
            self._capacity = capacity
        if size:
            memcpy(self.data + self.size, data, size)
        self.size = needed
        return 0

    cdef void clear(self) noexcept:
        PyMem_RawFree(self.data)
        self.data = NULL
        self.size = self._capacity = 0


@cython.nonecheck(False)  # Messages has looked at `frame`
cdef inline object _of_frame(WSFrame frame, int payload_type):
    """The payload of a whole message that lies in the read buffer."""
    if (<FrameFields>frame).msg_type == WSMsgType.TEXT:
        if payload_type == AS_TEXT:
            return decode(frame.payload_ptr, (<FrameFields>frame).payload_size)
        if not is_text(frame.payload_ptr, (<FrameFields>frame).payload_size):
            decode(frame.payload_ptr, (<FrameFields>frame).payload_size)  # raises InvalidText
    if payload_type == AS_VIEW:
        return PyMemoryView_FromObject(frame)
    return PyBytes_FromStringAndSize(frame.payload_ptr, (<FrameFields>frame).payload_size)


@cython.final
@cython.no_gc_clear  # so its fields are there; the transport's reference is cleared, and the program's listener
cdef class Messages(WSListener):
    """The listener that the engine delivers to if the program's overrides on_ws_message(), or on_ws_messages().

    :param gathers: it overrides on_ws_messages()
    """

    def __cinit__(self, WSListener listener not None, WSTransport transport not None, bint gathers=False):
        payload_type = listener.payload_type
        if payload_type not in _payload_types:
            raise TypeError(f"payload_type must be memoryview, bytes or str, not {payload_type!r}")
        self._listener = listener
        self._on_message = python_override(listener, "on_ws_message")
        self._payload_type = _payload_types[payload_type]
        self._incoming = Incoming(transport, transport._message.max_frame, transport._message.max_frame)
        self._fragments = Fragments.__new__(Fragments)
        self._stamps = transport.stamps_frames
        self._takes_frames = self._incoming.is_plain and not self._stamps
        if gathers:
            self._on_message = None
            self._batch = []
            self._on_messages = python_override(listener, "on_ws_messages")
            transport.notify_read_done()

    @cython.nonecheck(False)  # None is looked for here, and nothing clears the fields that __cinit__() sets
    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        cdef:
            int msg_type
            object payload
        if transport is None or frame is None:
            raise TypeError("on_ws_frame() is for the engine to call")
        msg_type = (<FrameFields>frame).msg_type
        if msg_type & WSF_CONTROL_BIT:
            return self._pass_on(transport, frame)
        transport.begin_message()
        try:
            if (<FrameFields>frame).fin and self._takes_frames and msg_type != WSMsgType.CONTINUATION:
                payload = _of_frame(frame, self._payload_type)
            else:
                payload = self._add(frame)
                if payload is None:
                    return
                msg_type = self._incoming.msg_type
                if self._stamps:
                    transport.gave_message(message_info(transport, frame, msg_type))
        finally:
            transport.end_message()
        if self._on_message is not None:
            self._on_message(transport, _msg_types[msg_type], payload)
        elif self._batch is not None:
            self._batch.append(payload)
        else:
            self._listener.on_ws_message(transport, _msg_types[msg_type], payload)

    cdef object _pass_on(self, WSTransport transport, WSFrame frame):
        self._deliver_batch(transport)  # which came before it
        if transport.state <= State.CLOSING:
            self._listener.on_ws_frame(transport, frame)

    cdef int _deliver_batch(self, WSTransport transport) except -1:
        """Deliver the gathered messages, unless the program wants no more."""
        cdef list batch = self._batch
        if not batch:  # or it is None
            return 0
        self._batch = []
        if transport.state > State.CLOSING:
            return 0
        try:
            if self._on_messages is None:
                self._listener.on_ws_messages(transport, batch)
            else:
                self._on_messages(transport, batch)
        except BaseException as exc:
            transport._delivery_raised(exc, True)
        return 0

    cdef int _read_done(self, WSTransport transport) except -1:
        return self._deliver_batch(transport)

    cdef int _failing(self, WSTransport transport) except -1:
        return self._deliver_batch(transport)

    cdef object _add(self, WSFrame frame):
        """Take a frame that may be a fragment, or compressed. Returns the payload of the message that it ends, else
        None."""
        cdef:
            bint is_first = (<FrameFields>frame).msg_type != WSMsgType.CONTINUATION
            bint fin = (<FrameFields>frame).fin
            bytes payload = self._incoming.add(frame)
        if is_first and fin:
            return _of_frame(frame, self._payload_type) if payload is None else self._of_bytes(payload, False)
        if payload is None:
            self._fragments.append(frame.payload_ptr, (<FrameFields>frame).payload_size)
        else:
            self._fragments.append(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        return self._of_fragments() if fin else None

    cdef object _of_fragments(self):
        try:
            if self._incoming.msg_type == WSMsgType.TEXT and self._payload_type == AS_TEXT:
                return decode(self._fragments.data, self._fragments.size)
            return self._of_bytes(PyBytes_FromStringAndSize(self._fragments.data, self._fragments.size), True)
        finally:
            self._fragments.clear()

    cdef object _of_bytes(self, bytes payload, bint is_valid):
        if self._incoming.msg_type == WSMsgType.TEXT:
            if self._payload_type == AS_TEXT:
                return decode(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
            if not is_valid and not is_text(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)):
                decode(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        return PyMemoryView_FromObject(payload) if self._payload_type == AS_VIEW else payload

    def _show_to(self, look):
        """See show_messages()."""
        cdef object listener = self._listener  # as Python sees it
        deliver = None if self._batch is not None else python_override(listener, "on_ws_message")
        if look is None:
            self._on_message = deliver
            return
        if self._batch is not None:
            deliver = self._gather
        elif deliver is None:
            deliver = listener.on_ws_message
        deliver_late = deliver if self._batch is None else self._deliver_one

        def shown(transport, msg_type, payload):
            verdict = look(payload)
            if verdict is False:
                deliver(transport, msg_type, payload)
            elif verdict is not True:
                if type(payload) is memoryview:
                    payload = memoryview(bytes(payload))  # for its read buffer is larger
                verdict.append((deliver_late, (transport, msg_type, payload)))

        self._on_message = shown

    def _gather(self, transport, msg_type, payload):
        self._batch.append(payload)

    def _deliver_one(self, transport, msg_type, payload):
        self._listener.on_ws_messages(transport, [payload])

    # ---- passed on

    cpdef on_ws_connected(self, WSTransport transport):
        self._listener.on_ws_connected(transport)

    cpdef on_ws_disconnected(self, WSTransport transport):
        self._listener.on_ws_disconnected(transport)

    cpdef send_user_specific_ping(self, WSTransport transport):
        self._listener.send_user_specific_ping(transport)

    cpdef is_user_specific_pong(self, WSFrame frame):
        # A frame that is not delivered must be a whole message that nothing later refers to.
        cdef FrameFields fields = frame
        cdef bint is_data = not fields.msg_type & WSF_CONTROL_BIT
        if is_data and (not fields.fin or fields.msg_type == WSMsgType.CONTINUATION or fields.rsv1):
            return False
        return self._listener.is_user_specific_pong(frame)

    cpdef pause_writing(self):
        self._listener.pause_writing()

    cpdef resume_writing(self):
        self._listener.resume_writing()


cdef object message_info(WSTransport transport, WSFrame frame, int msg_type):
    cdef:
        FrameFields fields = frame
        bint is_first = fields.msg_type != WSMsgType.CONTINUATION
        bint compressed = fields.rsv1 if is_first else transport._message.decoder.encoded
    return new_info(
        msg_type, compressed, frame.last_in_buffer, fields.recv_time_ns, fields.kernel_time_ns or None)


cdef object new_info(int msg_type, bint compressed, bint last_in_buffer, recv_time_ns, kernel_time_ns):
    return _new_tuple(
        WSMessageInfo, (_msg_types[msg_type], compressed, last_in_buffer, recv_time_ns, kernel_time_ns))


def show_messages(WSTransport transport not None, look, WSListener receiver=None):
    """Call `look(payload)` for each message from now on, before the message is delivered. None as `look` ends that.

    `look` returns False: the message is delivered; True: it is not; or a list, to which a pair is appended: a function
    and its arguments, which deliver the message later. An Inbox appends the arguments of put_back() only.

    The payload is the object that the program gets. A listener that gets frames shows the bytes of frames that are
    whole messages, and the sizes of fragments. Without `look` a frame costs the same as before.

    :param receiver: the object that the connection will deliver to, if it is not open yet
    """
    cdef object listener = transport._listener if receiver is None else receiver  # as Python sees it
    if listener is None:
        return  # the connection is gone
    if hasattr(listener, "_show_to"):
        listener._show_to(look)
        return
    deliver = python_override(listener, "on_ws_frame")
    if look is None:
        transport._deliver_frames_to(deliver)
        return
    if deliver is None:
        deliver = listener.on_ws_frame

    def shown(WSTransport transport, WSFrame frame):
        cdef FrameFields fields = frame
        cdef bint is_message = fields.fin and fields.msg_type != WSMsgType.CONTINUATION
        verdict = False
        if not fields.msg_type & WSF_CONTROL_BIT:
            verdict = look(frame.get_payload_as_bytes() if is_message else fields.payload_size)
        if verdict is False:
            deliver(transport, frame)
        elif verdict is not True:
            verdict.append((deliver, (transport, frame)))

    transport._deliver_frames_to(shown)


cdef int decoding(object decode) except -2:
    if decode is None:
        return BY_TYPE
    if decode is memoryview:
        return AS_VIEW
    return AS_TEXT if decode else AS_BYTES


cdef PyObject *text_or_null(const char *data, Py_ssize_t size) noexcept:
    # CPython looks at 8 bytes at a time; ASCII that is known to be such need only be copied.
    if size < SHORT_TEXT or not wsf_is_ascii(<const uint8_t *>data, size):
        return utf8_or_null(data, size, NULL)
    cdef PyObject *text = ascii_or_null(size, 127)
    if text != NULL:
        memcpy(text_data(text), data, size)
    return text


cdef object decode(const char *data, Py_ssize_t size):
    cdef PyObject *text = text_or_null(data, size)
    if text == NULL:
        PyErr_Clear()
        return _decode_slowly(data, size)
    return take_reference(text)


cdef object _decode_slowly(const char *data, Py_ssize_t size):
    try:
        return PyUnicode_DecodeUTF8(data, size, NULL)
    except UnicodeDecodeError as exc:
        raise InvalidText.from_decode_error(exc) from None


cdef bint is_text(const char *data, Py_ssize_t size) noexcept:
    return wsf_is_text(<const uint8_t *>data, size)

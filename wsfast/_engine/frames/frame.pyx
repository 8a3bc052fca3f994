"""A received frame, as a listener gets it.

A frame is a view of the buffer it was received into and keeps that buffer alive; nothing is copied until a get_...()
method is called, and whatever is kept stays valid (see memory.pyx). Control over which frames are legal is not here:
a frame that exists has passed the checks of core/frame.h.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8

from wsfast._engine.frames.memory cimport ReadBuffer
from wsfast._engine.core cimport (
    WSF_CONTROL_BIT, WSF_FRAME, WSF_OPCODE_BITS, wsf_close_code_valid, wsf_header, wsf_peek_header)

from wsfast._common import protocol_numbers
from wsfast.exceptions import InvalidText


# For Python, which has no headers to include.
FIN_BIT, RSV1_BIT, OPCODE_BITS, CONTROL_BIT = FIN, RSV1, WSF_OPCODE_BITS, WSF_CONTROL_BIT

# Enum members by opcode, so that reading frame.msg_type costs one table look-up.
cdef tuple _msg_types = tuple(
    protocol_numbers.WSMsgType(opcode) if opcode in list(protocol_numbers.WSMsgType) else None for opcode in range(16)
)


def close_code_valid(code):
    """True if a CLOSE frame, sent or received, may contain `code`, an int (RFC 6455 section 7.4)."""
    return bool(0 <= code <= 0xFFFF and wsf_close_code_valid(code))


@cython.no_gc  # refers to a ReadBuffer only, which refers to nothing
@cython.freelist(64)  # serves WSFrame too, which is of the same size
cdef class FrameFields:
    """The fields of a frame, for code that cimports them."""


@cython.final
@cython.no_gc
cdef class WSFrame(FrameFields):
    """A frame received from the server (RFC 6455 section 5.2).

    It may be kept: the frame, and every memoryview of its payload, stays valid after the callback. The object itself
    is a read-only buffer of its payload, so ``bytes(frame)`` and ``memoryview(frame)`` work.
    """

    @property
    def msg_type(self):
        """The opcode, a :class:`WSMsgType`."""
        return _msg_types[<int>(<FrameFields>self).msg_type]

    @property
    def payload_size(self):
        """Length of the payload in bytes."""
        return (<FrameFields>self).payload_size

    @property
    def tail_size(self):
        """The number of bytes that had already been received behind this frame."""
        return (<FrameFields>self).tail_size

    @property
    def fin(self):
        """True for the last (or only) frame of a message."""
        return <bint>(<FrameFields>self).fin

    @property
    def rsv1(self):
        """The first reserved bit. It can be set only if an extension was negotiated."""
        return <bint>(<FrameFields>self).rsv1

    @property
    def rsv2(self):
        """The second reserved bit."""
        return <bint>(<FrameFields>self).rsv2

    @property
    def rsv3(self):
        """The third reserved bit."""
        return <bint>(<FrameFields>self).rsv3

    @property
    def recv_time_ns(self):
        """When the frame was received, in nanoseconds of ``time.monotonic_ns()``, or None without ``timestamps``.

        The clock is read once per read, as soon as it returns: frames that arrived together have the same time.
        """
        return (<FrameFields>self).recv_time_ns or None

    @property
    def kernel_time_ns(self):
        """When the kernel received the frame's bytes, in nanoseconds of ``time.monotonic_ns()``, or None without
        ``timestamps="kernel"``.

        The kernel stamps packets by the wall clock, and tells the stamp of the last packet of a read. It is converted
        when the bytes are read, by the difference of the two clocks at that moment. ``recv_time_ns - kernel_time_ns``
        is how long the bytes waited for this program. It is None for packets that came before the kernel had begun to
        stamp, some milliseconds after the first socket of the machine asked for it.
        """
        return (<FrameFields>self).kernel_time_ns or None

    @property
    def last_in_buffer(self):
        """True if no other complete frame had been received behind this one."""
        cdef:
            const unsigned char *p = <const unsigned char *>self.payload_ptr + (<FrameFields>self).payload_size
            wsf_header header
        if (<FrameFields>self).tail_size == 0:
            return True
        if wsf_peek_header(p, (<FrameFields>self).tail_size, &header) != WSF_FRAME:
            return True
        return header.payload_len > <size_t>((<FrameFields>self).tail_size - header.header_len)

    cpdef bytes get_payload_as_bytes(self):
        """The payload, copied into a new ``bytes``."""
        return PyBytes_FromStringAndSize(self.payload_ptr, (<FrameFields>self).payload_size)

    cpdef str get_payload_as_utf8_text(self):
        """The payload, decoded into a new ``str``.

        :raises InvalidText: the payload is not UTF-8. Unless the listener catches it, the connection is closed with
            code 1007. A fragment may end inside a character: join the fragments before decoding.
        """
        try:
            return PyUnicode_DecodeUTF8(self.payload_ptr, (<FrameFields>self).payload_size, NULL)
        except UnicodeDecodeError as exc:
            raise InvalidText.from_decode_error(exc) from None

    cpdef str get_payload_as_ascii_text(self):
        """The payload, decoded into a new ``str``; the fastest way to get one.

        :raises UnicodeDecodeError: the payload is not ASCII.
        """
        return PyUnicode_DecodeASCII(self.payload_ptr, (<FrameFields>self).payload_size, NULL)

    cpdef object get_payload_as_memoryview(self):
        """A read-only view of the payload. Nothing is copied; the view may be kept."""
        return PyMemoryView_FromObject(self)

    cpdef object get_close_code(self):
        """The code of a CLOSE frame: a :class:`WSCloseCode`, an ``int`` where the enum has no name for it, and
        ``WSCloseCode.NO_INFO`` if the frame is empty.

        :raises ValueError: this is not a CLOSE frame.
        """
        _require_close(self)
        if (<FrameFields>self).payload_size < 2:
            return protocol_numbers.WSCloseCode.NO_INFO
        cdef int code = (<unsigned char>self.payload_ptr[0] << 8) | <unsigned char>self.payload_ptr[1]
        try:
            return protocol_numbers.WSCloseCode(code)
        except ValueError:
            return code

    cpdef bytes get_close_message(self):
        """The reason in a CLOSE frame as ``bytes``, or None if there is none.

        :raises ValueError: this is not a CLOSE frame.
        """
        _require_close(self)
        if (<FrameFields>self).payload_size <= 2:
            return None
        return PyBytes_FromStringAndSize(self.payload_ptr + 2, (<FrameFields>self).payload_size - 2)

    cpdef str get_close_reason(self):
        """The reason in a CLOSE frame as ``str``, or None if there is none.

        :raises ValueError: this is not a CLOSE frame.
        """
        _require_close(self)
        if (<FrameFields>self).payload_size <= 2:
            return None
        return PyUnicode_DecodeUTF8(self.payload_ptr + 2, (<FrameFields>self).payload_size - 2, NULL)

    # Nothing of it can change, so a copy is the frame itself.

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("cannot pickle a WSFrame: send bytes(frame), or the fields that you need")

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.payload_ptr, (<FrameFields>self).payload_size, True, flags)

    def __repr__(self):
        bits = "".join(f" {name}" for name in ("fin", "rsv1", "rsv2", "rsv3") if getattr(self, name))
        return f"<WSFrame {_name(self)}{bits} payload_size={self.payload_size} tail_size={self.tail_size}>"


cdef str _name(FrameFields frame):
    return _msg_types[<int>frame.msg_type].name


cdef int _require_close(WSFrame frame) except -1:
    if (<FrameFields>frame).msg_type != WSMsgType.CLOSE:
        raise ValueError(f"only a CLOSE frame has a close code and reason, this is a {_name(frame)} frame")
    return 0


cdef object view_of(ReadBuffer buffer, const char *data, Py_ssize_t size):
    cdef FrameFields frame = WSFrame.__new__(WSFrame)
    frame.buffer = buffer
    frame.payload_ptr = <char *>data
    frame.payload_size = size
    frame.fin = True
    return PyMemoryView_FromObject(frame)


cdef int opcode_of(msg_type) except -1:
    """A WSMsgType, or the int that it is, for FrameWriter._first_byte() to check."""
    cdef long opcode
    if not isinstance(msg_type, int):
        raise TypeError(f"msg_type must be a WSMsgType, not {msg_type!r}")
    try:
        opcode = msg_type
    except OverflowError:
        opcode = -1
    if opcode & ~0x0F:
        raise ValueError(f"msg_type must be a WSMsgType, not {msg_type!r}")
    return opcode

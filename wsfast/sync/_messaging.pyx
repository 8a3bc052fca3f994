"""recv(), recv_many() and send() of the blocking connection: the code that runs for every message.

The functions of the crate that matter here are reached through its table (wsfast/_rust/api.pxd).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals, PyErr_Clear
from cpython.list cimport PyList_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from wsfast._engine.core cimport WSF_BINARY, WSF_CONTROL_BIT, WSF_FIN_BIT, WSF_TEXT, wsf_message, wsf_message_limit
from wsfast._engine.frames.streams cimport TAIL_SIZE, Inflater, compression as compression_override
from wsfast._engine.frames.frame cimport WSMsgType
from wsfast._engine.messages cimport (
    AS_BYTES, AS_TEXT, AS_VIEW, BATCH_BYTES, BY_TYPE, decoding, new_info, take_reference)
from wsfast._engine.frames.violation cimport add_content
from wsfast._engine.python cimport wsf_give_flag, wsf_take_flag
from wsfast._rust.api cimport (
    WST_AGAIN, WST_INTERRUPTED, WST_MORE, WST_OK, WST_PRESENT, WST_RESUME, WST_STREAM, WST_VALIDATE, functions,
    wst_connection, wst_functions, wst_message,
)

from wsfast._common.options import count
from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ProtocolError
from wsfast._rust import _native
from wsfast.sync.compression import LockedDeflater


cdef extern from "Python.h":
    int PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    Py_ssize_t PY_SSIZE_T_MAX
    # Without an exception handler around them: setting one up for every message costs more than it seems.
    PyObject *text_or_null "PyUnicode_DecodeUTF8"(const char *data, Py_ssize_t size, const char *errors)
    PyObject *bytes_or_null "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size)
    object decode_stateful "PyUnicode_DecodeUTF8Stateful"(
        const char *data, Py_ssize_t size, const char *errors, Py_ssize_t *taken)


cdef extern from *:
    """static int wsf_error_is_set(void) { return -1; }"""
    int raise_what_is_set "wsf_error_is_set"() except -1


cdef wst_functions crate = functions(_native)[0]
cdef object HANDLE = _native.ffi.typeof("wst_connection *")

# The first byte of a frame (RFC 6455 section 5.2).
cdef enum:
    WHOLE_TEXT = WSF_FIN_BIT | WSF_TEXT
    WHOLE_BINARY = WSF_FIN_BIT | WSF_BINARY
    # Messages that the crate lends at once, behind the first one.
    ROOM = 255


# The messages that the crate has lent behind the one in _message.
cdef struct Behind:
    wst_message messages[ROOM]
    size_t count
    size_t room                     # how many there may be
    size_t size                     # and how many bytes


cdef inline int _flags(int form) noexcept:
    return WST_VALIDATE if form == AS_BYTES or form == AS_VIEW else 0


cdef inline int _ask(wst_connection *connection, double timeout, int flags, Behind *behind) noexcept nogil:
    if behind == NULL:
        return crate.recv(connection, timeout, flags)
    return crate.recv_many(
        connection, timeout, flags, behind.messages, behind.room, behind.size, &behind.count)


# tp_clear would cut _handle, which frees the connection, while _connection still points at it.
@cython.no_gc_clear
cdef class Connection:
    """The part of ClientConnection that every message meets; the rest is in connection.py."""

    cdef readonly object _handle
    cdef wst_connection *_connection
    cdef wst_message *_message
    # The WSMessageInfo of the message that was taken last, if reads are stamped.
    cdef object _last_message
    # A thread receives, and is the only one until it has copied the message.
    cdef public bint _receiving
    # WST_AGAIN if there was no memory to copy the message that was lent last: it comes next.
    cdef int _again
    # If compression was negotiated: the streams that deflate (compression.py) and inflate messages.
    cdef object _deflater
    cdef Inflater _inflater
    # The inflated part of a compressed message that the program has not got yet: None, the bytes of one frame, or a
    # bytearray of several; whether it is text, and ends the message.
    cdef object _inflated
    cdef bint _is_text
    cdef bint _is_complete
    # The rules for that message, including the part that the program has got. The crate applies those for its frames.
    cdef wsf_message _contents

    def __cinit__(self, handle, *arguments, **options):
        if not isinstance(handle, _native.ffi.CData) or _native.ffi.typeof(handle) is not HANDLE or not handle:
            raise TypeError("a connection is made by connect()")
        self._handle = handle
        self._connection = <wst_connection *><uintptr_t>int(_native.ffi.cast("uintptr_t", handle))
        self._message = crate.get_message(self._connection)

    def _compress(self, agreed, max_message, max_fragment) -> None:
        """Compression was negotiated. The limits are in bytes, inflated."""
        self._inflater = Inflater(agreed)
        self._deflater = LockedDeflater(agreed)
        wsf_message_limit(&self._contents, max_message, max_fragment)

    # ---- rare events: declared for the methods here, and written in ClientConnection

    def _stopped(self, int result, timeout):
        """The crate returned without a message. Returns if it shall go on."""
        raise NotImplementedError

    def _text_is_invalid(self, exc, bint text):
        """A message is not UTF-8. Raises."""
        raise NotImplementedError

    def _refuse(self, exc):
        """The server has broken a rule. Raises."""
        raise NotImplementedError

    def _fail(self, int code, reason, cause, fail):
        """Close, and receive nothing more."""
        raise NotImplementedError

    def _send_fragments(self, message, text, int override):
        """Send a message that is neither str nor bytes-like."""
        raise NotImplementedError

    def _is_to_send_again(self, int result):
        """A frame did not leave at once. Waits; True if it is not even queued."""
        raise NotImplementedError

    # ---- receiving

    @cython.binding(True)  # so that inspect finds the signature
    def recv(
        self, timeout: float | None = None, decode: bool | type[memoryview] | None = None
    ) -> str | bytes | memoryview:
        """Receive the next message.

        :param timeout: in seconds; 0 takes a message only if it is there already
        :param decode: True gives ``str``, False ``bytes``, ``memoryview`` a view of ``bytes``; by default that depends
            on the message
        :raises ConnectionClosed: the connection is closed
        :raises TimeoutError: `timeout` passed. Nothing is lost: the next call goes on.
        :raises ConcurrencyError: another thread is in :meth:`recv` or :meth:`recv_streaming`
        """
        cdef int form = BY_TYPE if decode is None else decoding(decode)
        self._begin("recv")
        try:
            if self._inflated is not None:
                return self._take_compressed(timeout, form, 0)
            self._wait_for_message(timeout, _flags(form), NULL)
            if self._message.compressed:
                self._inflate()
                return self._take_compressed(timeout, form, WST_RESUME)
            return self._take(form)
        finally:
            self._end_receiving()

    @cython.binding(True)
    def recv_many(
        self,
        max=None,  # Cython would make an int of it
        *,
        timeout: float | None = None,
        decode: bool | type[memoryview] | None = None,
    ) -> list[str] | list[bytes] | list[memoryview] | list[str | bytes]:
        """Receive all messages that have arrived, at least one: wait for the first as :meth:`recv` does.

        :param max: the most messages to return; None is no limit
        :param timeout: in seconds, for the first message; 0 takes messages only if they are there already
        :param decode: as for :meth:`recv`
        :returns: a list of messages in their order. It ends with the message with which they have 1 MiB.
        :raises ConnectionClosed, TimeoutError, ConcurrencyError: as :meth:`recv` does

        What the kernel received since the last read is left for the next call. A message that cannot be decoded ends
        the list before it, and the next call raises.
        """
        cdef int form = BY_TYPE if decode is None else decoding(decode)
        cdef object most = count("max", max, least=1, none="for no limit")
        self._begin("recv_many")
        try:
            return self._receive_many(PY_SSIZE_T_MAX if most is None else most, timeout, form)
        finally:
            self._end_receiving()

    # Every message comes through these: final, so that they are called directly.

    @cython.final
    cdef inline int _begin(self, name) except -1:
        if wsf_take_flag(&self._receiving):
            raise ConcurrencyError(
                f"cannot call {name} while another thread is already running recv or recv_streaming"
            )
        return 0

    @cython.final
    cdef list _receive_many(self, Py_ssize_t most, timeout, int form):
        cdef list messages = []
        cdef Py_ssize_t size = 0
        cdef Behind behind
        cdef bint has_more = True
        while has_more and PyList_GET_SIZE(messages) < most and size < BATCH_BYTES:
            behind.room = min(<Py_ssize_t>ROOM, most - PyList_GET_SIZE(messages) - 1)
            behind.size = BATCH_BYTES - size
            if self._inflated is None:
                if not messages:
                    has_more = self._wait_for_message(timeout, _flags(form), &behind) == WST_MORE
                elif not self._is_present(_flags(form), &behind, &has_more):
                    break
                if not self._message.compressed:
                    has_more &= self._take_together(messages, form, &behind, &size)
                    continue
            try:
                if not self._take_inflated(messages, timeout, form, &size):
                    break
            except (ConnectionClosed, MemoryError):
                if not messages:
                    raise
                break
        return messages

    @cython.final
    cdef bint _is_present(self, int flags, Behind *behind, bint *has_more) except -1:
        """As _wait_for_message(), without waiting. False if nothing is there, or something that the next call tells."""
        cdef int result
        cdef int again = self._again
        self._again = 0
        with nogil:
            result = crate.recv_many(
                self._connection, 0.0, flags | again | WST_PRESENT, behind.messages, behind.room, behind.size,
                &behind.count)
        has_more[0] = result == WST_MORE
        return result == WST_OK or result == WST_MORE

    @cython.final
    cdef bint _take_together(self, list messages, int form, Behind *behind, Py_ssize_t *size) except -1:
        """Copy the messages that are lent. False if one cannot be, which comes next. If that is the first of all, take
        it as recv() does."""
        cdef size_t i = 0
        cdef PyObject *message
        try:
            while True:
                if self._message.returned:
                    self._note()
                message = self._copy(form)
                if message == NULL:
                    PyErr_Clear()
                    break
                messages.append(take_reference(message) if form != AS_VIEW else self._view_of(take_reference(message)))
                size[0] += self._message.size
                if i == behind.count:
                    return True
                self._message[0] = behind.messages[i]
                i += 1
        except MemoryError:
            self._again = 0
        crate.give_again_from(self._connection, i)
        if not messages:
            self._wait_for_message(0, _flags(form), NULL)
            messages.append(self._take(form))
        return False

    @cython.final
    cdef bint _take_inflated(self, list messages, timeout, int form, Py_ssize_t *size) except -1:
        """Take the message of which a frame is lent, or of which some frames are inflated. False if that must be left
        to the next call, because this one has messages."""
        cdef int flags = 0
        if self._inflated is None:
            self._inflate()
            flags = WST_RESUME
        if messages:
            while not self._is_complete:
                if crate.recv(self._connection, 0.0, _flags(form) | self._again | WST_PRESENT):
                    return False
                self._again = 0
                self._inflate()
            if form == AS_TEXT and not self._is_text:
                return False  # it may be no text
        messages.append(None)  # now, because the message is lost if there is no memory for that later
        try:
            size[0] += len(self._inflated)
            messages[PyList_GET_SIZE(messages) - 1] = self._take_compressed(timeout, form, flags)
        except BaseException:
            messages.pop()
            raise
        return True

    @cython.final
    cdef inline void _end_receiving(self) noexcept:
        wsf_give_flag(&self._receiving)

    @cython.final
    cdef int _wait_for_message(self, timeout, int flags, Behind *behind) except? -1:
        """Afterwards `_message` is lent, until the next call; see wst_recv().

        :param behind: for the messages behind that one; NULL lends none
        :returns: WST_OK, or WST_MORE if more than these may have arrived
        """
        cdef double seconds = -1.0
        cdef int result
        cdef int again = self._again
        if timeout is not None:
            seconds = timeout
            if not seconds >= 0:  # NaN, too
                raise ValueError(f"timeout must not be negative, or None for no limit, not {timeout!r}")
        self._again = 0
        with nogil:
            result = _ask(self._connection, seconds, flags | again, behind)
        while result != WST_OK and result != WST_MORE:
            if result == WST_INTERRUPTED:
                PyErr_CheckSignals()
            else:
                self._stopped(result, timeout)
            with nogil:
                result = _ask(self._connection, -1.0, flags | WST_RESUME, behind)
        return result

    @cython.final
    cdef _take(self, int form):
        """Copy the message that is lent, into the object that the user gets."""
        cdef bint text = self._message.text
        cdef PyObject *message
        if self._message.returned:
            self._note()
        message = self._copy(form)
        if message == NULL:
            self._not_taken(text)
        return take_reference(message) if form != AS_VIEW else self._view_of(take_reference(message))

    @cython.final
    cdef inline PyObject *_copy(self, int form) noexcept:
        if form == AS_TEXT or (form == BY_TYPE and self._message.text):
            return text_or_null(self._message.data, self._message.size, NULL)
        return bytes_or_null(self._message.data, self._message.size)

    cdef int _note(self) except -1:
        """The lent bytes are stamped, and end a message. If there is no memory, they are lent again."""
        self._again = WST_AGAIN
        info = new_info(
            WSMsgType.TEXT if self._message.text else WSMsgType.BINARY, self._message.compressed, self._message.last,
            self._message.returned, self._message.received or None)
        self._again = 0
        with cython.critical_section(self):  # other threads may ask for it
            self._last_message = info
        return 0

    cdef _view_of(self, bytes message):
        try:
            return PyMemoryView_FromObject(message)
        except MemoryError:
            self._again = WST_AGAIN
            raise

    cdef int _not_taken(self, bint text) except -1:
        """Go on with the exception that is set. If there is no memory nothing is lost."""
        try:
            raise_what_is_set()
        except UnicodeDecodeError as exc:
            self._text_is_invalid(exc, text)
        except MemoryError:
            self._again = WST_AGAIN
            raise

    cdef _take_compressed(self, timeout, int form, int flags):
        """Inflate the rest of a message, each frame as it arrives.

        If the time is over before, or if there is no memory for the result, the inflated part is kept for the next
        call.
        """
        cdef object message = self._inflated
        while not self._is_complete:
            self._wait_for_message(timeout, flags, NULL)
            self._inflate()
            message = self._inflated
            flags = WST_RESUME
        if form == BY_TYPE:
            form = self._is_text
        if form == AS_TEXT:
            try:
                message = message.decode()
            except UnicodeDecodeError as exc:
                self._inflated = None
                self._text_is_invalid(exc, self._is_text)
        else:
            message = bytes(message)
            if form == AS_VIEW:
                message = PyMemoryView_FromObject(message)
        self._inflated = None
        return message

    cdef int _inflate(self) except -1:
        """Inflate the frame that is lent, with the tail behind the last one, and check that text is UTF-8."""
        cdef bint text = self._message.text
        cdef bint fin = self._message.fin
        cdef Py_ssize_t size = self._message.size
        cdef bytes data
        if fin and self._message.returned:
            self._note()
        self._again = WST_AGAIN  # until the stream has got it
        data = PyBytes_FromStringAndSize(NULL, size + TAIL_SIZE if fin else size)
        self._again = 0
        memcpy(PyBytes_AS_STRING(data), self._message.data, size)
        if fin:
            memcpy(PyBytes_AS_STRING(data) + size, b"\x00\x00\xff\xff", TAIL_SIZE)
        try:
            data = self._inflater.inflate(
                data, PyBytes_GET_SIZE(data), self._contents.decoder.max_payload, fin, self._contents.size or None)
            self._contents.opcode = WSF_TEXT if text else WSF_BINARY
            add_content(&self._contents, data, fin)
            if self._inflated is None:
                self._inflated = data
            else:
                if type(self._inflated) is bytes:
                    self._inflated = bytearray(self._inflated)
                self._inflated += data
        except ProtocolError as exc:
            self._inflated = None
            self._refuse(exc)
        except MemoryError as exc:
            # The stream cannot go back, and without this nothing that follows can be inflated.
            self._inflated = None
            self._fail(1011, "out of memory", exc, _native.lib.wst_fail_receiving)
            raise
        self._is_text = text
        self._is_complete = fin
        return 0

    @cython.final
    cdef tuple _receive_fragment(self, int flags):
        """The next frame of a message: whether it is text, its payload, whether it is the last one.

        After a MemoryError the next call gives the same frame.
        """
        if self._inflated is None:
            self._wait_for_message(None, flags | WST_STREAM, NULL)
            if not self._message.compressed:
                self._again = WST_AGAIN
                data = PyBytes_FromStringAndSize(self._message.data, self._message.size)
                answer = self._message.text, data, self._message.fin
                if self._message.fin and self._message.returned:
                    self._note()
                self._again = 0
                return answer
            self._inflate()
        # Or the beginning of the message, from a recv() that timed out.
        answer = self._is_text, bytes(self._inflated), self._is_complete
        self._inflated = None
        return answer

    @property
    def last_message(self):
        """The :class:`WSMessageInfo` of the last message that was received: its type, when it arrived,
        whether it was compressed, whether more had arrived behind it. None unless `timestamps` was given."""
        with cython.critical_section(self):
            return self._last_message

    # ---- sending

    @cython.binding(True)
    def send(self, message, *, text: bool | None = None, compress: bool | None = None) -> None:
        """Send a message, and return when the kernel has all of it.

        While the server does not read, it is read from, if no other thread does that: up to ``max_queue`` frames.

        :param message: ``str`` or bytes-like; an iterable of either is sent as a fragmented message, one frame each
        :param text: True sends text, False binary; by default that depends on the type of the message
        :param compress: True or False overrides the ``threshold`` of :class:`~wsfast.deflate.PerMessageDeflate`, if
            compression was negotiated
        :raises ConnectionClosed: the connection is closed
        :raises ConcurrencyError: another thread is sending a fragmented message
        :raises TypeError: `message` is of another type
        """
        cdef int override = 0 if compress is None else compression_override(compress)
        if isinstance(message, str):
            self._send_one((WHOLE_BINARY if text is False else WHOLE_TEXT) | override, message)
        elif isinstance(message, (bytes, bytearray, memoryview)):
            self._send_one((WHOLE_TEXT if text else WHOLE_BINARY) | override, message)
        else:
            self._send_fragments(message, text, override)

    def _send_frame(self, int head, message) -> None:
        """Send one frame, and return when the kernel has all of it.

        :param head: its first byte, and above it the override of `compress=`, see frames/streams.pxd
        """
        self._send_one(head, message)

    cdef int _send_one(self, int head, message) except -1:
        if self._deflater is None or head & WSF_CONTROL_BIT:
            return self._send_until_taken(head, message)
        if isinstance(message, str):
            message = message.encode()
        elif isinstance(message, memoryview):
            message = bytes(message)  # its length is to be in bytes
        self._deflater.send(head, message, self._send_plain)
        return 0

    def _send_plain(self, int head, message) -> None:
        """Send one frame as it is."""
        self._send_until_taken(head, message)

    cdef int _send_until_taken(self, int head, message) except -1:
        cdef int result = self._offer(head, message)
        while result and self._is_to_send_again(result):
            result = self._offer(head, message)
        return 0

    cdef int _offer(self, int head, message) except 1:
        """Give a frame to the crate, which copies nothing before it masks; see wst_send()."""
        cdef Py_buffer view
        cdef const char *data
        cdef Py_ssize_t size
        cdef int result
        if isinstance(message, str):
            if PyUnicode_IS_COMPACT_ASCII(message):
                data = <const char *>PyUnicode_DATA(message)
                size = PyUnicode_GET_LENGTH(message)
                with nogil:
                    result = crate.send(self._connection, head, data, size)
                return result
            message = message.encode()
        elif isinstance(message, memoryview) and not message.c_contiguous:
            message = bytes(message)
        if type(message) is bytes:
            data = PyBytes_AS_STRING(message)
            size = PyBytes_GET_SIZE(message)
            with nogil:
                result = crate.send(self._connection, head, data, size)
            return result
        PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                result = crate.send(self._connection, head, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return result


@cython.final
@cython.no_gc_clear  # as Connection
cdef class Cork:
    """``with ws.cork():``; may be nested, the outermost one writes.

    Compiled, so that the handler of a signal cannot raise between corking and the body, or at the end before the corked
    frames leave. Threads may share one.
    """

    cdef Connection _owner
    cdef int _entered

    def __cinit__(self, Connection owner not None):
        self._owner = owner

    @cython.critical_section
    def __enter__(self):
        with nogil:
            crate.cork(self._owner._connection, 1)
        self._entered += 1

    @cython.critical_section
    def __exit__(self, exc_type, *exc_info):
        cdef int result
        if self._entered == 0:
            raise RuntimeError("cork() was left more often than it was entered")
        self._entered -= 1
        with nogil:
            result = crate.cork(self._owner._connection, 0)
        # After an exception the caller shall not wait: the rest leaves with the next call.
        if result and exc_type is None:
            self._owner._is_to_send_again(result)


@cython.final
cdef class Fragments:
    """A message as its fragments arrive, for recv_streaming(). An iterator, not a generator: one that raised can go on.

    No Python runs between the arrival of a fragment and its being held here, nor between its being given to the program
    and the note of that. So a signal handler that raises loses no fragment, and locks no thread out. A fragment is held
    while it is logged.
    """

    cdef Connection _connection
    cdef int _decode
    cdef object _log                    # _log_fragment() of a connection that logs frames
    cdef bint _begun
    cdef bint _done
    cdef bint _running
    # A fragment that the program has not got yet, as _receive_fragment() returned it.
    cdef tuple _held
    # Of a character that is split between fragments.
    cdef bytes _beginning

    def __cinit__(self, Connection connection not None, decode):
        self._connection = connection
        self._decode = decoding(decode)
        self._log = getattr(connection, "_log_fragment", None)
        self._beginning = b""

    def __iter__(self):
        return self

    @cython.critical_section  # which ends while it waits for a fragment: then `_running` refuses other threads
    def __next__(self):
        if self._done:
            raise StopIteration
        if self._running:
            raise ConcurrencyError("cannot go on with recv_streaming while another thread is doing so")
        if not self._begun:
            self._connection._begin("recv_streaming")
        self._running = True
        try:
            return self._next()
        finally:
            self._running = False
            if self._done or not self._begun:  # all was taken, or nothing
                self._connection._end_receiving()

    cdef _next(self):
        cdef:
            Py_ssize_t taken
            bint text, fin, as_text
            bytes data
        if self._held is None:
            try:
                self._held = self._connection._receive_fragment(
                    WST_VALIDATE if self._decode == AS_BYTES or self._decode == AS_VIEW else 0)
            except ConnectionClosed:
                self._done = True
                raise
            if self._log is not None:
                self._log_held(not self._begun)
        self._begun = True
        text, data, fin = self._held
        as_text = text if self._decode == BY_TYPE else self._decode == AS_TEXT
        fragment = PyMemoryView_FromObject(data) if self._decode == AS_VIEW else data
        if as_text:
            data = self._beginning + data
            taken = PyBytes_GET_SIZE(data)
            try:
                fragment = decode_stateful(PyBytes_AS_STRING(data), taken, NULL, NULL if fin else &taken)
            except UnicodeDecodeError as exc:
                self._done = True
                self._connection._text_is_invalid(exc, text)
            self._beginning = data[taken:]
        self._held = None
        self._done = fin
        return fragment

    cdef int _log_held(self, bint first) except -1:
        text, data, fin = self._held
        self._begun = True
        self._log((WSF_FIN_BIT if fin else 0) | ((WSF_TEXT if text else WSF_BINARY) if first else 0), data)
        return 0

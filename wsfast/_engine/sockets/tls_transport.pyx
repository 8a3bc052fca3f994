"""TLS by rustls beneath a WSTransport.

The crate encrypts and decrypts, and knows no socket. The code that opens a connection does the TLS handshake with a
TLSSession. Then a TLSTransport takes the session over. It reads ciphertext into memory that all connections of a
thread share, and the crate decrypts it into the engine's read buffer. The transport encrypts the bytes that the engine
has gathered, and sends up to 128 KiB of them with one send(2). SocketTransport does the rest: the queue, its limits,
closing, and direct reads by a Poller and by poll().

Two rules make the shared memory safe. First, no Python runs while the memory is in use: from the moment it is filled
until its bytes are decrypted and handed to the engine, or sent, or copied. So no other connection can fill it
meanwhile. Second, everything left over is in the session before a callback runs: an unfinished record, plaintext that
had no room, an end or an error behind it. So a callback may read on, pause reading, close or abort.

Closing: write_eof() sends close_notify, and reading goes on until the server's close_notify. close() sends it too,
drops the bytes that arrive until then, and waits for at most ssl_shutdown_timeout. If the connection ends without the
server's close_notify, eof_received() is not called, because the received data may have been cut short.
"""

import threading

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uintptr_t

from wsfast._engine.frames.memory cimport allocate, release
from wsfast._engine.frames.reader cimport FrameReader
from wsfast._engine.sockets.socket cimport Attempt, PyContext_Enter, PyContext_Exit, SocketTransport
from wsfast._rust.api cimport (
    WST_CAUSE_CERTIFICATE, WST_EOF, WST_MORE, WST_OK, functions, wst_functions, wst_stream, wst_stream_state,
    wst_tls_config,
)

from wsfast._rust import _native
from wsfast.tls import agreed_by_rustls, certificate_refused, tls_failed


cdef wst_functions crate = functions(_native)[0]
cdef object CONFIG = _native.ffi.typeof("wst_tls_config *")


cdef enum:
    # One recv(2) takes at most so many bytes.
    INCOMING = 256 * 1024
    # Eight records are sent together. The crate wants 32 more bytes for each and 64 in all, and twice that within TLS.
    PIECE = 8 * 16 * 1024
    OVERHEAD = 1024
    OUTGOING = PIECE + 16 * 1024


cdef class CipherArea:
    def __cinit__(self):
        self.incoming = allocate(INCOMING)
        self.outgoing = allocate(OUTGOING)

    def __dealloc__(self):
        release(self.incoming)
        release(self.outgoing)


cdef object _threads = threading.local()


cdef CipherArea area_of_thread():
    try:
        return _threads.area
    except AttributeError:
        _threads.area = CipherArea()
        return _threads.area


cdef class TLSSession:
    """The TLS of one connection. It does not know the socket.

    :param config: a `wst_tls_config` of the crate
    :param name: the server's name, in ASCII
    :param port: the server's; 0 neither resumes a session nor keeps one
    :param outer: the TLS session with an https proxy. It carries this session from now on, and has no other use then.
    :raises ValueError: the crate cannot make the session
    """

    def __cinit__(self, config, bytes name not None, uint16_t port, TLSSession outer=None):
        cdef char[256] reason
        ffi = _native.ffi
        if not isinstance(config, ffi.CData) or ffi.typeof(config) is not CONFIG or not config:
            raise TypeError("config must be a wst_tls_config of the crate")
        self._stream = crate.stream_new(
            <wst_tls_config *><uintptr_t>int(ffi.cast("uintptr_t", config)), PyBytes_AS_STRING(name),
            PyBytes_GET_SIZE(name), port, reason, sizeof(reason))
        if self._stream == NULL:
            raise ValueError(f"ssl: {(<bytes>reason).decode(errors='replace')}")
        if outer is not None:
            crate.stream_nest(<wst_stream *>self._stream, <wst_stream *>outer._taken())

    def __dealloc__(self):
        if self._stream != NULL:
            crate.stream_free(<wst_stream *>self._stream)

    def __reduce__(self):
        raise TypeError("cannot pickle 'TLSSession' object")

    def __setstate__(self, state):
        raise TypeError("cannot unpickle 'TLSSession' object")

    __reduce_cython__, __setstate_cython__ = __reduce__, __setstate__

    cdef void *_used(self) except NULL:
        if self._stream == NULL:
            raise ValueError("this TLS carries that of another session")
        return self._stream

    cdef void *_taken(self) except NULL:
        cdef void *stream = self._used()
        if self._has_transport:
            raise ValueError("a transport uses this TLS session")
        self._stream = NULL
        return stream

    cdef size_t _to_send(self) noexcept:
        return crate.stream_to_send(<wst_stream *>self._stream)

    @property
    def is_handshaking(self):
        cdef wst_stream_state state
        crate.stream_describe(<wst_stream *>self._used(), &state)
        return state.handshaking

    def feed(self, bytearray received not None):
        """Process the bytes that were received during the handshake, and overwrite them."""
        cdef size_t filled
        self._step = crate.stream_read(
            <wst_stream *>self._used(), PyByteArray_AS_STRING(received), PyByteArray_GET_SIZE(received), NULL, 0,
            &filled)

    # The conversation with a proxy.

    def encrypt(self, bytes plain not None):
        """Return the ciphertext to send: pending bytes first, then `plain`."""
        cdef Py_ssize_t plain_size = PyBytes_GET_SIZE(plain)
        cdef bytearray wire = bytearray(plain_size + plain_size // 256 + 256)
        cdef int64_t size
        before = self.take()
        size = crate.stream_write(
            <wst_stream *>self._stream, PyBytes_AS_STRING(plain), plain_size, PyByteArray_AS_STRING(wire),
            PyByteArray_GET_SIZE(wire))
        if size < 0:
            raise self.failure()
        return before + bytes(wire[:size])

    def decrypt(self, bytearray received not None):
        """Return the plaintext of the received bytes, and overwrite them."""
        cdef:
            bytearray plain = bytearray(16 * 1024)
            Py_ssize_t size = PyByteArray_GET_SIZE(received)
            size_t filled
        said = b""
        self._step = WST_MORE
        while self._step == WST_MORE:
            self._step = crate.stream_read(
                <wst_stream *>self._used(), PyByteArray_AS_STRING(received), size, PyByteArray_AS_STRING(plain),
                PyByteArray_GET_SIZE(plain), &filled)
            said += plain[:filled]
            size = 0
        return said

    def put_back(self, bytes plain not None):
        """Put plaintext back that belongs to the server behind the proxy. The next read returns it."""
        if plain:
            self._step = crate.stream_put_back(
                <wst_stream *>self._used(), PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))

    @property
    def has_failed(self):
        return self._step != WST_OK and self._step != WST_MORE and self._step != WST_EOF

    @property
    def has_ended(self):
        return self._step == WST_EOF

    def take(self):
        """Return the ciphertext that is to be sent, and forget it."""
        self._used()
        cdef bytes taken = PyBytes_FromStringAndSize(NULL, self._to_send())
        crate.stream_take(<wst_stream *>self._stream, PyBytes_AS_STRING(taken), PyBytes_GET_SIZE(taken))
        return taken

    def failure(self):
        """The exception for the failure; None if a proxy ended the connection and the server did not."""
        cdef wst_stream_state state
        crate.stream_describe(<wst_stream *>self._used(), &state)
        if state.cause == 0:
            return None
        message = (<bytes>(<char *>state.message)[:state.message_size]).decode(errors="replace")
        if state.cause == WST_CAUSE_CERTIFICATE:
            return certificate_refused(state.number, message)
        return tls_failed(message)

    def describe(self):
        """The TLSInfo of the finished handshake."""
        cdef:
            wst_stream_state state
            const char *der
            int64_t size
        crate.stream_describe(<wst_stream *>self._used(), &state)
        cipher = <bytes>(<char *>state.cipher)[:state.cipher_size]
        alpn = <bytes>(<char *>state.alpn)[:state.alpn_size]
        certificates = []
        while True:
            size = crate.stream_certificate(<wst_stream *>self._stream, len(certificates), &der)
            if size < 0:
                break
            certificates.append(<bytes>der[:size])
        return agreed_by_rustls(state.version, cipher, alpn, state.resumed, certificates)


@cython.no_gc_clear  # as SocketTransport
cdef class TLSTransport(SocketTransport):
    """The ``asyncio.Transport`` of one TLS connection. It owns the socket.

    :param session: the session that did the handshake
    :param shutdown_timeout: how many seconds close() waits for the server
    """

    def __cinit__(
        self, loop, sock, FrameReader reader not None, bint kernel_stamps, TLSSession session not None,
        shutdown_timeout
    ):
        self._session = session
        self._area = area_of_thread()
        self._shutdown_timeout = shutdown_timeout
        self.tls = session.describe()
        session._has_transport = True
        self._extra["tls"] = self.tls
        self._extra["cipher"] = self.tls.cipher, self.tls.version, 128 if "AES_128" in self.tls.cipher else 256

    # ---- reading

    cdef int _start_reading(self) except -1:
        SocketTransport._start_reading(self)
        if self._finalizing_close:
            return 0
        try:
            self._send_pending()  # the last bytes of the handshake, unless the request took them along
        except BaseException:
            self._handle_error("Fatal write error on TLS transport")
        if self._session._step != WST_OK:  # the session holds data that makes no socket readable
            self._loop.call_soon(self._read_ready)
        return 0

    cdef Attempt read_now(self, object context) except Attempt.RAISED:
        """Deliver everything that is left from the last read. If nothing is left, read once from the socket first."""
        cdef:
            FrameReader reader = self._reader
            TLSSession session = self._session
            Attempt outcome = Attempt.NOTHING
            char *ptr
            Py_ssize_t room, received
            size_t filled
            bint entered = False
        if self._finalizing_close or self._read_paused or reader is None:
            return Attempt.STOPPED
        try:
            while True:
                reader._read_area(&ptr, &room)
                # No Python runs from here until the engine has the data: other connections share this memory.
                received = 0
                if session._step == WST_OK:
                    received = self._receive(self._area.incoming, min(room, INCOMING))
                    if received < 0:
                        return outcome
                if context is not None and not entered:
                    PyContext_Enter(context)
                    entered = True
                if received == 0 and session._step == WST_OK:
                    self._force_close(None)  # no eof_received(): the server may have sent more
                    return Attempt.STOPPED
                session._step = crate.stream_read(
                    <wst_stream *>session._stream, self._area.incoming, received, ptr, room, &filled)
                if filled and not self._closing:
                    outcome = Attempt.RECEIVED
                    reader._received(filled)
                if session._to_send() and not self._finalizing_close:
                    self._send_pending()
                if session._step == WST_OK:
                    return outcome
                if self._finalizing_close or self._read_paused:
                    return Attempt.STOPPED
                if session._step == WST_EOF:
                    self._peer_ended()
                    return Attempt.STOPPED
                if session._step != WST_MORE:
                    failure = session.failure()
                    if failure is not None:
                        raise failure
                    self._force_close(None)
                    return Attempt.STOPPED
        except BaseException:
            self._read_failed(None if entered else context)
            return Attempt.STOPPED
        finally:
            if entered:
                PyContext_Exit(context)

    cdef bint _holds_something(self) noexcept:
        return self._session._step != WST_OK

    cdef int _peer_ended(self) except -1:
        if not self._closing:
            self._call_eof_received()
            self.close()
        else:
            self._stop_waiting()
        return 0

    # ---- writing

    cdef int write_c(self, char *ptr, Py_ssize_t size) except -1:
        cdef:
            TLSSession session = self._session
            char *out = self._area.outgoing
            Py_ssize_t piece
            int64_t records
            bint all_sent = True
        if self._write_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._finalizing_close or self._reader is None or self._end_said:
            return 0
        try:
            while size > 0 and not (self._finalizing_close or self._end_said):
                piece = crate.stream_take(<wst_stream *>session._stream, out, OUTGOING - PIECE - OVERHEAD)
                if session._to_send():
                    all_sent &= self._send_or_queue(out, piece)
                    continue
                records = crate.stream_write(
                    <wst_stream *>session._stream, ptr, min(size, PIECE), out + piece, OUTGOING - piece)
                if records < 0:
                    if session._step != WST_OK:
                        break  # reading raises the cause, after the data before it
                    self._send_pending()  # the session's own alert or close_notify
                    raise session.failure()
                all_sent &= self._send_or_queue(out, piece + records)
                ptr += min(size, PIECE)
                size -= PIECE
            if not all_sent:
                self._maybe_pause_protocol()
        except BaseException:
            self._handle_error("Fatal write error on TLS transport")
        return 0

    cdef int _send_pending(self) except -1:
        """Send the records that TLS itself produces: the answer to a KeyUpdate, or an alert."""
        cdef Py_ssize_t size
        while self._session._to_send():
            size = crate.stream_take(<wst_stream *>self._session._stream, self._area.outgoing, OUTGOING)
            try:
                self._send_or_queue(self._area.outgoing, size)
            except OSError:
                if self._session._step in (WST_OK, WST_MORE, WST_EOF):
                    raise
                # Otherwise the record is an alert. The session's own failure is reported anyway.
        return 0

    # ---- the end

    cpdef write_eof(self):
        self._check_thread("write_eof")
        if self._closing or self._write_eof:
            return
        self._write_eof = True
        try:
            self._say_end()
        except BaseException:
            self._handle_error("Fatal write error on TLS transport")

    cdef int _say_end(self) except -1:
        if not self._end_said:
            self._end_said = True
            crate.stream_write_end(<wst_stream *>self._session._stream)
            self._send_pending()
        return 0

    cpdef close(self):
        self._check_thread("close")
        if self._closing:
            return
        try:
            self._say_end()
        except BaseException:
            self._handle_error("Fatal write error on TLS transport")
            return
        if self._closing:
            return  # a finalizer has closed or aborted meanwhile
        self._closing = True
        self._shutdown_timer = self._loop.call_later(self._shutdown_timeout, self._shutdown_timed_out)
        if self._finalizing_close:
            return  # a finalizer has aborted
        if self._session._step == WST_EOF:
            self._stop_waiting()
        elif self._read_paused:  # nothing else would read the server's close_notify
            self._read_paused = False
            self._start_reading()

    def _shutdown_timed_out(self):
        self._shutdown_timer = None
        self._force_close(TimeoutError("SSL shutdown timed out"))

    cdef int _stop_waiting(self) except -1:
        """Both sides have sent close_notify. Close once the queued bytes are sent."""
        self._pause_reading()
        if self._write_backlog_size == 0 and not self._finalizing_close:
            self._schedule_finalize_close(None)
        return 0

    cdef int _all_sent(self) except -1:
        if self._closing and self._read_paused and not self._finalizing_close:
            self._schedule_finalize_close(None)
        return 0

    cpdef _force_close(self, exc):
        if self._finalizing_close:
            return
        if self._closing:
            self._pause_reading()
        SocketTransport._force_close(self, exc)

    cpdef _finalize_close(self, exc):
        if self._shutdown_timer is not None:
            self._shutdown_timer.cancel()
            self._shutdown_timer = None
        SocketTransport._finalize_close(self, exc)

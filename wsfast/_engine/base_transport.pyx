"""The base of wsfast's transports, for TCP and TLS: pausing, the limits of the write buffer, and the end."""

import socket
import sys
import warnings
from asyncio.trsock import TransportSocket

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from wsfast._engine.python cimport PyThread_get_thread_ident


@cython.no_gc_clear  # Cython clears __dict__ to None, at which setattr() crashes without the GIL
cdef class BaseTransport:
    """The root of :class:`SocketTransport`. It owns the socket of a connection."""

    cdef int _take(self, loop, sock) except -1:
        """Own this socket from now on."""
        self._loop = loop
        self._thread_id = PyThread_get_thread_ident()
        self._set_limits(None, None)
        self._fileno_obj = self._fileno = sock.fileno()
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.proto == socket.IPPROTO_TCP:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._extra = {"socket": TransportSocket(sock), "sockname": None, "peername": None}
        for name, ask in (("sockname", sock.getsockname), ("peername", sock.getpeername)):
            try:
                self._extra[name] = ask()
            except OSError:
                pass
        self._sock = sock
        return 0

    def __del__(self):
        if self._sock is not None:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
            self._sock.close()

    def __reduce__(self):
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    def __repr__(self):
        state = "closed" if self._sock is None else "closing" if self._closing else "open"
        return f"<{type(self).__name__} fd={self._fileno} {state} write_buffer_size={self._write_backlog_size}>"

    cdef int _check_thread(self, str method) except -1:
        if PyThread_get_thread_ident() != self._thread_id:
            raise RuntimeError(f"{type(self).__name__}.{method}() called from a wrong thread")
        return 0

    cpdef set_protocol(self, protocol):
        self._check_thread("set_protocol")
        self._protocol = protocol

    def get_protocol(self):
        self._check_thread("get_protocol")
        return self._protocol

    def get_extra_info(self, name, default=None):
        self._check_thread("get_extra_info")
        return self._extra.get(name, default)

    # ---- reading

    def is_reading(self):
        self._check_thread("is_reading")
        return not self._closing and not self._read_paused

    def pause_reading(self):
        self._check_thread("pause_reading")
        if not self._closing:
            self._pause_reading()

    def resume_reading(self):
        self._check_thread("resume_reading")
        if self._closing or not self._read_paused:
            return
        self._read_paused = False
        try:
            self._start_reading()
        except BaseException:
            self._read_paused = True
            raise

    cdef int _pause_reading(self) except -1:
        if self._read_paused:
            return 0
        self._read_paused = True
        try:
            self._stop_reading()
        except BaseException:
            self._read_paused = False
            raise
        return 0

    # The loop's methods are Python: inside each of them a finalizer may pause, resume, send or close, which calls the
    # loop, too. So the last action of the loop need not be the last one asked for, and is corrected.

    cdef int _start_reading(self) except -1:
        self._loop.add_reader(self._fileno_obj, (<object>self)._read_ready)
        if self._read_paused:
            self._stop_reading()
        return 0

    cdef int _stop_reading(self) except -1:
        self._loop.remove_reader(self._fileno_obj)
        if not self._read_paused:
            self._start_reading()
        return 0

    # ---- writing

    def write(self, data):
        cdef Py_buffer view
        self._check_thread("write")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.write_c(<char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def writelines(self, list_of_data):
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self):
        return True

    cpdef write_eof(self):
        raise NotImplementedError("write_eof()")

    cdef int write_c(self, char *ptr, Py_ssize_t size) except -1:
        """Send, or copy and queue, these bytes."""

    cdef Py_ssize_t _gathered(self) noexcept:
        """Bytes that the protocol still holds, and that count as unsent."""
        return 0

    cdef int _forget_queue(self) except -1:
        """Drop the queued bytes."""

    cdef int _start_backlog_writing(self) except -1:
        if not (self._finalizing_close or self._write_ready_registered):
            self._write_ready_registered = True
            self._loop.add_writer(self._fileno_obj, (<object>self)._write_ready)
        return 0

    cdef int _stop_backlog_writing(self) except -1:
        if self._write_ready_registered:
            self._write_ready_registered = False
            self._loop.remove_writer(self._fileno_obj)
        return 0

    # ---- the limits of the write buffer

    cdef Py_ssize_t _unsent_size(self) noexcept:
        return self._write_backlog_size + self._gathered()

    def get_write_buffer_size(self):
        self._check_thread("get_write_buffer_size")
        return self._unsent_size()

    def get_write_buffer_limits(self):
        self._check_thread("get_write_buffer_limits")
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high=None, low=None):
        self._check_thread("set_write_buffer_limits")
        self._set_limits(high, low)
        self._maybe_pause_protocol()
        self._maybe_resume_protocol()

    cdef int _set_limits(self, high, low) except -1:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low
        return 0

    cdef int _maybe_pause_protocol(self) except -1:
        if not self._writing_paused and self._unsent_size() > self._high_water:
            self._writing_paused = True
            self._call_protocol("pause_writing")
        return 0

    cdef int _maybe_resume_protocol(self) except -1:
        if self._writing_paused and self._unsent_size() <= self._low_water:
            self._writing_paused = False
            self._call_protocol("resume_writing")
        return 0

    cdef int _call_protocol(self, str method) except -1:
        try:
            getattr(self._protocol, method)()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as exc:
            self._report(f"protocol.{method}() failed", exc)
        return 0

    cdef int _report(self, str message, exc) except -1:
        self._loop.call_exception_handler(
            {"message": message, "exception": exc, "transport": self, "protocol": self._protocol})
        return 0

    # ---- the beginning and the end

    cdef int _call_connection_made(self) except -1:
        if not (self._connected or self._finalizing_close):
            self._connected = True
            self._protocol.connection_made(self)
        return 0

    cdef int _call_eof_received(self) except -1:
        if self._connected and not self._eof_reported:
            self._eof_reported = True
            self._protocol.eof_received()
        return 0

    def is_closing(self):
        self._check_thread("is_closing")
        return self._closing

    cpdef close(self):
        self._check_thread("close")
        if self._closing:
            return
        self._closing = True
        self._pause_reading()
        if self._write_backlog_size == 0:
            self._schedule_finalize_close(None)

    def abort(self):
        self._check_thread("abort")
        self._force_close(None)

    cdef int _handle_error(self, str message) except -1:
        """End the connection because of the exception being handled. The socket's own errors are not reported."""
        exc = sys.exc_info()[1]
        if isinstance(exc, (KeyboardInterrupt, SystemExit)):
            raise
        if not isinstance(exc, OSError):
            self._report(message, exc)
        self._force_close(exc)
        return 0

    cpdef _force_close(self, exc):
        if self._finalizing_close:
            return
        if not self._closing:
            self._closing = True
            self._pause_reading()
        self._stop_backlog_writing()
        self._forget_queue()
        self._schedule_finalize_close(exc)

    cdef int _schedule_finalize_close(self, exc) except -1:
        self._finalizing_close = True
        self._loop.call_soon((<object>self)._finalize_close, exc)
        return 0

    cpdef _finalize_close(self, exc):
        if self._sock is None:
            return  # scheduled twice: a callback aborted while close() or abort() was under way
        try:
            if self._connected:
                self._connected = False
                self._protocol.connection_lost(exc)
        finally:
            if self._sock is not None:
                self._sock.close()
            self._sock = self._protocol = None

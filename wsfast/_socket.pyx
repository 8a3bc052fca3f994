"""Plain TCP beneath a WSTransport.

aiofastnet's socket transport would do, but each keeps 4 KiB for writing many buffers at once, more than all the rest of
an idle connection together. This one writes from one buffer, which exists while there is something to write, and reads
once whenever the loop says that it can. Everything else is aiofastnet's: the limits of the write buffer, closing and
errors.
"""

import socket

from aiofastnet.transport cimport WritableTransport
from aiofastnet.utils cimport NoResult, aiofn_read, aiofn_write
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE

from wsfast._reader cimport FrameReader


cdef class SocketTransport(WritableTransport):
    """The ``asyncio.Transport`` of one connected socket, which it owns."""

    def __init__(self, loop, sock, FrameReader reader not None):
        WritableTransport.__init__(self, loop, sock)
        self._write_backlog = None  # the base class's queue of buffers is not used
        self._reader = reader
        self.set_protocol(reader)
        self._call_protocol_connection_made()
        self._start_reading()

    def __repr__(self):
        state = "closed" if self._file is None else "closing" if self._closing else "open"
        return f"<SocketTransport fd={self._fileno} {state} write_buffer_size={self._write_backlog_size}>"

    # ---- reading

    def _read_ready(self):
        cdef:
            FrameReader reader = self._reader
            char *ptr
            Py_ssize_t size, received
        if self._finalizing_close or self._read_paused:
            return
        try:
            reader.get_buffer_c(-1, &ptr, &size)
            received = aiofn_read(self._fileno, ptr, size, True)
            if received > 0:
                reader.buffer_updated(received)
            elif received == 0:
                self._call_protocol_eof_received()
                self.close()
        except BaseException:
            self._handle_error("Fatal read error on socket transport")

    # ---- writing

    cdef NoResult write_c(self, char *ptr, Py_ssize_t size) except NoResult.EXC:
        cdef Py_ssize_t sent
        if self._write_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._finalizing_close or size <= 0:
            return NoResult.OK
        try:
            if self._write_backlog_size == 0:
                sent = aiofn_write(self._fileno, ptr, size, True)
                if sent == size:
                    return NoResult.OK
                if sent > 0:
                    ptr += sent
                    size -= sent
            if self._unsent is None:
                self._unsent = bytearray()
            self._unsent += <bytes>ptr[:size]
            self._write_backlog_size += size
            self._start_backlog_writing()
            self._maybe_pause_protocol()
        except BaseException:
            self._handle_error("Fatal write error on socket transport")
        return NoResult.OK

    cpdef write_nocheck(self, data):
        cdef const unsigned char[::1] view = data
        if len(view):
            self.write_c(<char *>&view[0], len(view))

    cpdef writelines_nocheck(self, list_of_data):
        for data in list_of_data:
            self.write_nocheck(data)

    def _write_ready(self):
        cdef Py_ssize_t sent
        if self._finalizing_close:
            return
        try:
            sent = aiofn_write(
                self._fileno, PyByteArray_AS_STRING(self._unsent), PyByteArray_GET_SIZE(self._unsent), True)
            if sent > 0:
                del self._unsent[:sent]
                self._write_backlog_size -= sent
            self._maybe_resume_protocol()
            if self._write_backlog_size == 0:
                self._unsent = None
                self._stop_backlog_writing()
                if self._closing and not self._finalizing_close:
                    self._schedule_finalize_close(None)
                elif self._write_eof:
                    self._file.shutdown(socket.SHUT_WR)
        except BaseException:
            self._handle_error("Fatal write error on socket transport")

    cpdef can_write_eof(self):
        return True

    cpdef write_eof(self):
        self._check_thread("write_eof")
        if self._closing or self._write_eof:
            return
        self._write_eof = True
        if self._write_backlog_size == 0:
            self._file.shutdown(socket.SHUT_WR)

    cdef NoResult _clear_write_backlog(self, object exc) except NoResult.EXC:
        self._unsent = None
        self._write_backlog_size = 0
        return NoResult.OK

    cpdef _finalize_close(self, exc):
        try:
            WritableTransport._finalize_close(self, exc)
        finally:
            self._reader = None

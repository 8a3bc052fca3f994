"""Plain TCP beneath a WSTransport.

It writes from one buffer, which exists while bytes wait to be written. It reads once whenever the loop reports that the
socket is readable, and whenever polling.pyx asks for it. Limits, closing and errors are those of base_transport.pyx.
"""

import errno
import socket

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memmove

from wsfast._engine.frames.reader cimport FrameReader
from wsfast._engine.base_transport cimport BaseTransport


cdef extern from *:
    """
    #include <errno.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/uio.h>
    #include <time.h>

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    /* recv(2) and send(2) that never wait, whatever the descriptor is for. */
    static Py_ssize_t wsf_receive(int fd, char *buffer, Py_ssize_t size)
    {
        ssize_t received;
        do
            received = recv(fd, buffer, (size_t)size, MSG_DONTWAIT);
        while (received < 0 && errno == EINTR);
        return received;
    }

    static Py_ssize_t wsf_send(int fd, const char *data, Py_ssize_t size)
    {
        ssize_t sent;
        do
            sent = send(fd, data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        return sent;
    }

    #ifdef SO_TIMESTAMPNS
    static int wsf_stamp_receipts(int fd)
    {
        int on = 1;
        return setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    }

    /* recv(2), and when the kernel received the last packet of these bytes: nanoseconds of the wall clock, or 0. */
    static Py_ssize_t wsf_receive_stamped(int fd, char *buffer, Py_ssize_t size, int64_t *stamp)
    {
        union {
            char bytes[CMSG_SPACE(sizeof(struct timespec))];
            struct cmsghdr aligned;
        } control;
        struct iovec into = {buffer, (size_t)size};
        struct msghdr message = {
            .msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        struct cmsghdr *part;
        ssize_t received;
        do
            received = recvmsg(fd, &message, MSG_DONTWAIT);
        while (received < 0 && errno == EINTR);
        *stamp = 0;
        if (received > 0) {
            for (part = CMSG_FIRSTHDR(&message); part != NULL; part = CMSG_NXTHDR(&message, part)) {
                if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPNS) {
                    struct timespec at;
                    memcpy(&at, CMSG_DATA(part), sizeof at);
                    *stamp = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
                }
            }
        }
        return received;
    }
    #else
    #define wsf_stamp_receipts(fd) (errno = ENOTSUP, -1)
    #define wsf_receive_stamped(fd, buffer, size, stamp) (errno = ENOTSUP, (Py_ssize_t)-1)
    #endif

    /* A failure has no consequence: the kernel acknowledges later. */
    static void wsf_acknowledge_at_once(int fd)
    {
    #ifdef TCP_QUICKACK
        int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    #endif
    }

    #define wsf_would_block() (errno == EAGAIN || errno == EWOULDBLOCK)
    """
    Py_ssize_t wsf_receive(int fd, char *buffer, Py_ssize_t size)
    Py_ssize_t wsf_send(int fd, const char *data, Py_ssize_t size)
    int wsf_stamp_receipts(int fd)
    Py_ssize_t wsf_receive_stamped(int fd, char *buffer, Py_ssize_t size, int64_t *stamp)
    void wsf_acknowledge_at_once(int fd)
    bint wsf_would_block()


cdef inline Py_ssize_t send_now(int fd, const char *ptr, Py_ssize_t size) except -2:
    """send(2): how much the kernel took, -1 if it has no room."""
    cdef Py_ssize_t sent = wsf_send(fd, ptr, size)
    if sent < 0 and not wsf_would_block():
        PyErr_SetFromErrno(OSError)
    return sent


cdef void acknowledge_at_once(int fd) noexcept:
    """Ask the kernel to acknowledge the read bytes now, not with the next packet to send (tcp(7), TCP_QUICKACK)."""
    wsf_acknowledge_at_once(fd)


def stamp_receipts(sock):
    """Ask the kernel to report when it received the bytes that are read from this socket. It begins some packets later.

    :raises OSError: the kernel refuses
    """
    if wsf_stamp_receipts(sock.fileno()) != 0:
        PyErr_SetFromErrno(OSError)


@cython.no_gc_clear  # callbacks of the loop look at what the collector would have cleared
cdef class SocketTransport(BaseTransport):
    """The ``asyncio.Transport`` of one connected socket, which it owns.

    With `kernel_stamps` the kernel reports when it received the bytes, for :attr:`WSFrame.kernel_time_ns`.
    """

    # Not in __init__(), so that no half-made transport exists: it would read whatever has descriptor 0. The last two
    # arguments are TLSTransport's.
    def __cinit__(
        self, loop, sock, FrameReader reader not None, bint kernel_stamps=False, session=None, shutdown_timeout=None,
    ):
        if kernel_stamps:
            stamp_receipts(sock)
        self._take(loop, sock)
        self._kernel_stamps = kernel_stamps
        self._reader = reader
        self.set_protocol(reader)

    def __init__(self, *args, **kwargs):
        # Not before: a write of connection_made() must find the methods of the derived class.
        if not self._begun:
            self._begun = True
            self._call_connection_made()
            if not self._closing:
                self._start_reading()

    # ---- reading

    def _read_ready(self):
        if self.read_now(None) == Attempt.NOTHING:
            self._reader._woken_for_nothing()  # these bytes have been read without waiting for the loop

    cdef Attempt read_now(self, object context) except Attempt.RAISED:
        """Read once what there is. What calls back, now or when the connection is gone, runs in `context`, unless that
        is None."""
        cdef:
            FrameReader reader = self._reader
            char *ptr
            Py_ssize_t size, received
            bint entered = False
        if self._finalizing_close or self._read_paused or reader is None:
            return Attempt.STOPPED
        try:
            reader._read_area(&ptr, &size)
            received = self._receive(ptr, size)
            if received < 0:
                return Attempt.NOTHING
            if context is not None:
                PyContext_Enter(context)
                entered = True
            if received == 0:
                self._call_eof_received()
                self.close()
                return Attempt.STOPPED
            reader._received(received)
            return Attempt.RECEIVED
        except BaseException:
            self._read_failed(None if entered else context)
            return Attempt.STOPPED
        finally:
            if entered:
                PyContext_Exit(context)

    cdef int _read_failed(self, object context) except -1:
        """End the connection because of the exception being handled."""
        if context is not None:
            PyContext_Enter(context)
        try:
            self._handle_error(f"Fatal read error on {type(self).__name__}")
        finally:
            if context is not None:
                PyContext_Exit(context)
        return 0

    cdef Py_ssize_t _receive(self, char *ptr, Py_ssize_t size) except -2:
        """recv(2): how much there was, -1 if there is nothing yet, 0 at the end."""
        cdef Py_ssize_t received
        if self._kernel_stamps:
            received = wsf_receive_stamped(self._fileno, ptr, size, &self._reader._kernel_stamp)
        else:
            received = wsf_receive(self._fileno, ptr, size)
        if received < 0 and not wsf_would_block():
            PyErr_SetFromErrno(OSError)
        return received

    cdef bint _holds_something(self) noexcept:
        """True if received bytes are not delivered yet, and the kernel no longer has them."""
        return False

    # ---- writing

    cdef int write_c(self, char *ptr, Py_ssize_t size) except -1:
        if self._write_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._finalizing_close or self._reader is None or size <= 0:
            return 0
        try:
            if not self._send_or_queue(ptr, size):
                self._maybe_pause_protocol()
        except BaseException:
            self._handle_error("Fatal write error on socket transport")
        return 0

    cdef bint _send_or_queue(self, char *ptr, Py_ssize_t size) except -1:
        """send(2), and queue what the kernel does not take; true if it takes all.

        No Python runs before the bytes are sent or copied.
        """
        cdef Py_ssize_t sent
        while self._write_backlog_size == 0:
            sent = send_now(self._fileno, ptr, size)
            if sent == size:
                return True
            if sent <= 0:
                break
            # The peer may have made room meanwhile. To ask costs less than to copy, and to wait for the loop.
            ptr += sent
            size -= sent
        self._queue(ptr, size)
        self._reader._note_backlog(self._write_backlog_size)
        self._start_backlog_writing()
        if not self._write_ready_registered:  # as with reading: closed, or sent by a poll()
            self._loop.remove_writer(self._fileno_obj)
        return False

    cdef int _queue(self, const char *ptr, Py_ssize_t size) except -1:
        """Copy what the kernel did not take."""
        cdef Py_ssize_t queued
        if self._unsent is None:
            self._unsent = bytearray()
            self._taken = 0
        queued = PyByteArray_GET_SIZE(self._unsent)
        PyByteArray_Resize(self._unsent, queued + size)
        memcpy(PyByteArray_AS_STRING(self._unsent) + queued, ptr, size)
        self._write_backlog_size += size
        return 0

    cdef Py_ssize_t _gathered(self) noexcept:
        return 0 if self._reader is None else self._reader._gathered_size

    def _write_ready(self):
        cdef:
            char *queue
            Py_ssize_t sent
        if self._finalizing_close or self._unsent is None:
            return
        try:
            # No Python runs before the bytes are known to be sent: a poll() in it would send them again.
            queue = PyByteArray_AS_STRING(self._unsent)
            sent = send_now(self._fileno, queue + self._taken, self._write_backlog_size)
            if sent > 0:
                self._taken += sent
                self._write_backlog_size -= sent
                if self._taken >= self._write_backlog_size:
                    memmove(queue, queue + self._taken, self._write_backlog_size)
                    PyByteArray_Resize(self._unsent, self._write_backlog_size)
                    self._taken = 0
            self._maybe_resume_protocol()
            if self._write_backlog_size == 0:
                self._unsent = None
                self._stop_backlog_writing()
                if self._write_ready_registered:  # as with reading: sent
                    self._loop.add_writer(self._fileno_obj, self._write_ready)
                if self._write_backlog_size == 0:
                    self._all_sent()
        except BaseException:
            self._handle_error("Fatal write error on socket transport")

    cdef int _all_sent(self) except -1:
        """The queue is empty again."""
        if self._closing and not self._finalizing_close:
            self._schedule_finalize_close(None)
        elif self._write_eof:
            self._end_writing()
        return 0

    cpdef write_eof(self):
        self._check_thread("write_eof")
        if self._closing or self._write_eof:
            return
        self._write_eof = True
        if self._write_backlog_size == 0:
            self._end_writing()

    cdef int _end_writing(self) except -1:
        if not self._eof_sent:
            self._eof_sent = True
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError as exc:
                if exc.errno != errno.ENOTCONN:  # the peer has reset the connection, which reading tells
                    raise
        return 0

    cdef int _forget_queue(self) except -1:
        self._unsent = None
        self._write_backlog_size = 0
        return 0

    cpdef _finalize_close(self, exc):
        try:
            BaseTransport._finalize_close(self, exc)
        finally:
            self._reader = None

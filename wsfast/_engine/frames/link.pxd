cimport cython

from wsfast._engine.frames.memory cimport Scratch
from wsfast._engine.python cimport PyThread_get_thread_ident
from wsfast._engine.base_transport cimport BaseTransport


# The life of a connection. It only goes down this list.
cdef enum State:
    CONNECTING                      # the opening handshake; no listener yet
    OPEN                            # frames flow both ways
    CLOSING                         # CLOSE was sent; frames are still delivered until the server's CLOSE
    # Nothing is delivered any more. Bytes are read only to find the server's CLOSE and the end of the stream, because
    # closing a socket that holds unread bytes resets it, and may destroy the bytes that were sent last.
    DRAINING
    FAILED                          # like DRAINING, after a violation of the protocol: received bytes have no meaning
    CLOSED                          # the connection is gone


cdef class Link:
    cdef:
        # Set by WSTransport, which alone decides how a connection lives and ends. Read by all.
        int state
        object loop
        readonly object underlying_transport
        BaseTransport _fast         # underlying_transport if it is wsfast's own, else None
        object _aiofastnet          # underlying_transport if it is aiofastnet's, else None
        object _is_aiofastnet_closing  # its method, looked up once
        unsigned long thread_id    # the loop's: no other thread may call, or read
        Scratch _scratch            # of that thread; never None before the collector clears it

        # Set by the Poller, which wants to know when something is sent or received. Tested by FrameWriter and
        # FrameReader, for each write and each read.
        bint _notifies_poller

    @cython.final
    @cython.nonecheck(False)
    cdef inline bint is_open(self) noexcept:
        """Frames can be sent. False in state OPEN: the transport beneath has failed, and will say so in a moment."""
        return self.state == State.OPEN and self._is_carried()
    @cython.final
    @cython.nonecheck(False)
    cdef inline bint _is_carried(self) noexcept:
        if self._fast is None:
            return self._aiofastnet is None or self._is_aiofastnet_open()
        return not (self._fast._closing or self._fast._finalizing_close)
    @cython.final
    @cython.nonecheck(False)
    cdef inline int check_thread(self, str method) except -1:
        if PyThread_get_thread_ident() != self.thread_id:
            self._wrong_thread(method)
        return 0
    @cython.final
    @cython.nonecheck(False)
    cdef inline int _check_loop_thread(self) except -1:
        """The check of every read: the loop, which reads, must not have moved."""
        if PyThread_get_thread_ident() != self.thread_id:
            self._loop_moved()
        return 0
    @cython.final
    cdef bint _is_aiofastnet_open(self) noexcept
    @cython.final
    cdef int _wrong_thread(self, str method) except -1

    # Overridden by PollingReader.
    cdef int _event(self) except -1
    # Overridden by WSTransport.
    cdef int _raise_closed(self) except -1
    cdef int _loop_moved(self) except -1

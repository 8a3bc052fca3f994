"""The fields that all parts of a connection share: its state, its loop, its thread, and the transport beneath."""

from wsfast._engine.frames.memory cimport scratch_of_thread

from asyncio import _get_running_loop

from wsfast.tls import tls_of


MOVED = "the event loop has moved to another thread: a connection stays in the thread that opened it"


cdef class Link:
    """The root of :class:`WSTransport`."""

    def __cinit__(self):
        self._scratch = scratch_of_thread()  # never None, whatever is called on an object that was not initialised

    @property
    def tls(self):
        """The TLS of the connection: a :class:`~wsfast.tls.TLSInfo`, or None."""
        return tls_of(self.underlying_transport)

    def __reduce__(self):
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    cdef bint _is_aiofastnet_open(self) noexcept:
        return not self._is_aiofastnet_closing()

    cdef int _wrong_thread(self, str method) except -1:
        if _get_running_loop() is self.loop:
            raise RuntimeError(MOVED)
        instead = {"send": "send_threadsafe()", "recv": "asyncio.run_coroutine_threadsafe()"}
        instead = instead.get(method, "loop.call_soon_threadsafe()")
        raise RuntimeError(f"WSTransport.{method}() called from a wrong thread: use {instead}")

    cdef int _event(self) except -1:
        """PollingReader notifies the poller that bytes were sent or received."""

    cdef int _raise_closed(self) except -1:
        """WSTransport knows how it was closed."""

    cdef int _loop_moved(self) except -1:
        """WSTransport ends the connection: its memory belongs to the thread that opened it."""

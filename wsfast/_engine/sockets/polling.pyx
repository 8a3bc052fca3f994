"""Reading without sleeping: it costs processor time, and saves the microseconds that waking a process takes.

An event loop does not sleep while a callback is due. So each loop has one Poller, which schedules itself again as long
as one of its connections sent or received something within its busy_poll. The loop goes on iterating: it asks the
kernel about all of its descriptors with a time-out of zero, and runs timers and other tasks as ever.

An iteration takes a microsecond or two, though, and a reply that arrives meanwhile waits. So in each poll round the
poller also reads the sockets of the few connections that had the latest events, several times over. Most replies arrive
there, and need neither epoll_wait(2) nor the loop. The other connections cost nothing: the loop finds their replies.

poll() does the same without a loop, for one connection; or it waits in the kernel, which costs less where the processor
is needed for something else: for the server, say.
"""

import contextvars
import weakref

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t

from wsfast._engine.core cimport wsf_monotonic_ns
from wsfast._engine.frames.reader cimport FrameReader
from wsfast._engine.sockets.socket cimport Attempt, SocketTransport


cdef extern from *:
    """
    #include <math.h>
    #include <poll.h>
    #include <time.h>

    /* For so many seconds the kernel waits at most: a signal that comes just before does not wake it. */
    #define PULSE 0.25

    /* Sleeps until the socket is ready, a signal has come, or the time is up. Returns what poll(2) says of it, 0 if
     * nothing. A long sleep ends early. */
    static short wsf_sleep(int fd, int for_room, double seconds)
    {
        struct pollfd one = {.fd = fd, .events = POLLIN | (for_room ? POLLOUT : 0)};
        seconds = fmin(seconds, PULSE);
    #ifdef __linux__
        struct timespec left = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
        return ppoll(&one, 1, &left, NULL) > 0 ? one.revents : 0;
    #else
        return poll(&one, 1, (int)ceil(1000 * seconds)) > 0 ? one.revents : 0;
    #endif
    }
    """
    enum:
        POLLOUT
    short wsf_sleep(int fd, bint for_room, double seconds) noexcept nogil


cdef enum:
    # After so many vain attempts of a poll round, for all connections together, the poller returns to the loop. Other
    # tasks wait so long: some 3 microseconds. An iteration of uvloop takes one, and one of asyncio two.
    ATTEMPTS = 16
    # Connections that are read directly. More of them would make each other wait longer than the loop does.
    DIRECT = 4
    # After so many attempts poll() lets signal handlers and other threads run: every 60 microseconds or so.
    ATTEMPTS_BEFORE_OTHERS = 256

# Only the interpreter's own loop runs signal handlers, and gives the GIL to the thread that has asked for it. Releasing
# the GIL for an instant is no use: the threads that it wakes come too late, and have not waited long enough to ask.
cdef object _let_others_run = eval("lambda: None")


cdef object _pollers = weakref.WeakValueDictionary()  # by id of the loop, which its poller keeps alive


cdef Poller _poller_of(loop):
    poller = _pollers.get(id(loop))
    if poller is None:
        poller = _pollers[id(loop)] = Poller(loop)
    return poller


cdef inline double _now() noexcept:
    return <double>wsf_monotonic_ns() * 1e-9


cdef class Poller:
    """Keeps one event loop awake, and reads sockets meanwhile."""

    def __init__(self, loop):
        self._loop = loop
        self._context = contextvars.Context()
        self._members = set()
        self._direct = []

    cdef int add(self, PollingReader member) except -1:
        self._members.add(member)
        return self.event(member)

    cdef int remove(self, PollingReader member) except -1:
        cdef PollingReader other
        self._members.discard(member)
        if member in self._direct:
            self._direct.remove(member)
        self._until = 0
        for other in self._members:
            self._until = max(self._until, other._polled_from + other._busy_poll)
        return 0

    cdef int event(self, PollingReader member) except -1:
        """`member` sent or received something."""
        if member._fast is not None:
            # The next poll round notes the time: reading the clock once is enough for all events before it.
            member._notifies_poller = False
            if member not in self._direct:
                self._make_room()
                self._direct.append(member)
        else:
            self._renew(member, _now())
        if self._next_round is None:
            self._next_round = self._poll_round
            self._loop.call_soon(self._next_round, context=self._context)
        return 0

    cdef int _renew(self, PollingReader member, double now) except -1:
        member._notifies_poller = True
        member._polled_from = now
        self._until = max(self._until, now + member._busy_poll)
        return 0

    cdef int _make_room(self) except -1:
        """Leave that connection to the loop which has had no event for longest."""
        cdef PollingReader member, oldest = None
        if len(self._direct) < DIRECT:
            return 0
        for member in self._direct:
            if not member._notifies_poller:
                self._renew(member, _now())
            if oldest is None or member._polled_from < oldest._polled_from:
                oldest = member
        self._direct.remove(oldest)
        return 0

    def _poll_round(self):
        cdef:
            double now = _now()
            PollingReader member
            Py_ssize_t place = 0
        while place < len(self._direct):
            member = <PollingReader>self._direct[place]
            if not member._notifies_poller:
                self._renew(member, now)
            if now - member._polled_from > member._busy_poll:
                del self._direct[place]
            else:
                place += 1
        if not self._members or now > self._until:
            self._next_round = None
            return
        self._loop.call_soon(self._next_round, context=self._context)
        if self._direct:
            self._poll_direct()

    cdef int _poll_direct(self) except -1:
        """Read the direct members one after another, until one has received something."""
        cdef:
            PollingReader member
            Attempt outcome = Attempt.NOTHING
            int attempt
        for attempt in range(ATTEMPTS):
            member = <PollingReader>self._direct[attempt % <int>len(self._direct)]
            outcome = (<SocketTransport>member._fast).read_now(member._context)
            if outcome != Attempt.NOTHING:
                break  # callbacks ran, and may have changed everything here
            member._poll_misses += 1
        if outcome == Attempt.RECEIVED:
            member._poll_hits += 1
        elif outcome == Attempt.STOPPED and member in self._direct:
            self._direct.remove(member)  # until its next event
            member._notifies_poller = True
        return 0


cdef class PollingReader(FrameReader):
    """The half of :class:`WSTransport` that receives without sleeping."""

    cdef int _start_polling(self) except -1:
        """The connection is open."""
        if self._busy_poll > 0:
            self._context = contextvars.copy_context()
            self._poller = _poller_of(self.loop)
            self._poller.add(self)
        return 0

    cdef int _stop_polling(self) except -1:
        """The connection is gone."""
        if self._poller is not None:
            self._poller.remove(self)
            self._poller = None
            self._notifies_poller = False
        return 0

    cdef int _event(self) except -1:
        return self._poller.event(self)

    cpdef bint poll(self, double timeout, bint sleep=False) except -1:
        """Receive without the event loop: read and deliver frames until one was delivered or the time is up.

        It blocks the event loop: no other task, timer or connection goes on meanwhile. ``send()`` and then ``poll()``
        in one callback is a round trip of two system calls, if the reply is there when it tries.

        It first delivers the frames that were read before, and writes those that are being gathered or corked. Inside
        ``on_ws_frame`` it delivers to ``on_ws_frame`` again. A fragment counts as a frame, also for ``on_ws_message``.

        :param timeout: seconds; 0 tries once, ``math.inf`` waits until a frame arrives
        :param sleep: wait in the kernel (poll(2)): the processor is free meanwhile, and other threads run. By default
            it tries again and again, which is faster if there is a processor to spare.
        :returns: True if a frame was delivered
        :raises ConnectionClosed: the connection is closed, or is being closed and delivers no more
        :raises RuntimeError: reading is paused, or this is a wrong thread, or a finalizer that runs amid a message
        :raises NotImplementedError: the connection uses a transport of the event loop's own (``use_aiofastnet=False``)
        """
        cdef:
            uint64_t delivered = self._frames_received - self._frames_kept
            double deadline
            unsigned int attempts = 0
        self.check_thread("poll")
        if not timeout >= 0:
            raise ValueError(f"timeout must not be negative, not {timeout!r}")
        if self._takes_message:
            raise RuntimeError("poll() while a message is being taken out of its frame")
        if self._busy_beneath or (self._writing and self._fast is None):
            raise RuntimeError("poll() while the transport beneath is reading or writing")
        self._require_receiving()
        self.flush()
        if self._reading != NULL:
            self._deliver_rest()
            if self._notifies_read_done:
                self._read_done()
        if self.deferred:
            self.deliver_held()
        deadline = _now() + timeout
        while self._frames_received - self._frames_kept == delivered:
            if attempts:
                timeout = deadline - _now()
                if timeout <= 0:
                    return False
            # TLS may hold records that it received before, which the kernel does not know of: try TLS first.
            if sleep and (attempts or not self._holds_something()):
                PyErr_CheckSignals()
                self._require_receiving()
                self._sleep(timeout)
            else:
                self._require_receiving()
            self._attempt()
            if attempts == 0 and self._aiofastnet is not None:
                # This attempt read the socket. TLS may still hold records, because reading was paused before.
                self._run_beneath(self._aiofastnet._retry_ssl_read)
            attempts += 1
            if attempts % ATTEMPTS_BEFORE_OTHERS == 0:
                _let_others_run()
        return True

    def _run_beneath(self, callback, *args):
        """Run a callback of the transport beneath. Amid one, aiofastnet's TLS must not be entered again, to read or to
        write: it may be in a log handler of the program. Its frames leave when the callback has returned."""
        cdef bint busy = self._busy_beneath, writing = self._writing
        self._busy_beneath = True
        self._writing = writing or self._fast is None
        try:
            callback(*args)
        finally:
            self._busy_beneath = busy
            self._writing = writing
            if self._owed and not writing:
                self._settle()

    cdef bint _holds_something(self) except -1:
        """True if TLS may hold bytes that were received before, and that the kernel no longer has."""
        return self._fast is None or (<SocketTransport>self._fast)._holds_something()

    cdef int _attempt(self) except -1:
        """Read once, by whatever reads this connection."""
        cdef uint64_t reads = self._reads
        self._require_reading()
        if self._fast is not None:
            (<SocketTransport>self._fast).read_now(None)
        else:
            self._run_beneath(self._aiofastnet._read_ready)
        if self._reads != reads:
            self._poll_hits += 1
        else:
            self._poll_misses += 1
        return 0

    cdef int _require_reading(self) except -1:
        if self._fast is not None:
            if self._fast._closing or not self._fast._read_paused:
                return 0
        elif not hasattr(self._aiofastnet, "_read_ready"):
            raise NotImplementedError("poll() needs aiofastnet's transports: use_aiofastnet must not be False")
        elif self._aiofastnet.is_closing() or type(self._aiofastnet).is_reading(self._aiofastnet):
            return 0
        raise RuntimeError("poll() while reading is paused: call underlying_transport.resume_reading() first")

    cdef int _sleep(self, double left) except -1:
        """Wait in the kernel until bytes arrive, or the connection ends, or a while. Queued bytes go on leaving, which
        is the event loop's work otherwise: the server may answer only when it has all of them. Signal handlers run.

        poll(2) waits, not recv(2): no memory is promised to the kernel while other threads run.
        """
        cdef:
            object transport = self._aiofastnet
            bint unsent
            int fd
            short events
        self._require_reading()
        if left <= 0:
            return 0
        if self._fast is not None:
            fd = self._fast._fileno
            unsent = self._fast._write_backlog_size > 0
        else:
            fd = transport.get_extra_info("socket").fileno()
            unsent = transport.get_write_buffer_size() > 0
        if fd < 0:
            return 0
        with nogil:
            events = wsf_sleep(fd, unsent, left)
        PyErr_CheckSignals()
        if unsent and events & POLLOUT:
            self._run_beneath(self.underlying_transport._write_ready)
        self._require_receiving()
        return 0

    cdef int _require_receiving(self) except -1:
        """WSTransport knows whether frames may still arrive."""

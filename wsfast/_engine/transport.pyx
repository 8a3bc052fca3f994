"""The listener's transport: an asyncio protocol that decodes, dispatches and sends WebSocket frames.

WSTransport is both the protocol that the transport beneath reads into and the object that a listener sends with, so
that a frame passes no layer in between. Cython has no mixins, so one object at run time is a chain of classes,
each with a file of its own:

    Link                   link.pyx     the state, the loop, the thread, the transport beneath
      FrameWriter          writer.pyx   how frames leave
        FrameReader        reader.pyx   how they arrive
          PollingReader    polling.pyx  reading without sleeping
            WSTransport    here         delivers frames; opens and ends a connection (link.pxd: State)

References while the connection is open. All are dropped when it is gone:

    event loop -> SocketTransport (or aiofastnet's) -> WSTransport -> its listener: the program's, Messages or Inbox
    WSTransport -> SocketTransport, Keepalive (which refers back), Poller (one per loop, refers to its members)
    Scratch (one per thread) -> the ReadBuffer that is read into <- each frame that was kept <- each view of it

The .pxd of a class says what each field is, who sets it and who reads it; docs/architecture.md, which memory.
From CLOSING on a timer runs: after close_timeout the connection is aborted, whatever comes.
"""

import asyncio
import sys

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint64_t

from wsfast._engine.base_transport cimport BaseTransport
from wsfast._engine.core cimport (
    wsf_close, wsf_close_code_valid, wsf_message_forget, wsf_message_limit, wsf_read_close, wsf_status)
from wsfast._engine.frames.streams cimport Deflater, Inflater
from wsfast._engine.frames.frame cimport FIN, RSV1, FrameFields, WSFrame, WSMsgType
from wsfast._engine.frames.memory cimport scratch_of_thread
from wsfast._engine.frames.link cimport State
from wsfast._engine.subclasses cimport enter_method, python_override, reduce_listener
from wsfast._engine.sockets.polling cimport PollingReader
from wsfast._engine.python cimport PyThread_get_thread_ident
from wsfast._engine.frames.violation cimport violation, violation_reason
from wsfast._engine.sockets.socket cimport acknowledge_at_once

from wsfast._common import closing
from wsfast.exceptions import Close, WSProtocolError
from wsfast._common.logging import guarded
from wsfast._common.options import in_words
from wsfast._engine.keepalive import Keepalive
from wsfast._engine.frames.frame import close_code_valid
from wsfast._engine.frames.link import MOVED
from wsfast._engine.frames.writer import mask_kernel  # no-cython-lint: for Python
from wsfast._engine.frames.inspection import WSStats
from wsfast._engine.threads import call_soon, lasting
from wsfast._engine.tuning import Tuning


cdef class WSListener:
    """The program's side of a connection: subclass it and override the callbacks you need.

    A callback may send, close, raise, and drop the last reference to anything. An exception that leaves a callback ends
    the connection with code 1011, or with the code of a :class:`WSProtocolError`, and is raised again by
    :meth:`WSTransport.wait_disconnected`.

    .. attribute:: payload_type

        The type of the payload for :meth:`on_ws_message` and :meth:`on_ws_messages`, a class attribute: ``memoryview``
        (copied only if necessary), ``bytes``, or ``str`` for text (and ``bytes`` for binary messages).
    """

    payload_type = memoryview

    cpdef on_ws_connected(self, WSTransport transport):
        """The opening handshake is over; the connection is open."""

    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        """A frame arrived.

        If :meth:`on_ws_message` or :meth:`on_ws_messages` is overridden, only control frames come here.

        PING frames come here only with ``enable_auto_pong=False``, and PONG frames only if no PING of wsfast itself was
        waiting for them. A CLOSE frame is the last one, and is answered when this method returns.
        """

    cpdef on_ws_message(self, WSTransport transport, msg_type, payload):
        """A message arrived: its fragments put together, decompressed, and checked to be UTF-8 if it is text.

        A listener that overrides this method gets whole messages instead of data frames.

        :param msg_type: ``WSMsgType.TEXT`` or ``WSMsgType.BINARY``
        :param payload: a ``memoryview`` unless the class attribute :attr:`payload_type` says otherwise. It may be kept.
        """

    cpdef on_ws_messages(self, WSTransport transport, list messages):
        """Messages arrived: all that one read has completed, in their order, each as :meth:`on_ws_message` gets it.

        A listener that overrides this method gets lists of messages instead of data frames. It may not override
        :meth:`on_ws_message`, too: then :func:`ws_connect` raises TypeError. A control frame that is delivered to
        :meth:`on_ws_frame` ends the list before it.

        :param messages: a list of one payload or more, for the program to keep. If it calls
            :meth:`~WSTransport.disconnect` amid a list, the rest of that list is its own to ignore.
        """

    cpdef on_ws_disconnected(self, WSTransport transport):
        """The connection is gone. ``transport.close_info`` tells why."""

    cpdef send_user_specific_ping(self, WSTransport transport):
        """Send the message that the server answers, if it does not answer PING frames."""
        transport.send_ping()

    cpdef is_user_specific_pong(self, WSFrame frame):
        """True if the frame answers :meth:`send_user_specific_ping`. Such a frame is not delivered."""
        return (<FrameFields>frame).msg_type == WSMsgType.PONG

    cpdef pause_writing(self):
        """The write buffer grew over its high-water mark: stop sending, or it grows without bounds."""

    cpdef resume_writing(self):
        """The write buffer shrank below its low-water mark."""

    cdef int _read_done(self, WSTransport transport) except -1:
        """The frames of one read are all dispatched."""

    cdef int _failing(self, WSTransport transport) except -1:
        """The connection is going to fail: deliver what came before."""

    cdef int _frames_end(self) except -1:
        """No data and no PONG will be delivered any more."""

    def __reduce__(self):
        return reduce_listener(self, WSListener)


@cython.final
cdef class WSTransport(PollingReader):
    """An open connection, with which a listener sends. Made by :func:`wsfast.ws_connect`, not by hand.

    All methods are to be called in the thread of the event loop and raise :exc:`RuntimeError` elsewhere.

    .. attribute:: underlying_transport

        The ``asyncio.Transport`` beneath.

    .. attribute:: request
    .. attribute:: response

        The upgrade request and the server's reply, with ``headers``.

    .. attribute:: subprotocol

        The subprotocol that the server picked, or None.

    .. attribute:: compression

        The agreement on compression, an :class:`~wsfast.deflate.AgreedDeflate`; None if messages are not compressed.

    .. attribute:: is_secure

        True over TLS.

    .. attribute:: close_info

        A :class:`WSDisconnectInfo` that says who ended the connection, how and why; None until it has ended.
    """

    def __init__(
        self, loop, opening, *, logger, bint secure, uint64_t max_frame_size, bint auto_pong,
        bint disconnect_on_exception, close_timeout, tuning=None
    ):
        self.loop = loop
        self._opening = opening
        self._logger = logger
        self.is_secure = secure
        wsf_message_limit(&self._message, max_frame_size, max_frame_size)
        self._auto_pong = auto_pong
        self._disconnect_on_exception = disconnect_on_exception
        self._close_timeout = close_timeout
        tuning = tuning or Tuning()
        self._gather = tuning.write_policy == "gather"
        self._busy_poll = tuning.busy_poll
        self._stamp_reads = self.stamps_frames = tuning.timestamps is not None
        (<object>self)._read_at_most(tuning.read_limit)
        self._notifies_read_done = self._quickack = tuning.quickack
        self._ping_histogram = tuning.ping_histogram
        self.state = State.CONNECTING

    def __repr__(self):
        names = ("connecting", "open", "closing", "draining", "failed", "closed")
        return f"<WSTransport {names[self.state]} {self.underlying_transport!r}>"

    @property
    def is_client_side(self):
        """Always True: wsfast is a client."""
        return True

    @property
    def is_close_frame_sent(self):
        """True once a CLOSE frame was sent. From then on nothing else can be."""
        return self.close_sent is not None

    @property
    def is_disconnected(self):
        """True once the connection is gone."""
        return self.state == State.CLOSED

    @property
    def stats(self):
        """The counters of the connection, a :class:`WSStats`. Taking them costs less than a microsecond."""
        self.check_thread("stats")
        return self._stats()

    def _stats(self):
        """`stats`, for a supervisor's dashboard, which asks in a thread of its own and may be a moment behind."""
        return WSStats(
            self._frames_received, self._bytes_received, self._reads, self._frames_sent, self._bytes_sent, self._writes,
            self._frames_gathered, self._longest_backlog, self._poll_hits, self._poll_misses, self._empty_wakeups)

    @property
    def close_handshake(self):
        """The CLOSE frames seen so far as a :class:`WSCloseHandshake`, or None."""
        with cython.critical_section(self):
            return closing.close_handshake(self.close_received, self.close_sent, self.received_then_sent)

    @cython.nonecheck(False)
    cdef int _dispatch(self, WSFrame frame) except -1:
        if self._on_frame is not None:
            self._on_frame(self, frame)
        elif self._listener is not None:
            self._listener.on_ws_frame(self, frame)
        return 0

    cdef int _dispatch_control(self, WSFrame frame) except -1:
        if (<FrameFields>frame).msg_type == WSMsgType.CLOSE:
            return self._close_frame_received(frame)
        if (<FrameFields>frame).msg_type == WSMsgType.PING and self._auto_pong:
            self._frames_kept += 1
            return self._answer_ping(frame.get_payload_as_bytes())
        return self._dispatch(frame)

    cdef int _answer_ping(self, bytes payload) except -1:
        """RFC 6455 section 5.5.3: of several PINGs only the last need be answered. So while the server does not read,
        one answer is owed, however many PINGs it sends."""
        if not self.is_open():
            return 0
        if self.writing_paused:
            self._pong_owed = payload
            return 0
        return self._send_frame(FIN | WSMsgType.PONG, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))

    cdef int _log_received(self, WSFrame frame) except -1:
        cdef:
            FrameFields fields = frame
            int head = fields.msg_type | (FIN if fields.fin else 0) | (RSV1 if fields.rsv1 else 0)
        if self._log is not None:
            self._log_frame("< %s", head, frame.payload_ptr, fields.payload_size)
        return 0

    cdef bint _is_expected_pong(self, WSFrame frame) except -1:
        cdef bint outer = self._takes_message, is_pong
        self._takes_message = True  # this frame comes first, even if a callback that is called here polls
        try:
            self._log_received(frame)
            is_pong = self._keepalive is not None and self._keepalive.is_pong(frame)
        finally:
            self._takes_message = outer
        self._frames_kept += is_pong
        # Or one of them has ended the connection, and then nothing is delivered any more.
        return is_pong or (self.state > State.CLOSING and (<FrameFields>frame).msg_type != WSMsgType.CLOSE)

    cdef Py_ssize_t _upgrade(self, bytes data) except -1:
        return self._opening.data_received(data)

    cdef int _upgraded(self) except -1:
        self._notify(self._listener, "on_ws_connected")
        return 0

    cdef int _delivery_raised(self, exc, bint from_callback) except -1:
        if from_callback:
            self._callback_raised("on_ws_frame", exc)
        else:
            self._fail(1011, "", exc)
        if isinstance(exc, (KeyboardInterrupt, SystemExit)):
            raise exc
        return 0

    cdef int _violated(self, wsf_status status, const uint8_t *frame, Py_ssize_t size) except -1:
        if self.state >= State.DRAINING:
            self.state = max(self.state, <int>State.FAILED)  # no program waits for these frames any more
            if self._disconnecting:
                self._drain()
            return 0
        exc = violation(&self._message, status, frame, size)
        self._fail(exc.code, violation_reason(status, frame, size), exc)
        return 0

    cdef int _read_done(self) except -1:
        if self._quickack and self.state != State.CLOSED:
            # After the callbacks: a frame that they sent has acknowledged the read, and needs no packet for that.
            acknowledge_at_once(self._socket_fd)
        return 0 if self._listener is None else self._listener._read_done(self)

    cdef int _require_receiving(self) except -1:
        if self.state > State.CLOSING or self.close_received is not None:
            self._raise_closed()
        if not self._is_carried():
            self._raise_closed()  # the transport beneath has failed, and will say so in a moment
        return 0

    cdef int _raise_closed(self) except -1:
        raise self._closed()

    cdef int _loop_moved(self) except -1:
        self._failure = self._failure or RuntimeError(MOVED)
        self._drop_held()  # or connection_lost() would wait for it
        raise RuntimeError(MOVED)  # at which the transport beneath drops the connection

    def _closed(self):
        cause = self._failure or self._cause if self.close_info is None else self.close_info.cause
        return closing.connection_closed(self.close_received, self.close_sent, self.received_then_sent, cause)

    def connection_made(self, transport):
        if self._opening is None:
            raise RuntimeError("the transport was not initialised, or has been connected")
        self.underlying_transport = transport
        if isinstance(transport, BaseTransport):
            self._fast = transport
        elif "aiofastnet" in sys.modules and isinstance(transport, sys.modules["aiofastnet"].Transport):
            self._aiofastnet = transport
            self._is_aiofastnet_closing = transport.is_closing
        self.thread_id = PyThread_get_thread_ident()
        self._scratch = scratch_of_thread()
        if self._quickack:
            self._socket_fd = transport.get_extra_info("socket").fileno()
        self._opening.connection_made(self)

    def connection_lost(self, exc):
        if self.state == State.CLOSED:
            return
        self._stop_polling()
        if self.state == State.CONNECTING:
            self.state = State.CLOSED
            self._opening.connection_lost(exc)
            self._opening = None
            return
        if self.held is not None and self.state <= State.CLOSING:
            self._lost_held = (exc,)  # the bytes that were received before are delivered first
            return
        self.state = State.CLOSED
        self._forget_late()
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        self._own = None
        self._drop_held()
        self.flush()
        if exc is None and self.close_received is None and not self._aborted:
            exc = EOFError("unexpected end of stream")
        info = closing.disconnect_info(
            self.close_received, self.close_sent, self.received_then_sent, self._aborted,
            self._failure or self._cause or exc)
        with cython.critical_section(self):  # which other threads may ask for
            self.close_info = info
        try:
            self._disconnected_callbacks()
        finally:
            if self._disconnected is not None and not self._disconnected.done():
                self._disconnected.set_result(None)

    def _disconnected_callbacks(self):
        """Notify all but wait_disconnected(), and let go of them: they refer to each other."""
        self._give_up_pings()
        if self._keepalive is not None:
            self._keepalive.stop()
            self._keepalive = None
            self._expect_pong = False
        listener, self._listener, self._on_frame = self._listener, None, None
        self._notify(listener, "on_ws_disconnected")

    cdef int _give_up_pings(self) except -1:
        """No frame is looked at any more, so no PING will be answered."""
        if self._keepalive is not None:
            self._keepalive.give_up(self._closed())  # also those that began to wait since
        if self._listener is not None and not self._frames_ended:
            self._frames_ended = True
            self._listener._frames_end()
        return 0

    def _notify(self, listener, str callback):
        if listener is None:
            return  # it is gone already
        try:
            getattr(listener, callback)(self)
        except BaseException as exc:
            self._callback_raised(callback, exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise

    def eof_received(self):
        if self.state == State.CONNECTING or self.state == State.CLOSED:
            return False
        cdef bint busy = self._come_up()
        try:
            self._end_received()
        finally:
            self._go_down(busy)
        return False

    cdef int _end_received(self) except -1:
        self._check_loop_thread()
        self.flush()
        unsent = self.underlying_transport.get_write_buffer_size()
        if self.state == State.OPEN and unsent and not self.underlying_transport.is_closing():
            # The server has left: bytes that it has not taken by now would only delay the news.
            closing.end(self.underlying_transport.abort, self.loop if self._resuming else None)
        if self.held is None:
            self.start_close_timer()
            self.state = max(self.state, <int>State.DRAINING)  # the server would not receive a frame that is sent now
            self._give_up_pings()
        return 0

    cdef int _catch_up(self) except -1:
        if self._drain_owed:
            self._drain_owed = False
            self._drain()
        if not self.writing_paused and self._pong_owed is not None:
            payload, self._pong_owed = self._pong_owed, None
            self._answer_ping(payload)
        if self._listener is None or self._notified_paused == self.writing_paused:
            return 0
        self._notified_paused = self.writing_paused
        callback = "pause_writing" if self._notified_paused else "resume_writing"
        try:
            getattr(self._listener, callback)()
        except Exception as exc:
            self._callback_raised(callback, exc)
        return 0

    cdef int _break_off(self) except -1:
        self.abort()
        return 0

    def _set_close_timeout(self, close_timeout):
        """Set the time limit of closing that begins from now on."""
        self._close_timeout = close_timeout

    def _compress(self, agreed):
        """Compression was negotiated; to be called before the listener is made."""
        self.compression = agreed
        self._inflater = Inflater(agreed)
        self._deflater = Deflater(agreed) if agreed.can_compress else None
        self._logs_or_deflates = self._logs_or_deflates or agreed.can_compress

    def _log_frames(self, debug):
        """Call `debug`, a Logger.debug(), with every frame from now on."""
        self._log = debug
        self._logs_or_deflates = self._expect_pong = True  # the flags that each frame is asked about anyway

    def _open(self, WSListener listener not None, request, response, subprotocol, int rsv_allowed):
        """The server agreed: deliver to this listener from now on."""
        self._opening = None
        self._listener = listener
        self._on_frame = self._on_frame or python_override(listener, "on_ws_frame")
        self.request = request
        self.response = response
        self.subprotocol = subprotocol
        self._rsv_allowed = rsv_allowed
        self._message.decoder.rsv_allowed = rsv_allowed if self._inflater is None else RSV1
        self.state = State.OPEN
        self._start_polling()

    def _keep_alive(self, idle_timeout, reply_timeout, strategy):
        """Send PINGs and end the connection if nothing answers; None as `idle_timeout` never pings by itself."""
        self._keepalive = Keepalive(
            self, self._listener, WSListener, idle_timeout, reply_timeout, strategy,
            self._ping_histogram, self._logger)
        self._stamp_reads = self._stamp_reads or idle_timeout is not None

    def _expect(self, bint pong):
        """Ask the keepalive about every frame, or no longer."""
        self._expect_pong = pong or self._log is not None

    async def measure_roundtrip_time(self, int rounds):
        """Measure how long the server takes to answer a PING.

        :param rounds: how many PINGs to send, one after the other
        :returns: a list of `rounds` times in seconds
        :raises ConnectionClosed: the connection ended meanwhile
        """
        self.check_thread("measure_roundtrip_time")
        self._require_open()
        if self._keepalive is None:
            self._keep_alive(None, None, None)
        return await self._keepalive.measure(rounds)

    cpdef notify_user_specific_pong_received(self):
        """Say that the answer to :meth:`WSListener.send_user_specific_ping` arrived, if only your own decoding of the
        frames can tell. Does nothing if none is waited for."""
        self.check_thread("notify_user_specific_pong_received")
        if self._keepalive is not None:
            self._keepalive.pong_received()

    def send_threadsafe(self, msg_type, message, compress=None):
        """Send one frame from any thread: as :meth:`send`, in the thread of the event loop, when it comes to that.

        :param msg_type, message, compress: as for :meth:`send`. A ``bytearray`` or ``memoryview`` is copied at once.
        :returns: a ``concurrent.futures.Future``, done when the frame was sent; it raises what :meth:`send` raises
        :raises RuntimeError: the event loop is closed; the future raises it if the loop is closed before that
        """
        send = (<object>self).send
        return call_soon(self.loop, send, msg_type, lasting(message), True, False, False, False, compress)

    cpdef send_close(self, close_code=0, close_message=None):
        """Send a CLOSE frame; nothing can be sent after it. Frames are delivered until the server answers.

        The connection ends when the server has answered and closed it, at the latest ``close_timeout`` later.
        Does nothing if a CLOSE frame was sent before or the connection is gone.

        :param close_code: a :class:`WSCloseCode` or 3000-4999; ``NO_INFO`` (0) sends an empty CLOSE frame
        :param close_message: the reason, ``str`` or UTF-8 bytes, at most 123 bytes
        """
        self.check_thread("send_close")
        cdef bytes reason = closing.close_reason(close_code, close_message, close_code_valid)
        if self.state == State.OPEN:
            self._send_close_frame(close_code, reason, State.CLOSING)

    cdef int _send_close_frame(self, int code, bytes reason, State next) except -1:
        """Send the one CLOSE frame, if it can be sent. The state is `next` before it leaves, so nothing follows it."""
        cdef:
            bytes payload = code.to_bytes(2, "big") + reason if code else b""
        sent = Close(code or closing.NO_STATUS_RECEIVED, reason.decode())
        if not self.is_open():
            return 0  # it is closed; perhaps a finalizer closed it just now
        with cython.critical_section(self):
            self.close_sent = sent
            self.received_then_sent = self.close_received is not None
        self.state = next
        try:
            self._send_frame(FIN | WSMsgType.CLOSE, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        finally:
            self.start_close_timer()
        return 0

    cdef int _close_frame_received(self, WSFrame frame) except -1:
        """RFC 6455 section 5.5.1: the CLOSE frame is answered. The core has found its code and its reason legal."""
        cdef wsf_close close
        wsf_read_close(<const uint8_t *>frame.payload_ptr, (<FrameFields>frame).payload_size, &close)
        reason = PyUnicode_DecodeUTF8(<const char *>close.reason, close.reason_size, NULL)
        received = Close(close.code, reason)
        with cython.critical_section(self):
            self.close_received = received
        self.start_close_timer()
        try:
            if self.state <= State.CLOSING:
                self._dispatch(frame)
        finally:
            if self.state == State.OPEN:
                self._send_close_frame(
                    0 if close.code == closing.NO_STATUS_RECEIVED else close.code, reason.encode(), State.DRAINING)
                if self.cork_depth == 0:
                    self.flush()
            if self.state <= State.CLOSING:
                self.state = State.DRAINING
            self._give_up_pings()
            if self._disconnecting:
                self._drain()
        return 0

    cpdef disconnect(self, bint graceful=True):
        """End the connection. Nothing is delivered any more.

        :param graceful: send a CLOSE frame with code 1000 if none was sent, wait for the server's, and then close;
            frames sent before reach the server. This takes ``close_timeout`` at most. If False, as :meth:`abort`.

        Does nothing if the connection is gone.
        """
        self.check_thread("disconnect")
        if not graceful:
            self.abort()
        elif self.state != State.CLOSED:
            if self.state == State.OPEN:
                self._send_close_frame(1000, b"", State.DRAINING)
            self._drain()

    cpdef abort(self):
        """Drop the connection at once, with everything that was not sent yet."""
        self.check_thread("abort")
        if self.state == State.CLOSED:
            return
        self._aborted = True
        if self.state != State.CONNECTING:
            self.state = max(self.state, <int>State.DRAINING)
        self._drop()

    async def wait_disconnected(self):
        """Wait until the connection is gone and ``on_ws_disconnected`` has returned.

        :raises Exception: the reason why this side ended the connection: the exception of a callback, a
            :class:`WSProtocolError` if the server broke the protocol, :class:`KeepaliveTimeout` if it fell silent.
            Whatever the server did within the protocol is no error; see ``close_info``.
        """
        self.check_thread("wait_disconnected")
        if self.state != State.CLOSED:
            if self._disconnected is None:
                self._disconnected = self.loop.create_future()
            await asyncio.shield(self._disconnected)
        if self._failure is not None:
            raise self._failure

    cdef int _drain(self) except -1:
        """Read until the server's CLOSE, if there is one to come; then say that nothing more will be sent, and read
        until the server has closed the connection too. Said sooner, that is the end of everything for some servers."""
        self._disconnecting = True
        if self.state < State.DRAINING:
            self.state = State.DRAINING
        wsf_message_forget(&self._message)
        self.start_close_timer()
        self._give_up_pings()
        if self._writing:
            self._drain_owed = self._owed = True
            return 0
        self.flush()
        if self._half_closed or self.state == State.CLOSED or self.underlying_transport is None:
            return 0
        if self.underlying_transport.is_closing():
            return 0 if self._lost_held is None else self._drop_held()
        self.deliver_held()  # of which only the server's CLOSE is looked for
        self.underlying_transport.resume_reading()
        if self.state == State.DRAINING and self.close_sent is not None and self.close_received is None:
            return 0
        self._half_closed = True
        if self.underlying_transport.can_write_eof():
            self.underlying_transport.write_eof()
        else:
            # TLS: sends close_notify behind the queued bytes, and reads until the server's.
            closing.end(self.underlying_transport.close, self.loop if self._resuming else None)
        return 0

    cdef int _drop(self) except -1:
        self._gathered_size = 0
        self._forget_late()
        self._drop_held()
        if self.underlying_transport is not None:
            closing.end(self.underlying_transport.abort, self.loop if self._resuming else None)
        return 0

    cdef int start_close_timer(self) except -1:
        if self._close_timer is None and self._close_timeout is not None and self.state != State.CLOSED:
            self._close_timer = self.loop.call_later(self._close_timeout, self._close_timed_out)
        return 0

    def _close_timed_out(self):
        if self._lost_held is None:
            self._cause = TimeoutError(
                f"the server did not close the connection within {in_words(self._close_timeout)}")
        self._drop()

    def _callback_raised(self, str callback, exc):
        """A callback raised: end the connection, unless `disconnect_on_exception` is off."""
        if isinstance(exc, WSProtocolError):
            self._fail(exc.code, closing.reason_for(exc), exc)
        elif callback == "on_ws_frame" and not self._disconnect_on_exception and isinstance(exc, Exception):
            try:
                guarded(self._logger.error, "exception in %s", callback, exc_info=exc)
            except BaseException as interrupt:  # Ctrl-C in a handler; the rest of this read is lost
                self._fail(1011, "", interrupt)
                raise
        else:
            self._fail(1011, "", exc)

    def _fail(self, int code, str reason, exc):
        """End the connection because of `exc`: send CLOSE with this code, and raise `exc` in the tasks that wait."""
        cdef bint first
        if self._listener is not None:
            self._listener._failing(self)
        first = self._failure is None
        if first:
            self._failure = exc
        # The state first: nothing more is delivered, also not to a logging handler that polls.
        if self.state == State.OPEN:
            if not wsf_close_code_valid(code):
                code, reason = 1011, ""
            self._send_close_frame(code, closing.cut_reason(reason), State.FAILED)
        self.state = max(self.state, <int>State.FAILED)
        try:
            closing.log_failure(self._logger, exc, first)
        finally:
            if self.state != State.CLOSED:
                self._drain()


for _name in ("send", "send_many", "poll"):
    enter_method(WSTransport, _name)

"""recv(), recv_many() and send() of the awaitable connection: the code that runs for every message.

All return an object that is awaited once (see _awaitable.pyx). If the result is there already (a message in the queue,
room to write), the await ends in the first step: no future, no task, no iteration of the event loop. It has a
coroutine's methods, so create_task(), wait_for() and gather() take it.

An await that never waits would starve other tasks. So the clock is read now and then, and a connection that went on for
two SLICEs within one iteration of the event loop yields once.

Nothing is taken from the queue before the await ends, so a cancelled recv() loses no message. What a cancelled send()
had begun leaves whole.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t

from wsfast._engine.core cimport wsf_monotonic_ns
from wsfast._engine.messages cimport AS_BYTES, AS_TEXT, BY_TYPE, decoding
from wsfast._engine.frames.streams cimport compression
from wsfast._engine.transport cimport WSTransport
from wsfast._engine.frames.frame cimport FIN, WSMsgType
from wsfast._engine.frames.link cimport State
from wsfast._engine.python cimport PyDescr_NewMethod, PyMethodDescrObject, PyThread_get_thread_ident
from wsfast.asyncio._awaitable cimport (
    WSF_RETURNED,
    WSF_YIELDED,
    Awaitable,
    Stage,
    drive,
    install,
    warn_never_awaited,
    wsf_awaitable,
    wsf_awaitable_new,
    wsf_recycle,
    wsf_step,
)
from wsfast.asyncio._inbox cimport Inbox

from wsfast._common.connection import State as PublicState
from wsfast._common.options import count, no_message, seconds
from wsfast.exceptions import ConcurrencyError, ConnectionClosedOK


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX


cdef enum:
    # Awaits that may end at once before the clock is read for the first time, and at most between two readings.
    FIRST_ALLOWANCE = 8
    LARGEST_ALLOWANCE = 64
    # What a Receive is to take, or the most messages of recv_many().
    ONE_MESSAGE = 0
    ONE_FRAME = -1
    # Nanoseconds that an event loop may be kept from other tasks: twice this is a hundred of its iterations.
    SLICE = 125_000


cdef wsf_awaitable _receives, _sends


cdef class Connection:
    """The part of a connection that is the same for every message; :class:`wsfast.asyncio.client.ClientConnection` is
    the whole."""

    def __init__(self, WSTransport transport not None, limits, policy=None):
        self._transport = transport
        self._inbox = Inbox(self, transport, limits, policy)
        self._credit = FIRST_ALLOWANCE

    @cython.nonecheck(False)  # the object was made here
    def recv(self, decode=None):
        """Receive the next message.

        :param decode: None gives ``str`` for text messages and ``bytes`` for binary ones, True always ``str``, False
            always ``bytes``. ``memoryview`` gives a view of the bytes: of the read buffer, without a copy, if the
            message is received as soon as it arrives. It may be kept.
        :raises ConnectionClosed: the connection is closed, and no message is left
        :raises ConcurrencyError: another task is in :meth:`recv` or :meth:`recv_streaming`

        Cancelling it is safe: no message is lost. If a message should be text and is not UTF-8, the connection is
        closed with code 1007.
        """
        return _receive(self, decode)

    def recv_many(self, max=None, *, timeout=None, decode=None):
        """Receive all messages that have arrived, at least one: wait for the first as :meth:`recv` does.

        :param max: the most messages to return; None is no limit
        :param timeout: seconds to wait for the first message; None is no limit
        :param decode: as for :meth:`recv`
        :returns: a list of messages in their order. It ends with the message with which they have 1 MiB.
        :raises TimeoutError: `timeout` passed. Nothing is lost.
        :raises ConnectionClosed, ConcurrencyError: as :meth:`recv` does

        Cancelling it is safe: no message is lost. A message that cannot be decoded ends the list before it, and the
        next call raises.
        """
        return _receive_many(self, _most(max), timeout, decode)

    def send(self, message, *, text=None, compress=None):
        """Send a message.

        :param message: ``str`` is sent as text, a bytes-like object as binary; an iterable or asynchronous iterable of
            either is sent as one message, each item as a fragment
        :param text: True sends as text, False as binary, whatever the type of `message`
        :param compress: True or False overrides the ``threshold`` of :class:`~wsfast.deflate.PerMessageDeflate`, if
            compression was negotiated
        :raises ConnectionClosed: the connection is closed
        :raises TypeError: `message` is of another type

        Waits only while more than ``write_limit`` bytes are unsent, or a fragmented message of another task is being
        sent.
        """
        cdef Send send = <Send>wsf_awaitable_new(&_sends)
        send._connection = self
        send._message = message
        send._text = BY_TYPE if text is None else AS_TEXT if text else AS_BYTES
        send._compression = 0 if compress is None else compression(compress)
        send._stage = Stage.FRESH
        return send

    def __aiter__(self):
        """Iterate over the messages until the connection is closed.

        The iteration ends after a normal closure; after any other one it raises :exc:`ConnectionClosedError`.
        """
        return Messages(self, BY_TYPE)

    def messages(self, decode=None):
        """Iterate over the messages, as ``async for message in ws`` does.

        :param decode: as for :meth:`recv`
        """
        return Messages(self, decoding(decode))

    def batches(self, max=None, *, decode=None):
        """Iterate over lists of messages, as :meth:`recv_many` returns them, until the connection is closed.

        :param max, decode: as for :meth:`recv_many`

        The iteration ends as that over the messages does.
        """
        return Messages(self, decoding(decode), None, _most(max))

    @property
    def last_message(self):
        """The :class:`WSMessageInfo` of the last message that was received: its type, when it arrived,
        whether it was compressed, whether more had arrived behind it. None unless `timestamps` was given."""
        return (<object>self._transport).last_message

    # ---- what waits: declared for the methods here, and written in ClientConnection, as coroutines

    def _text_is_invalid(self, exc):
        """A message should be text and is not UTF-8."""
        raise NotImplementedError

    def _send_slowly(self, message, text, int override):
        """send() of anything but one frame that leaves at once."""
        raise NotImplementedError

    def _drain(self):
        """Wait until the write buffer has room."""
        raise NotImplementedError

    # ---- for the methods of ClientConnection

    @property
    def listener(self):
        """The listener that the engine delivers to."""
        return self._inbox

    def _receive_frame(self):
        """Receive the next frame of a message as (opcode, payload, fin)."""
        cdef Receive receive = self.recv()
        receive._most = ONE_FRAME
        return receive

    def _send_frame(self, message, bint text, bint first, bint fin, int override):
        """Send one fragment. True if the next one must wait for the write buffer."""
        cdef int opcode = (WSMsgType.TEXT if text else WSMsgType.BINARY) if first else WSMsgType.CONTINUATION
        self._transport.check_thread("send")
        cdef int first_byte = self._transport.first_byte(opcode, fin, False, False, False)
        self._transport.send_object(first_byte | override, _bytes_like(message))
        return self._transport.writing_paused

    def _send_some(self, messages, text, compress):
        """Send messages out of an iterator, all in one write; true if there are more and they must wait."""
        cdef:
            WSTransport transport = self._transport
            int first_byte, kind = BY_TYPE if text is None else AS_TEXT if text else AS_BYTES
            int override = compression(compress)
        transport.check_thread("send_many")
        transport.begin_cork()
        try:
            for message in messages:
                first_byte = _first_byte(message, kind)
                if first_byte == 0:
                    raise no_message("message", message)
                transport.send_object(first_byte | override, _bytes_like(message))
                if transport.writing_paused:
                    return True
        finally:
            transport.end_cork()
        return False

    def _read_on(self):
        self._inbox.read_on()

    def _read_no_further(self):
        self._inbox.read_no_further()

    @property
    def _is_closed(self):
        return self._transport.state == State.CLOSED

    def _life(self):
        if self._transport.state == State.OPEN:
            return PublicState.OPEN
        return PublicState.CLOSED if self._transport.state == State.CLOSED else PublicState.CLOSING

    @property
    def _is_open(self):
        return self._transport.is_open()

    @property
    def _writing_paused(self):
        return self._transport.writing_paused

    @property
    def _sending_fragments(self):
        return self._fragmenting

    @_sending_fragments.setter
    def _sending_fragments(self, bint sending):
        self._fragmenting = sending

    @property
    def _streaming(self):
        """recv_streaming() has given a part of a message, and not the last one."""
        return self._inbox.streaming

    @_streaming.setter
    def _streaming(self, bint streaming):
        self._inbox.receiving = self._inbox.streaming = streaming

    @property
    def _closes(self):
        """The CLOSE frames: received, sent, and whether the received one came first."""
        cdef WSTransport transport = self._transport
        with cython.critical_section(transport):
            return transport.close_received, transport.close_sent, bool(transport.received_then_sent)

    def _stamp_reads(self):
        """Note from now on when something was received: ``transport.last_received``."""
        self._transport.note_reads()

    # ---- fairness

    cdef bint _must_yield(self) except -1:
        """Awaits that ended at once have used up the credit: read the clock, and grant new credit.

        After one SLICE without a known iteration of the event loop, schedule a callback to notice the next iteration.
        So a run that takes less than a SLICE, a read and the answers to it, costs the loop nothing.
        """
        cdef int64_t now = wsf_monotonic_ns()
        if self._run_began == 0:
            self._run_began = now
            self._allowance = 1
        elif now - self._run_began < SLICE:
            if self._allowance < LARGEST_ALLOWANCE:
                self._allowance *= 2
        elif self._iteration_awaited:
            return True
        else:
            self._iteration_awaited = True
            self._run_began = now
            self._transport.loop.call_soon(self._loop_iterated)
        self._credit = self._allowance
        return False

    cdef void _run_begins(self) noexcept:
        """The event loop has begun a new iteration."""
        self._run_began = 0
        self._credit = FIRST_ALLOWANCE

    def _loop_iterated(self):
        self._iteration_awaited = False
        self._run_begins()


@cython.final
cdef class Receive(Awaitable):
    """recv() or recv_many() under way."""

    cdef:
        Connection _connection
        int _decode
        bint _iterates
        Py_ssize_t _most            # ONE_MESSAGE, ONE_FRAME, or of recv_many()
        double _timeout             # of recv_many(), in seconds; -1: none. Not of an iteration
        object _timer               # while recv_many() waits for that time at most

    cdef bint _is_ready(self) except -1:
        """True if there is a message for this object, whatever inbox.streaming is: take() relies on it."""
        if self._most == ONE_FRAME:
            return self._connection._inbox.frames > 0
        return self._connection._inbox.messages > 0

    @cython.nonecheck(False)  # the callers have looked at the connection and its inbox just now
    cdef int _finish(self, PyObject **result) except -1:
        cdef:
            Inbox inbox = self._connection._inbox
            object value
        self._stage = Stage.OVER
        inbox.receiving = True
        try:
            value = inbox.take(self._decode) if self._most == ONE_MESSAGE else self._take_other(inbox)
        finally:
            inbox.receiving = inbox.streaming = False
        if value is None:
            exc, inbox.invalid_text = inbox.invalid_text, None
            return self._delegate_to(self._connection._text_is_invalid(exc), result)
        Py_INCREF(value)
        result[0] = <PyObject *>value
        return WSF_RETURNED

    @cython.nonecheck(False)
    cdef object _take_other(self, Inbox inbox):
        """What is to be taken, and is not one message."""
        cdef list messages
        if self._most == ONE_FRAME:
            return inbox.take_frame()
        self._stop_timer()
        messages = inbox.take_many(self._decode, self._most)
        if messages is not None:
            self._connection._credit -= <int>PyList_GET_SIZE(messages) - 1
        return messages

    cdef int _wait_no_longer(self) except -1:
        """recv_many() is going to wait: see that it does not do so for longer than its time-out."""
        cdef Inbox inbox = self._connection._inbox
        if self._timer is not None and inbox.waiter.is_late:
            self._end()
            raise TimeoutError(f"timed out in {self._timeout:.1f}s")
        if self._timer is None and self._timeout >= 0 and not self._iterates:
            inbox.waiter.is_late = False
            self._timer = self._connection._transport.loop.call_later(self._timeout, inbox.waiter.time_is_up)
        return 0

    cdef int _stop_timer(self) except -1:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return 0

    cdef int _yield(self, Stage stage, object value, PyObject **result) except -1:
        self._connection._inbox.receiving = True
        self._stage = stage
        Py_INCREF(value)
        result[0] = <PyObject *>value
        return WSF_YIELDED

    cdef int _go_on(self, PyObject **result) except -1:
        """Any step but a first one that ends at once."""
        cdef:
            Connection connection = self._connection
            Inbox inbox
        if self._stage == Stage.DELEGATED:
            return drive(self._delegate, result)
        if self._stage == Stage.OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        inbox = connection._inbox
        if self._stage == Stage.FRESH:
            self._stage = Stage.OVER
            if inbox is None:
                raise RuntimeError("the connection was not initialised")
            connection._transport.check_thread("recv")
            if inbox.receiving:
                raise ConcurrencyError(
                    f"cannot call {self._name()} while another coroutine is already running recv or recv_streaming")
            # Before anything runs that might receive, too. If that raises, _end() lets others receive.
            self._stage = Stage.YIELDED
            inbox.receiving = True
            inbox.streaming = self._most == ONE_FRAME
            if self._is_ready() and connection._has_credit() == 0:
                return self._yield(Stage.YIELDED, None, result)
        elif self._stage == Stage.WAITING and inbox.waiter.is_armed():
            raise RuntimeError("coroutine is being awaited already")
        else:
            connection._run_begins()
        if self._is_ready():
            return self._finish(result)
        if inbox.closed:
            self._end()
            if connection._successor is not None and self._most != ONE_FRAME:
                return self._delegate_to(connection._successor(self._decode, self._iterates, self._most), result)
            exc = connection._closed()
            if self._iterates and isinstance(exc, ConnectionClosedOK):
                raise StopAsyncIteration
            raise exc
        if self._most > 0:
            self._wait_no_longer()
        waiter = inbox.waiter.arm()  # first: what comes while the rest of this runs wakes it
        if inbox.paused:
            inbox.resume()
        if connection._transport.cork_depth == 0:
            connection._transport.flush()  # for the program has nothing else to send
        return self._yield(Stage.WAITING, waiter, result)

    cdef int _abandon(self) except -1:
        self._connection._inbox.receiving = self._connection._inbox.streaming = False
        return self._stop_timer()

    cdef str _name(self):
        return "recv_many" if self._most > 0 else "recv"

    def __del__(self):
        self._finalized = True
        fresh = self._stage == Stage.FRESH
        self._end()
        if fresh:
            warn_never_awaited(f"ClientConnection.{self._name()}".encode())


@cython.final
cdef class Send(Awaitable):
    """send() under way."""

    cdef:
        Connection _connection
        object _message
        int _text
        int _compression            # see Compression of streams.pxd

    cdef int _go_on(self, PyObject **result) except -1:
        """Any step but the first."""
        if self._stage == Stage.DELEGATED:
            return drive(self._delegate, result)
        if self._stage == Stage.OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self._stage = Stage.OVER
        self._connection._run_begins()
        Py_INCREF(None)
        result[0] = <PyObject *>None
        return WSF_RETURNED

    def __del__(self):
        self._finalized = True
        fresh = self._stage == Stage.FRESH
        self._end()
        if fresh:
            warn_never_awaited(b"ClientConnection.send")


@cython.final
cdef class Messages:
    """``async for`` over a connection, or over one after the other.

    :param slowly: called with `decode`, True and `most` for each message as long as there is no connection
    :param most: of the messages of a batch; 0 gives single messages
    """

    cdef Connection _connection
    cdef int _decode
    cdef Py_ssize_t _most
    cdef bint _closed
    cdef object _slowly

    def __cinit__(self, Connection connection, int decode, slowly=None, Py_ssize_t most=ONE_MESSAGE):
        if connection is None and slowly is None:
            raise TypeError("there is neither a connection nor a function")
        self._connection = connection
        self._decode = decode
        self._most = most
        self._slowly = slowly

    def follow(self, Connection connection):
        """Go on with this connection."""
        self._connection = connection
        self._closed = False

    def __aiter__(self):
        return self

    async def aclose(self):
        """End the iteration, as ``aclose()`` of an asynchronous generator does. The connection stays as it is."""
        self._closed = True

    def __anext__(self):
        if self._closed:
            raise StopAsyncIteration
        if self._connection is None:
            return self._slowly(self._decode, True, self._most)
        cdef Receive receive = <Receive>wsf_awaitable_new(&_receives)
        receive._connection = self._connection
        receive._decode = self._decode
        receive._iterates = True
        receive._most = self._most
        receive._stage = Stage.FRESH
        return receive


cdef class Successive:
    """recv() from one connection after another."""

    cdef Connection _connection

    @cython.nonecheck(False)
    def recv(self, decode=None):
        """Receive the next message, whichever connection it comes from.

        The messages of a connection come in their order, and all of them come before those of the next connection.
        :attr:`generation` is the number of the message's connection.

        :param decode: as for :meth:`ClientConnection.recv`
        :raises Exception: the reason why the supervisor gave up, after the last message
        :raises ConnectionClosedOK: the supervisor was closed, and no message is left
        :raises ConcurrencyError: another task is in :meth:`recv`
        :raises TypeError: the messages go to a listener

        Cancelling it is safe: no message is lost.
        """
        if self._connection is None:
            return self._receive_slowly(decoding(decode), False, ONE_MESSAGE)
        return _receive(self._connection, decode)

    def recv_many(self, max=None, *, decode=None):
        """Receive all messages that one connection has brought, at least one: wait for the first as :meth:`recv` does.

        :param max: the most messages to return; None is no limit
        :param decode: as for :meth:`ClientConnection.recv`
        :returns: a list of messages in their order. :attr:`generation` and :attr:`gaps` are those of all of them.
        :raises: what :meth:`recv` raises

        Cancelling it is safe, with a time-out for instance: no message is lost.
        """
        cdef Py_ssize_t most = _most(max)
        if self._connection is None:
            return self._receive_slowly(decoding(decode), False, most)
        return _receive_many(self._connection, most, None, decode)

    def batches(self, max=None, *, decode=None):
        """Iterate over lists of messages, as :meth:`recv_many` returns them. The iteration ends as that over the
        messages does.

        :param max, decode: as for :meth:`recv_many`
        """
        return Messages(None, decoding(decode), self._receive_batch, _most(max))

    def _receive_batch(self, int decode, iterates, Py_ssize_t most):
        """As _receive_slowly(), but at once if there is a connection."""
        cdef Receive receive
        if self._connection is None:
            return self._receive_slowly(decode, iterates, most)
        receive = _receive_many(self._connection, most, None, None)
        receive._decode = decode
        receive._iterates = iterates
        return receive

    def _receive_slowly(self, decode, iterates, most):
        """A coroutine that receives as recv_many() does, or one message if `most` is 0, and waits for the next
        connection."""
        raise NotImplementedError

    @property
    def _direct(self):
        """The connection whose messages recv() takes; None: _receive_slowly() does."""
        return self._connection

    @_direct.setter
    def _direct(self, Connection connection):
        self._connection = connection


@cython.nonecheck(False)  # the object was made here
cdef inline Receive _receive(Connection connection, decode):
    cdef Receive receive = <Receive>wsf_awaitable_new(&_receives)
    receive._connection = connection
    # The usual ones without a call.
    receive._decode = (
        BY_TYPE if decode is None else AS_BYTES if decode is False else AS_TEXT if decode is True
        else decoding(decode))
    receive._iterates = False
    receive._most = ONE_MESSAGE
    receive._stage = Stage.FRESH
    return receive


cdef Receive _receive_many(Connection connection, Py_ssize_t most, timeout, decode):
    cdef Receive receive
    cdef object span = seconds("timeout", timeout, none="for no limit")
    receive = _receive(connection, decode)
    receive._most = most
    receive._timeout = -1 if span is None else span
    return receive


cdef Py_ssize_t _most(max) except -1:
    """The `max` of recv_many()."""
    number = count("max", max, least=1, none="for no limit")
    return PY_SSIZE_T_MAX if number is None else number


# The steps have no local variables for objects: each would cost a reference counted up and down. A step that raises
# leaves NULL as its result: the interpreter relies on that, and a debug build asserts it.

@cython.nonecheck(False)  # what the collector may have cleared is left to _go_on(), where it is on
cdef int _receive_step(Receive self, PyObject *value, PyObject **result) except -1:
    result[0] = NULL
    if self._stage != Stage.FRESH or self._most != ONE_MESSAGE or self._connection is None:
        return self._go_on(result)
    if self._connection._inbox is None or self._connection._transport is None:
        return self._go_on(result)
    if self._connection._inbox.messages == 0 or self._connection._inbox.receiving:
        return self._go_on(result)
    if PyThread_get_thread_ident() != self._connection._transport.thread_id:
        return self._go_on(result)
    if self._connection._credit <= 1:
        return self._go_on(result)  # a callback of the loop may be scheduled, and then anything may run
    self._connection._credit -= 1
    return self._finish(result)


cdef int _send_step(Send self, PyObject *value, PyObject **result) except -1:
    cdef int first_byte
    result[0] = NULL
    if self._stage != Stage.FRESH:
        return self._go_on(result)
    self._stage = Stage.OVER
    if self._connection._transport is None:
        raise RuntimeError("the connection was not initialised")
    if PyThread_get_thread_ident() != self._connection._transport.thread_id:
        self._connection._transport.check_thread("send")
    first_byte = _first_byte(self._message, self._text)
    if first_byte == 0 or self._connection._fragmenting or not self._connection._transport.is_open():
        return self._delegate_to(
            self._connection._send_slowly(
                self._message, None if self._text == BY_TYPE else bool(self._text), self._compression), result)
    self._connection._transport.send_object(first_byte | self._compression, _bytes_like(self._message))
    if self._connection._transport.writing_paused:
        self._message = None
        return self._delegate_to(self._connection._drain(), result)
    Py_INCREF(None)
    result[0] = <PyObject *>None
    if self._connection._has_credit() == 0:
        self._stage = Stage.YIELDED
        return WSF_YIELDED
    return WSF_RETURNED


@cython.nonecheck(False)
cdef bint _recycle_receive(Receive self) noexcept:
    if self._stage != Stage.OVER or self._finalized:
        return False
    self._connection = None
    return True


cdef bint _recycle_send(Send self) noexcept:
    if self._stage != Stage.OVER or self._finalized:
        return False
    self._connection = self._message = None
    return True


cdef int _first_byte(message, int text) except -1:
    """Of an unfragmented message; 0 if `message` is no message."""
    if isinstance(message, str):
        return FIN | (WSMsgType.BINARY if text == AS_BYTES else WSMsgType.TEXT)
    if isinstance(message, (bytes, bytearray, memoryview)):
        return FIN | (WSMsgType.TEXT if text == AS_TEXT else WSMsgType.BINARY)
    return 0


cdef object _bytes_like(message):
    """The engine takes contiguous buffers only: copy a view that is not."""
    if isinstance(message, memoryview) and not message.c_contiguous:
        return message.tobytes()
    return message


def enter_methods(cls):
    """Enter recv(), recv_many() and send() into a subclass: CPython 3.11 to 3.13 take their short cut for methods of C
    only if the object is of the very class whose method it is."""
    if not (isinstance(cls, type) and issubclass(cls, (Connection, Successive))):
        raise TypeError(f"{cls!r} is not a subclass of Connection or Successive")
    for base in (Connection, Successive):
        for name in ("recv", "recv_many", "send"):
            if issubclass(cls, base) and name in base.__dict__:
                setattr(cls, name, PyDescr_NewMethod(
                    <PyTypeObject *>cls, (<PyMethodDescrObject *>base.__dict__[name]).d_method))


install(&_receives, Receive, <wsf_step>_receive_step, <wsf_recycle>_recycle_receive)
install(&_sends, Send, <wsf_step>_send_step, <wsf_recycle>_recycle_send)

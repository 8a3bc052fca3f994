"""recv() and send() of the awaitable connection: what happens for every message.

Both return an object that is awaited once. If the result is there already (a message in the queue, room to write), the
await ends in the first step: no future, no task, no turn of the event loop. Such an object, taken from a freelist, is
several times cheaper than a coroutine. It has a coroutine's methods, so create_task(), wait_for() and gather() take it.

An await that never waits would starve other tasks, so time is looked at now and then: a connection that went on for
SLICE without a turn of the event loop yields once.

Nothing is taken from the queue before the await ends, so a cancelled recv() loses no message. What a cancelled send()
had begun leaves whole.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t

from wsfast._engine cimport WSTransport
from wsfast._frame cimport WSMsgType
from wsfast._writer cimport FIN, State
from wsfast.asyncio._inbox cimport AS_BYTES, AS_TEXT, BY_TYPE, Inbox

from wsfast.exceptions import ConcurrencyError, ConnectionClosedOK


cdef extern from "Python.h":
    int PyErr_WarnFormat(object category, Py_ssize_t stack_level, const char *text, ...) except -1

    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method
    object PyDescr_NewMethod(PyTypeObject *cls, PyMethodDef *method)


cdef extern from *:
    """
    #include <time.h>

    static inline double wsf_seconds(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    }

    /*
     * The slots through which an await drives an object. A step returns 1 with a result, 0 with something to yield,
     * -1 with an exception. am_send passes the result on as it is. tp_iternext, which the interpreter prefers from
     * CPython 3.12 on, must wrap it in a StopIteration unless it is None.
     */
    typedef int (*wsf_step)(PyObject *self, PyObject **result);

    /*
     * From CPython 3.12 on a StopIteration is made for every result, which costs more than all the rest of a recv().
     * The interpreter drops it at once, so one serves again and again, as long as nobody keeps it. It refers to the
     * last result until the next one, hence to short ones only. Returns 0 if it cannot be used.
     */
    #if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)
    static int wsf_stop_again(PyObject *result)
    {
        static PyObject *stop;
        PyStopIterationObject *fields = (PyStopIterationObject *)stop;
        if ((PyBytes_CheckExact(result) ? PyBytes_GET_SIZE(result)
             : PyUnicode_CheckExact(result) ? PyUnicode_GET_LENGTH(result) : PY_SSIZE_T_MAX) > 4096)
            return 0;
        if (stop == NULL || Py_REFCNT(stop) != 1 || fields->traceback != NULL || fields->context != NULL) {
            Py_XSETREF(stop, PyObject_CallNoArgs(PyExc_StopIteration));
            if (stop == NULL) {
                PyErr_Clear();
                return 0;
            }
            fields = (PyStopIterationObject *)stop;
        }
        Py_XSETREF(fields->value, Py_NewRef(result));
        PyErr_SetRaisedException(Py_NewRef(stop));
        return 1;
    }
    #else
    #define wsf_stop_again(result) 0
    #endif

    static PyObject *wsf_step_next(wsf_step step, PyObject *self)
    {
        PyObject *result = NULL;
        int state = step(self, &result);
        if (state == 0)
            return result;
        if (state == 1) {
            if (PyTuple_Check(result)) { /* PyErr_SetObject() would take its items for the arguments */
                PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
                if (stop != NULL)
                    PyErr_SetObject(PyExc_StopIteration, stop);
                Py_XDECREF(stop);
            } else if (result != Py_None && !wsf_stop_again(result)) {
                PyErr_SetObject(PyExc_StopIteration, result);
            }
            Py_DECREF(result);
        }
        return NULL;
    }

    static PySendResult wsf_step_send(wsf_step step, PyObject *self, PyObject **result)
    {
        int state = step(self, result);
        return state == 1 ? PYGEN_RETURN : state == 0 ? PYGEN_NEXT : PYGEN_ERROR;
    }

    static int wsf_drive(PyObject *coroutine, PyObject **result)
    {
        PySendResult state = PyIter_Send(coroutine, Py_None, result);
        return state == PYGEN_RETURN ? 1 : state == PYGEN_NEXT ? 0 : -1;
    }

    #define WSF_AWAITABLE(name)                                                                                    \\
        static wsf_step name##_step;                                                                               \\
        static PyObject *name##_iternext(PyObject *self) { return wsf_step_next(name##_step, self); }              \\
        static PySendResult name##_am_send(PyObject *self, PyObject *value, PyObject **result)                     \\
        {                                                                                                          \\
            (void)value;                                                                                           \\
            return wsf_step_send(name##_step, self, result);                                                       \\
        }                                                                                                          \\
        static void name##_install(PyTypeObject *type, wsf_step step)                                              \\
        {                                                                                                          \\
            name##_step = step;                                                                                    \\
            type->tp_iternext = name##_iternext;                                                                   \\
            type->tp_as_async->am_await = PyObject_SelfIter;                                                       \\
            type->tp_as_async->am_send = name##_am_send;                                                           \\
        }

    WSF_AWAITABLE(wsf_receive)
    WSF_AWAITABLE(wsf_send)
    """
    double wsf_seconds() noexcept
    ctypedef int (*wsf_step)(PyObject *self, PyObject **result)
    int wsf_drive(object coroutine, PyObject **result) except -1
    void wsf_receive_install(PyTypeObject *type, wsf_step step)
    void wsf_send_install(PyTypeObject *type, wsf_step step)


cdef enum:
    # How many awaits may end at once before the clock is looked at for the first time, and at most between two looks.
    FIRST_ALLOWANCE = 8
    LARGEST_ALLOWANCE = 64

# How long an event loop may be kept from other tasks, in seconds: a hundred of its turns.
cdef double SLICE = 250e-6


cdef enum Stage:
    FRESH
    YIELDED
    WAITING
    DELEGATED
    OVER


cdef class Connection:
    """The part of a connection that is the same for every message; :class:`wsfast.asyncio.client.ClientConnection` is
    the whole."""

    def __init__(self, WSTransport transport not None, max_queue, max_size):
        self._transport = transport
        self._inbox = Inbox(self, transport, *max_queue, *max_size)
        self._credit = FIRST_ALLOWANCE
        self._turned = self._loop_turned

    def recv(self, decode=None):
        """Receive the next message.

        :param decode: None gives ``str`` for text messages and ``bytes`` for binary ones, True always ``str``, False
            always ``bytes``
        :raises ConnectionClosed: the connection is closed, and no message is left
        :raises ConcurrencyError: another task is in :meth:`recv` or :meth:`recv_streaming`

        Cancelling it is safe: no message is lost. If a message should be text and is not UTF-8, the connection is
        closed with code 1007.
        """
        cdef Receive receive = Receive.__new__(Receive)
        receive._connection = self
        receive._decode = BY_TYPE if decode is None else AS_TEXT if decode else AS_BYTES
        return receive

    def send(self, message, *, text=None):
        """Send a message.

        :param message: ``str`` is sent as text, a bytes-like object as binary; an iterable or asynchronous iterable of
            either is sent as one message, each item as a fragment
        :param text: True sends as text, False as binary, whatever the type of `message`
        :raises ConnectionClosed: the connection is closed
        :raises TypeError: `message` is of another type

        Waits only while more than ``write_limit`` bytes are unsent, or a fragmented message of another task is being
        sent.
        """
        cdef Send send = Send.__new__(Send)
        send._connection = self
        send._message = message
        send._text = BY_TYPE if text is None else AS_TEXT if text else AS_BYTES
        return send

    def __aiter__(self):
        """Iterate over the messages until the connection is closed.

        The iteration ends after a normal closure; after any other one it raises :exc:`ConnectionClosedError`.
        """
        cdef Messages messages = Messages.__new__(Messages)
        messages._connection = self
        return messages

    # ---- for the methods of ClientConnection

    @property
    def listener(self):
        """What the engine delivers to."""
        return self._inbox

    def _receive_frame(self):
        """Receive the next frame of a message as (opcode, payload, fin)."""
        cdef Receive receive = self.recv()
        receive._frame = True
        return receive

    def _send_frame(self, message, bint text, bint first, bint fin):
        """Send one fragment; true if what follows must wait for the write buffer."""
        cdef int opcode = (WSMsgType.TEXT if text else WSMsgType.BINARY) if first else WSMsgType.CONTINUATION
        self._transport._check_thread("send")
        cdef int first_byte = self._transport._first_byte(opcode, fin, False, False, False)
        self._transport._send_object(<uint8_t>first_byte, _bytes_like(message))
        return self._transport._writing_paused

    def _send_some(self, messages, text):
        """Send messages out of an iterator, all in one write; true if there are more and they must wait."""
        cdef:
            WSTransport transport = self._transport
            int first_byte, kind = BY_TYPE if text is None else AS_TEXT if text else AS_BYTES
        transport._check_thread("send_many")
        transport._cork_depth += 1
        try:
            for message in messages:
                transport._require_open()
                first_byte = _first_byte(message, kind)
                if first_byte == 0:
                    raise TypeError(f"messages must be str or bytes-like, not {type(message).__name__}")
                transport._send_object(first_byte, _bytes_like(message))
                if transport._writing_paused:
                    return True
        finally:
            transport._uncork()
        return False

    def _read_on(self):
        self._inbox.read_on()

    def _read_no_further(self):
        self._inbox.read_no_further()

    @property
    def _state(self):
        return self._transport._state

    @property
    def _is_paused(self):
        return self._inbox.paused

    @property
    def _writing_paused(self):
        return self._transport._writing_paused

    @property
    def _sending_fragments(self):
        return self._fragmenting

    @_sending_fragments.setter
    def _sending_fragments(self, bint sending):
        self._fragmenting = sending

    @property
    def _receiving(self):
        return self._inbox.receiving

    @_receiving.setter
    def _receiving(self, bint receiving):
        self._inbox.receiving = receiving

    @property
    def _closes(self):
        """The CLOSE frames: received, sent, and whether the received one came first."""
        return (
            self._transport._close_received, self._transport._close_sent, bool(self._transport._received_then_sent))

    def _stamp_reads(self):
        """Note from now on when something was received: ``transport.last_received``."""
        self._transport._stamp_reads = True

    # ---- fairness

    cdef bint _must_yield(self) except -1:
        """An await that ended at once has used up the credit: look at the clock, or grant new credit."""
        cdef double now = wsf_seconds()
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._transport._loop.call_soon(self._turned)
            self._since = now
            self._allowance = 1
        elif now - self._since >= SLICE:
            self._credit = FIRST_ALLOWANCE
            return True
        elif self._allowance < LARGEST_ALLOWANCE:
            self._allowance *= 2
        self._credit = self._allowance
        return False

    def _loop_turned(self):
        self._turn_scheduled = False
        self._credit = FIRST_ALLOWANCE


@cython.final
@cython.freelist(64)
cdef class Receive:
    """recv() under way."""

    cdef:
        Connection _connection
        object _delegate            # a coroutine that does the rest
        int _decode
        Stage _stage
        bint _iterates
        bint _frame

    cdef int _finish(self, PyObject **result) except -1:
        cdef:
            Inbox inbox = self._connection._inbox
            object value
        inbox.receiving = inbox.streaming = False
        self._stage = Stage.OVER
        value = inbox.take_frame() if self._frame else inbox.take(self._decode)
        if value is None:
            self._stage = Stage.DELEGATED
            self._delegate = self._connection._text_is_invalid(inbox.invalid_text)
            inbox.invalid_text = None
            return wsf_drive(self._delegate, result)
        Py_INCREF(value)
        result[0] = <PyObject *>value
        return 1

    cdef int _yield(self, Stage stage, object value, PyObject **result) except -1:
        self._connection._inbox.receiving = True
        self._stage = stage
        Py_INCREF(value)
        result[0] = <PyObject *>value
        return 0

    cdef int _go_on(self, PyObject **result) except -1:
        """Any step but a first one that ends at once."""
        cdef Inbox inbox = self._connection._inbox
        if self._stage == Stage.DELEGATED:
            return wsf_drive(self._delegate, result)
        if self._stage == Stage.OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if self._stage == Stage.FRESH:
            self._stage = Stage.OVER
            if inbox.receiving:
                raise ConcurrencyError(
                    "cannot call recv while another coroutine is already running recv or recv_streaming")
            self._connection._transport._check_thread("recv")
            inbox.streaming = self._frame
        else:
            self._connection._credit = FIRST_ALLOWANCE
        if inbox.ready():
            return self._finish(result)
        if inbox.closed:
            self._stage = Stage.OVER
            inbox.receiving = inbox.streaming = False
            exc = self._connection._closed()
            if self._iterates and isinstance(exc, ConnectionClosedOK):
                raise StopAsyncIteration
            raise exc
        if inbox.paused:
            inbox.resume()
        return self._yield(Stage.WAITING, inbox.waiter.arm(), result)

    cdef int _abandon(self) except -1:
        if self._stage == Stage.YIELDED or self._stage == Stage.WAITING:
            self._connection._inbox.receiving = self._connection._inbox.streaming = False
        self._stage = Stage.OVER
        return 0

    # ---- what a coroutine has

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject *result = NULL
        return _sent(_receive_step(<PyObject *>self, &result), result)

    def throw(self, kind, value=None, traceback=None):
        if self._stage == Stage.DELEGATED:
            return self._delegate.throw(kind if value is None else value)
        if self._stage != Stage.FRESH:
            self._abandon()
        self._stage = Stage.OVER
        _raise(kind, value, traceback)

    def close(self):
        if self._stage == Stage.DELEGATED:
            self._delegate.close()
        elif self._stage != Stage.FRESH:
            self._abandon()
        self._stage = Stage.OVER

    def __dealloc__(self):
        if self._stage == Stage.FRESH:
            PyErr_WarnFormat(RuntimeWarning, 1, b"coroutine 'ClientConnection.recv' was never awaited")
        elif self._stage != Stage.OVER and self._connection is not None:
            self._abandon()


@cython.final
@cython.freelist(64)
cdef class Send:
    """send() under way."""

    cdef:
        Connection _connection
        object _message
        object _delegate
        int _text
        Stage _stage

    cdef int _go_on(self, PyObject **result) except -1:
        """Any step but a first one that ends at once."""
        if self._stage == Stage.DELEGATED:
            return wsf_drive(self._delegate, result)
        if self._stage == Stage.OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self._stage = Stage.OVER
        Py_INCREF(None)
        result[0] = <PyObject *>None
        return 1

    cdef int _delegate_to(self, coroutine, PyObject **result) except -1:
        self._stage = Stage.DELEGATED
        self._delegate = coroutine
        return wsf_drive(coroutine, result)

    # ---- what a coroutine has

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject *result = NULL
        return _sent(_send_step(<PyObject *>self, &result), result)

    def throw(self, kind, value=None, traceback=None):
        if self._stage == Stage.DELEGATED:
            return self._delegate.throw(kind if value is None else value)
        self._stage = Stage.OVER
        _raise(kind, value, traceback)

    def close(self):
        if self._stage == Stage.DELEGATED:
            self._delegate.close()
        self._stage = Stage.OVER

    def __dealloc__(self):
        if self._stage == Stage.FRESH:
            PyErr_WarnFormat(RuntimeWarning, 1, b"coroutine 'ClientConnection.send' was never awaited")


@cython.final
cdef class Messages:
    """``async for`` over a connection."""

    cdef Connection _connection

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef Receive receive = Receive.__new__(Receive)
        receive._connection = self._connection
        receive._decode = BY_TYPE
        receive._iterates = True
        return receive


cdef int _receive_step(PyObject *this, PyObject **result) except -1:
    cdef:
        Receive self = <Receive>this
        Connection connection = self._connection
        Inbox inbox = connection._inbox
    if self._stage != Stage.FRESH or inbox.receiving or inbox.messages == 0 or self._frame:
        return self._go_on(result)
    connection._credit -= 1
    if connection._credit <= 0 and connection._must_yield():
        return self._yield(Stage.YIELDED, None, result)
    return self._finish(result)


cdef int _send_step(PyObject *this, PyObject **result) except -1:
    cdef:
        Send self = <Send>this
        Connection connection = self._connection
        WSTransport transport = connection._transport
        object message
        int first_byte
    if self._stage != Stage.FRESH:
        return self._go_on(result)
    message, self._message = self._message, None
    self._stage = Stage.OVER
    first_byte = _first_byte(message, self._text)
    if first_byte == 0 or connection._fragmenting or transport._state != State.OPEN:
        return self._delegate_to(
            connection._send_slowly(message, None if self._text == BY_TYPE else bool(self._text)), result)
    transport._check_thread("send")
    transport._send_object(<uint8_t>first_byte, _bytes_like(message))
    if transport._writing_paused:
        return self._delegate_to(connection._drain(), result)
    connection._credit -= 1
    if connection._credit <= 0 and connection._must_yield():
        self._stage = Stage.YIELDED
        Py_INCREF(None)
        result[0] = <PyObject *>None
        return 0
    Py_INCREF(None)
    result[0] = <PyObject *>None
    return 1


cdef int _first_byte(message, int text) except -1:
    """Of an unfragmented message; 0 if `message` is no message."""
    if isinstance(message, str):
        return FIN | (WSMsgType.BINARY if text == AS_BYTES else WSMsgType.TEXT)
    if isinstance(message, (bytes, bytearray, memoryview)):
        return FIN | (WSMsgType.TEXT if text == AS_TEXT else WSMsgType.BINARY)
    return 0


cdef object _bytes_like(message):
    """The engine takes what is contiguous; of a view that is not, make a copy that is."""
    if isinstance(message, memoryview) and not message.c_contiguous:
        return message.tobytes()
    return message


cdef object _sent(int state, PyObject *result):
    """What send() of a coroutine returns or raises."""
    value = <object>result
    Py_DECREF(value)
    if state == 0:
        return value
    raise StopIteration(value)


cdef _raise(kind, value, traceback):
    if value is None:
        value = kind if isinstance(kind, BaseException) else kind()
    elif not isinstance(value, BaseException):
        value = kind(value)
    if traceback is not None:
        value = value.with_traceback(traceback)
    raise value


def enter_methods(cls):
    """Enter recv() and send() into a subclass: CPython 3.11 to 3.13 take their short cut for methods of C only if the
    object is of the very class whose method it is."""
    for name in ("recv", "send"):
        setattr(cls, name, PyDescr_NewMethod(
            <PyTypeObject *>cls, (<PyMethodDescrObject *>Connection.__dict__[name]).d_method))


wsf_receive_install(<PyTypeObject *>Receive, <wsf_step>_receive_step)
wsf_send_install(<PyTypeObject *>Send, <wsf_step>_send_step)

"""An object of C that is awaited once, and is a coroutine as far as Python can tell.

A subclass is a state machine with one function, its step. The interpreter calls it through the slots of the type: no
frame, no generator, no call of Python. An await that can end in its first step is several times cheaper than that of
a coroutine.

Such objects live from one line of a program to the next, so one of each type is kept when it is over, and serves again.
It keeps its header and its place in the garbage collector's lists, which is most of what making and freeing it costs.

An object that was begun and is given up does in its finalizer, __del__(), what it still owes its connection: the
collector finalizes all that it is going to clear before it clears anything, so the connection is whole then. The
finalizer leaves the object OVER. In that stage it refers to nothing and every step raises, so what the collector clears
afterwards is harmless. A finalized object is never kept: the collector may not be through with it.
"""

from cpython.ref cimport Py_DECREF


cdef extern from "Python.h":
    int PyErr_WarnFormat(object category, Py_ssize_t stack_level, const char *text, ...) except -1


cdef extern from *:
    """
    /*
     * From CPython 3.12 to 3.14 each result makes a StopIteration, which costs more than all the rest of a recv().
     * The interpreter drops it at once, so one serves again and again, as long as nobody keeps it. It keeps the
     * last result alive until the next one, so it is used for small results only. Returns 0 if it cannot be used.
     */
    #if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED)
    static int wsf_stop_again(PyObject *result)
    {
        static PyObject *stop;
        PyStopIterationObject *fields = (PyStopIterationObject *)stop;
        if ((PyBytes_CheckExact(result) ? PyBytes_GET_SIZE(result)
             : PyUnicode_CheckExact(result) ? PyUnicode_GET_LENGTH(result) : PY_SSIZE_T_MAX) > 4096)
            return 0;
        if (stop == NULL || Py_REFCNT(stop) != 1 || fields->traceback != NULL || fields->context != NULL) {
            Py_XSETREF(stop, PyObject_CallOneArg(PyExc_StopIteration, result));
            if (stop == NULL) {
                PyErr_Clear();
                return 0;
            }
            fields = (PyStopIterationObject *)stop;
        } else {
            if (Py_REFCNT(fields->args) == 1 && PyTuple_GET_SIZE(fields->args) == 1) {
                PyObject *last = PyTuple_GET_ITEM(fields->args, 0);
                PyTuple_SET_ITEM(fields->args, 0, Py_NewRef(result));
                Py_DECREF(last);
            } else {
                PyObject *args = PyTuple_Pack(1, result);
                if (args == NULL) {
                    PyErr_Clear();
                    return 0;
                }
                Py_SETREF(fields->args, args);
            }
            Py_SETREF(fields->value, Py_NewRef(result));
        }
        PyErr_SetRaisedException(Py_NewRef(stop));
        return 1;
    }
    #else
    #define wsf_stop_again(result) 0
    #endif

    /*
     * The interpreter drives an await by am_send, which passes the result on as it is; CPython 3.12 to 3.14 do so by
     * tp_iternext, which must wrap it in a StopIteration unless it is None.
     */
    static PyObject *wsf_iternext(PyObject *self)
    {
        PyObject *result = NULL;
        PySendResult state = Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result);
        if (state == PYGEN_NEXT)
            return result;
        if (state == PYGEN_RETURN) {
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

    static void wsf_dealloc(PyObject *self)
    {
        wsf_awaitable *kind = (wsf_awaitable *)Py_TYPE(self)->tp_as_async;
    #ifndef Py_GIL_DISABLED
        if (kind->spare == NULL) {
            Py_SET_REFCNT(self, 1); /* the one that `spare` will be */
            /* What recycle() lets go of may run anything: leave another spare object, or find and keep this one. */
            if (kind->recycle(self)) {
                if (kind->spare == NULL)
                    kind->spare = self;
                else
                    Py_DECREF(self);
                return;
            }
            Py_SET_REFCNT(self, 0);
        }
    #endif
        /* Cython's destructor finalizes only if it is the type's own. */
        if (PyObject_CallFinalizerFromDealloc(self) == 0)
            kind->free(self);
    }

    static void wsf_awaitable_install(wsf_awaitable *kind, PyObject *cls, void *step, void *recycle)
    {
        PyTypeObject *type = (PyTypeObject *)cls;
        kind->slots.am_await = PyObject_SelfIter;
        kind->slots.am_send = (sendfunc)step;
        kind->type = type;
        kind->free = type->tp_dealloc;
        kind->recycle = (int (*)(PyObject *))recycle;
        type->tp_as_async = &kind->slots;
        type->tp_iternext = wsf_iternext;
        type->tp_dealloc = wsf_dealloc;
        PyType_Modified(type);
    }

    static int wsf_has_step(PyObject *self)
    {
        return Py_TYPE(self)->tp_as_async != NULL && Py_TYPE(self)->tp_as_async->am_send != NULL;
    }
    """
    bint wsf_has_step(object self)
    void wsf_awaitable_install(wsf_awaitable *kind, object cls, void *step, void *recycle)
    int PyIter_Send(object coroutine, object value, PyObject **result) except -1


cdef class Awaitable:
    """The methods of a coroutine, for a step that does the work."""

    cdef int _delegate_to(self, coroutine, PyObject **result) except -1:
        """Let a coroutine do the rest."""
        self._stage = Stage.DELEGATED
        self._delegate = coroutine
        return drive(coroutine, result)

    cdef int _abandon(self) except -1:
        """It was begun, is not over, and will not go on."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject *pointer = NULL
        if not wsf_has_step(self):
            raise TypeError(f"{type(self).__name__} has no step of its own")
        cdef int state = drive(self, &pointer)
        result = <object>pointer
        Py_DECREF(result)
        if state == WSF_YIELDED:
            return result
        raise StopIteration(result)

    def throw(self, kind, value=None, traceback=None):
        exc = value if isinstance(value, BaseException) else _instance(kind, value)
        if traceback is not None:
            exc = exc.with_traceback(traceback)
        if self._stage == Stage.DELEGATED:
            return self._delegate.throw(exc)
        self._end()
        raise exc

    def close(self):
        if self._stage == Stage.DELEGATED:
            self._delegate.close()
        self._end()

    cdef int _end(self) except -1:
        if self._stage == Stage.YIELDED or self._stage == Stage.WAITING:
            self._abandon()
        self._stage = Stage.OVER
        self._delegate = None
        return 0


cdef object _instance(kind, value):
    """The exception that throw() of a generator makes of its first two arguments."""
    if isinstance(kind, BaseException):
        return kind
    return kind() if value is None else kind(value)


cdef int drive(object coroutine, PyObject **result) except -1:
    return PyIter_Send(coroutine, None, result)


cdef int warn_never_awaited(const char *name) except -1:
    return PyErr_WarnFormat(RuntimeWarning, 1, b"coroutine '%s' was never awaited", name)


cdef void install(wsf_awaitable *kind, cls, wsf_step step, wsf_recycle recycle):
    """Make a final subclass of Awaitable step by step()."""
    wsf_awaitable_install(kind, cls, <void *>step, <void *>recycle)

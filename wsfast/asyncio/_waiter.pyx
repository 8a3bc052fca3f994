"""The waiter of an awaitable connection: how a task sleeps in recv(), and how it goes on when a message is there."""

import asyncio

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from wsfast._engine.python cimport WSF_HAS_GIL


cdef extern from "Python.h":
    int PyContext_Enter(object context)
    int PyContext_Exit(object context)
    bint PyCFunction_CheckExact(object callback)
    void PyErr_Clear()
    PyTypeObject *Py_TYPE(object o)
    PyObject *type_attribute "_PyType_Lookup"(PyTypeObject *cls, object name)


cdef object _current_task = asyncio.current_task
cdef str _nest_patched = "_nest_patched"


class _NoLoop:
    def get_debug(self):
        return False


# A C task asks the future that wakes it for its result. Of a future of its own kind it reads that; on any other one it
# calls a method whose name it makes of a C string, each time, which costs more than the rest of wake(). Without the GIL
# a future of all threads would cost more: each of them would wait for its lock.
cdef object _done = asyncio.Future(loop=_NoLoop())
_done.set_result(None)


@cython.final
cdef class Waiter:
    """A waiting recv() yields this to its task: a future as far as the task can tell, but used again and again.

    A future wakes its task by way of the event loop. This one can run the task at once, which is right whenever no
    other task is running: when the event loop has called the transport to read.
    """

    def __cinit__(self, loop=None):
        self._loop = loop

    cdef object arm(self):
        self._asyncio_future_blocking = True
        self._outcome = Outcome.ARMED
        return self

    cdef int wake(self, bint at_once) except -1:
        """Let the task go on: in this very call if `at_once` and possible, else in the loop's next iteration."""
        if self._outcome != Outcome.ARMED:
            return 0
        self._outcome = Outcome.WOKEN
        if self._callback is None:  # the task that was given this object has not asked to be told
            return 0
        callback, self._callback = self._callback, None
        context, self._context = self._context, None
        if not at_once or context is None or _current_task(self._loop) is not None or _is_nested(self._loop):
            self._loop.call_soon(callback, self, context=context)
            return 0
        if PyContext_Enter(context) < 0:
            PyErr_Clear()
            self._loop.call_soon(callback, self, context=context)
            return 0
        try:
            callback(_done if WSF_HAS_GIL and PyCFunction_CheckExact(callback) else self)
        finally:
            PyContext_Exit(context)
        return 0

    def time_is_up(self):
        """For a timer of the event loop."""
        self.is_late = True
        self.wake(True)

    # ---- what asyncio.Task calls. It takes `_loop` from a future without get_loop(), which saves a call.

    def add_done_callback(self, callback, *, context=None):
        if self._outcome == Outcome.ARMED:
            self._callback = callback
            self._context = context
        else:
            self._loop.call_soon(callback, self, context=context)

    def remove_done_callback(self, callback):
        if self._callback is None or self._callback != callback:
            return 0
        self._callback = self._context = None
        return 1

    def cancel(self, msg=None):
        if self._outcome != Outcome.ARMED:
            return False
        self._outcome = Outcome.CANCELLED
        self._message = msg
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
            self._callback = self._context = None
        return True

    def cancelled(self):
        return self._outcome == Outcome.CANCELLED

    def done(self):
        return self._outcome != Outcome.ARMED

    def result(self):
        if self._outcome == Outcome.CANCELLED:
            message, self._message = self._message, None
            raise asyncio.CancelledError() if message is None else asyncio.CancelledError(message)
        if self._outcome == Outcome.ARMED:
            raise asyncio.InvalidStateError("Result is not set.")

    def exception(self):
        self.result()


cdef inline bint _is_nested(loop) except -1:
    """nest_asyncio lets a task run the loop again. In there nothing could be read if the task had been run by the
    reader's callback, because a callback cannot be run inside itself.

    The reference is borrowed, and without the GIL the attribute may be gone already: it is compared with NULL only."""
    return type_attribute(Py_TYPE(loop), _nest_patched) != NULL

"""The protocol of await for objects of C: see _awaitable.pyx."""

from cpython.object cimport PyObject, PyTypeObject


cdef extern from *:
    """
    typedef struct {
        PyAsyncMethods slots; /* first: tp_as_async of the type points to it */
        PyTypeObject *type;
        PyObject *spare;
        destructor free;
        int (*recycle)(PyObject *self);
    } wsf_awaitable;

    /*
     * A new object, or the spare one: its fields are what recycle() left. Whoever lists the objects of the garbage
     * collector finds the spare one too; if it was kept, it is left to its finder.
     */
    static inline PyObject *wsf_awaitable_new(wsf_awaitable *kind)
    {
    #ifndef Py_GIL_DISABLED /* else there is no spare one, which all threads would share */
        PyObject *object = kind->spare;
        kind->spare = NULL;
        if (object != NULL && Py_REFCNT(object) == 1)
            return object;
        Py_XDECREF(object);
    #endif
        return PyObject_CallNoArgs((PyObject *)kind->type);
    }

    /* What a step returns in Cython's terms; PYGEN_ERROR is -1. */
    #define WSF_RETURNED PYGEN_RETURN
    #define WSF_YIELDED PYGEN_NEXT
    """
    ctypedef struct wsf_awaitable:
        pass
    object wsf_awaitable_new(wsf_awaitable *kind)
    # The outcome of a step; -1 stands for an exception.
    int WSF_RETURNED
    int WSF_YIELDED


# Go on until the next yield or the end. `value` is sent in: None, and never looked at.
ctypedef int (*wsf_step)(Awaitable self, PyObject *value, PyObject **result) except -1
# The object is no longer referred to: true if it may serve again, and refers to nothing then.
ctypedef bint (*wsf_recycle)(Awaitable self) noexcept


cdef enum Stage:
    # The first is what an object is that nobody has begun: harmless.
    OVER
    FRESH
    YIELDED
    WAITING
    DELEGATED


cdef class Awaitable:
    cdef:
        object _delegate            # a coroutine that does the rest
        Stage _stage
        bint _finalized             # by __del__(): the collector may not be through with it

    cdef int _delegate_to(self, coroutine, PyObject **result) except -1
    cdef int _abandon(self) except -1
    cdef int _end(self) except -1


cdef int drive(object coroutine, PyObject **result) except -1
cdef void install(wsf_awaitable *kind, cls, wsf_step step, wsf_recycle recycle)
cdef int warn_never_awaited(const char *name) except -1

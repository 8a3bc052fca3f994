"""Declarations of CPython's functions that Cython's own lack."""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint64_t


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object s, Py_ssize_t *size) except NULL
    unsigned long PyThread_get_thread_ident()

    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method
    object PyDescr_NewMethod(PyTypeObject *cls, PyMethodDef *method)
    void PyType_Modified(PyTypeObject *cls)


cdef extern from *:
    """
    /* A number of the callback that the event loop is running. Every callback runs in a context of its own, and
     * entering or leaving a context changes this count, so equal numbers mean the same callback. Never 0. */
    static inline uint64_t wsf_callback(void)
    {
        return PyThreadState_Get()->context_ver + 1;
    }
    """
    uint64_t wsf_callback() noexcept


cdef extern from *:
    """
    /* Does nobody else refer to the object? Without the GIL this is PyUnstable_Object_IsUniquelyReferenced() of CPython
     * 3.14, but with an acquire load: if another thread has just let go of the object, the caller may overwrite what
     * that thread has read. */
    static inline int wsf_is_unique(PyObject *o)
    {
    #ifdef Py_GIL_DISABLED
        return _Py_IsOwnedByCurrentThread(o) && _Py_atomic_load_uint32_relaxed(&o->ob_ref_local) == 1
            && _Py_atomic_load_ssize_acquire(&o->ob_ref_shared) == 0;
    #else
        return Py_REFCNT(o) == 1;
    #endif
    }
    """
    bint wsf_is_unique(PyObject *o) noexcept


cdef extern from *:
    """
    /* Sets a flag that only one thread may set at a time, and returns what it was. */
    static inline int wsf_take_flag(int *flag)
    {
    #ifdef Py_GIL_DISABLED
        return __atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE);
    #else
        int was = *flag;
        *flag = 1;
        return was;
    #endif
    }

    static inline void wsf_give_flag(int *flag)
    {
    #ifdef Py_GIL_DISABLED
        __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    #else
        *flag = 0;
    #endif
    }

    #ifdef Py_GIL_DISABLED
    #define WSF_HAS_GIL 0
    #else
    #define WSF_HAS_GIL 1
    #endif
    """
    bint wsf_take_flag(bint *flag) noexcept
    void wsf_give_flag(bint *flag) noexcept
    bint WSF_HAS_GIL

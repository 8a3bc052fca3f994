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
    /* Does nobody else refer to the object? Without the GIL other threads count apart. */
    static inline int wsf_is_unique(PyObject *o)
    {
    #ifdef Py_GIL_DISABLED
        return PyUnstable_Object_IsUniquelyReferenced(o); /* from CPython 3.14 on */
    #else
        return Py_REFCNT(o) == 1;
    #endif
    }
    """
    bint wsf_is_unique(PyObject *o) noexcept

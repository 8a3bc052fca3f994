"""Declarations of CPython's functions that Cython's own lack."""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint64_t


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *o)
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

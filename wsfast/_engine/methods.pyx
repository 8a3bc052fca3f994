"""Which methods a class has, and how the interpreter calls them faster."""

from cpython.object cimport PyTypeObject

from wsfast._engine.python cimport PyDescr_NewMethod, PyMethodDescrObject, PyType_Modified


cdef int enter_method(cls, str name) except -1:
    """Enter an inherited method into the class itself: CPython 3.11 to 3.13 take their short cut for methods of C only
    if the object is of the very class that defines them; for send() it saves a fifth of the call."""
    cdef object inherited = getattr(cls, name)
    (<dict>(<PyTypeObject *>cls).tp_dict)[name] = PyDescr_NewMethod(
        <PyTypeObject *>cls, (<PyMethodDescrObject *>inherited).d_method)
    PyType_Modified(<PyTypeObject *>cls)
    return 0


cdef object python_override(object listener, str name):
    if name in getattr(listener, "__dict__", ()):
        return getattr(listener, name)
    for cls in type(listener).__mro__:
        if name in cls.__dict__:
            # Py_TPFLAGS_HEAPTYPE: a class made by a class statement of Python, not an extension type.
            return getattr(listener, name) if cls.__flags__ & (1 << 9) else None
    return None

"""The classes of a program: which methods they override, and how their objects are copied and pickled."""

import copyreg

from cpython.object cimport PyTypeObject

from wsfast._engine.python cimport PyDescr_NewMethod, PyMethodDescrObject, PyType_Modified


cdef enum:
    # Py_TPFLAGS_HEAPTYPE: a class statement of Python made the class; it is not an extension type.
    HEAP_TYPE = 1 << 9


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
            return getattr(listener, name) if cls.__flags__ & HEAP_TYPE else None
    return None


cdef tuple reduce_listener(object listener, type base):
    """The result of ``__reduce__`` for a listener whose class derives from `base`; `base` itself has no state.

    A TypeError says that a class between them is an extension type, which may have state in C.
    """
    for cls in type(listener).__mro__:
        if cls is base:
            break
        if not cls.__flags__ & HEAP_TYPE:
            raise TypeError(f"cannot pickle '{type(listener).__name__}' object")
    return copyreg.__newobj__, (type(listener),), _state_of(listener)


cdef object _state_of(listener):
    """The result of ``object.__getstate__()``, which exists from CPython 3.11 on."""
    getstate = getattr(listener, "__getstate__", None)
    if getstate is not None:
        return getstate()
    state = getattr(listener, "__dict__", None)
    slots = {name: getattr(listener, name) for name in copyreg._slotnames(type(listener)) if hasattr(listener, name)}
    return (state, slots) if slots else state

"""A frame in the queue of an awaitable connection, and what can be made of it."""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t

from wsfast._engine.core cimport wsf_monotonic_ns
from wsfast._engine.frames.frame cimport WSMsgType, view_of
from wsfast._engine.frames.memory cimport ReadBuffer
from wsfast._engine.messages cimport is_text


# `owner` keeps `data` valid: the read buffer it lies in, or a bytes object that is just this payload. Both are NULL for
# fragments that were put together, in Inbox._fragments.
cdef struct Slot:
    PyObject *owner
    PyObject *extra                 # if it ends a message: the WSMessageInfo, or what it was `shown` as; or NULL
    const char *data
    Py_ssize_t size
    uint8_t opcode
    uint8_t fin
    uint8_t settled                 # in no read buffer, and if it is text, checked; or KEYED
    uint8_t shown                   # `extra` is the str or bytes that the whole message was shown as
    uint32_t stamp                  # when it was settled, if there is a Policy: see stamp()


cdef enum:
    # Bytes that a queued frame costs besides its payload: a slot of a ring that may be half empty, and a bytes object.
    FRAME_COST = 128
    # `settled` of a message of which the key is known already.
    KEYED = 2


cdef inline uint32_t stamp() noexcept:
    """The time in units of 65.5 microseconds. Differences are right for three days, and need no more room in a Slot."""
    return <uint32_t>(wsf_monotonic_ns() >> 16)


cdef inline bint is_valid(Slot *slot) noexcept:
    """False if a whole message is to be text, and is not UTF-8."""
    if slot.settled or slot.opcode != WSMsgType.TEXT or not slot.fin:
        return True
    return is_text(slot.data, slot.size)


cdef inline object undecoded(Slot *slot):
    """The payload of a message or frame; None if that is text and is not UTF-8."""
    if not is_valid(slot):
        return None
    if PyBytes_CheckExact(<object>slot.owner):
        return <object>slot.owner
    return PyBytes_FromStringAndSize(slot.data, slot.size)


cdef inline object viewed(Slot *slot):
    """As undecoded(), as a memoryview; a payload in a read buffer is not copied."""
    if not PyBytes_CheckExact(<object>slot.owner):
        return view_of(<ReadBuffer>slot.owner, slot.data, slot.size) if is_valid(slot) else None
    payload = undecoded(slot)
    return None if payload is None else PyMemoryView_FromObject(payload)

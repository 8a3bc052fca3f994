"""The policies for messages that arrive faster than the program receives them: every `overflow` but "pause".

A policy acts after a read, once the task that waited in recv() has run. It drops only whole messages, and counts each
of them. It never touches the message that a receiver may be taking.

limit() runs no Python before it is done, so the queue cannot change between its checks and its actions. Conflation
needs the program's function, which may do anything: receive, poll, close, raise. So conflation has two steps. The first
step asks for the keys. It keeps no position but the number of the first message, which does not change. The second step
replaces messages, and runs no Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from wsfast._engine.frames.link cimport State
from wsfast.asyncio._inbox cimport Inbox, Policy
from wsfast.asyncio._slot cimport KEYED, Slot, stamp

from asyncio import CancelledError

from wsfast.exceptions import QueueOverflow
from wsfast._common.logging import guarded


# The unit of Slot.stamp, in seconds.
cdef double STAMP_UNIT = (1 << 16) / 1e9


def policy_for(overflow, logger):
    """The Policy that the options choose; None if reading pauses instead.

    :param overflow: an Overflow of options.py
    """
    if overflow.policy == "pause":
        return None
    if overflow.policy == "fail":
        return Failing()
    if overflow.policy == "conflate":
        return Conflating(overflow.key, logger)
    return Dropping(overflow.policy == "drop_newest")


def backlog(Inbox inbox not None):
    """The fields of Backlog: the waiting messages, and the counts of dropped ones. In another thread they may be a
    moment old, and the age that of a message that has gone."""
    cdef:
        uint32_t oldest = 0, now = stamp()
        Py_ssize_t i
    with cython.critical_section(inbox):  # so that its thread leaves the ring where it is
        for i in range(min(inbox.frames, inbox._capacity)):
            if inbox._at(i).settled:
                oldest = max(oldest, now - inbox._at(i).stamp)
    age = None if inbox._policy is None else oldest * STAMP_UNIT
    return inbox.frames, inbox.bytes, age, inbox.dropped, inbox.conflated, inbox.paused


cdef inline Py_ssize_t _spared(Inbox inbox) noexcept:
    """Messages at the head that the policy must not touch: 1 if the receiver may be taking the first, else 0."""
    return inbox.frames > 0 and inbox.receiving and not inbox.waiter.is_armed()


cdef bint _is_over(Inbox inbox, Py_ssize_t spared) noexcept:
    """True if more messages wait than may wait. A single message may wait whatever its size."""
    cdef:
        Py_ssize_t exempt = max(0, inbox._exempt_until - inbox._head)
        Py_ssize_t waiting = inbox.frames - max(spared, exempt)
    return waiting > inbox._high >= 0 or (waiting > 1 and exempt == 0 and inbox.bytes > inbox._high_bytes)


cdef int _go_on(Inbox inbox) except -1:
    """Deliver the rest of the read if it was held back, because the queue has room again."""
    if inbox.transport.held is None or inbox.transport.deferred or inbox.paused or inbox.closed or inbox._discarding:
        return 0
    if inbox.transport.state > State.CLOSING:
        return inbox._discard()
    inbox._pause()
    return inbox.resume()


@cython.final
cdef class Dropping(Policy):
    """overflow="drop_oldest" and "drop_newest"."""

    def __cinit__(self, bint newest):
        self._newest = newest

    cdef bint limit(self, Inbox inbox) except -1:
        cdef:
            Py_ssize_t before = inbox.dropped
            Py_ssize_t spared = _spared(inbox)
        while _is_over(inbox, spared):
            if self._newest:
                inbox._drop_from(inbox.frames - 1)
            else:
                _drop_first(inbox, spared)
            inbox.dropped += 1
        _go_on(inbox)
        if inbox.dropped > before:
            inbox.rise()
        return True


cdef int _drop_first(Inbox inbox, Py_ssize_t spared) except -1:
    """Forget the first message; if the first one is spared, the second."""
    inbox._release(inbox._at(spared))
    if spared:
        inbox._at(1)[0] = inbox._at(0)[0]
    inbox._head += 1
    inbox.frames -= 1
    return 0


@cython.final
cdef class Failing(Policy):
    """overflow="fail"."""

    cdef bint limit(self, Inbox inbox) except -1:
        if inbox.transport.state != State.OPEN or not _is_over(inbox, _spared(inbox)):
            return False
        exc = QueueOverflow(f"the receiver is too slow: {inbox.frames} messages wait for it")
        try:
            inbox.transport._fail(1011, "the receiver is too slow", exc)
        finally:
            inbox.rise()
        return True


@cython.final
cdef class Newest:
    """The newest queued message of a key."""


@cython.final
cdef class Conflating(Policy):
    """overflow="conflate"."""

    def __cinit__(self, key, logger):
        self._key = key
        self._logger = logger
        self._newest = {}

    cdef bint limit(self, Inbox inbox) except -1:
        if _is_over(inbox, _spared(inbox)):
            return False  # the newest message of a key is never dropped, so reading pauses
        _go_on(inbox)
        return True

    cdef int queued(self, Inbox inbox) except -1:
        """Keep only the newest message of each key. Messages before and behind one without a key count separately."""
        cdef:
            Py_ssize_t first
            list payloads, newest
        if self._is_conflating:
            return 0  # the program's function is reading: the outer call handles the new messages
        self._is_conflating = True
        try:
            while not inbox.closed:
                payloads = []
                newest = []
                first = self._gather(inbox, payloads)
                if not payloads:
                    return 0
                for payload in payloads:
                    newest.append(self._newest_of(payload))
                self._replace(inbox, first, newest)
                self._forget_taken(inbox)
        finally:
            self._is_conflating = False

    cdef Py_ssize_t _gather(self, Inbox inbox, list payloads) except -1:
        """Gather the messages whose keys are not known yet. Returns the number of the first of them."""
        cdef:
            Py_ssize_t spared = _spared(inbox)
            Py_ssize_t i = inbox.frames, first
        while i > spared and inbox._at(i - 1).settled != KEYED:
            i -= 1
        first = inbox._head + i
        while i < inbox.frames and PyBytes_CheckExact(<object>inbox._at(i).owner):
            payloads.append(<object>inbox._at(i).owner)
            i += 1
        return first

    cdef Newest _newest_of(self, bytes payload):
        """The Newest of the key of a message; None if the message has no key."""
        cdef Newest newest
        try:
            key = self._key(payload)
            if key is None:
                return None
            newest = self._newest.get(key)
            if newest is None:
                newest = self._newest[key] = Newest.__new__(Newest)
                newest.number = -1
            return newest
        except (Exception, CancelledError) as exc:  # raised by the program's function: no task was cancelled
            if not self._has_complained:
                self._has_complained = True
                text = "exception in conflate_key; further ones are not logged"
                guarded(self._logger.error, text, exc_info=exc)
            return None

    @cython.nonecheck(False)
    cdef int _replace(self, Inbox inbox, Py_ssize_t first, list newest) except -1:
        """Put each message in the place of the one that it makes obsolete. Since the keys were asked for, messages may
        have been taken, and others may have arrived."""
        cdef:
            Py_ssize_t least = inbox._head + _spared(inbox)
            Py_ssize_t end = inbox._head + inbox.frames
            Py_ssize_t known = min(first + PyList_GET_SIZE(newest), end)
            Py_ssize_t number = max(first, least), write = number
            PyObject *entry
            Slot *slot
            Slot *older
        while number < end:
            slot = inbox._at(number - inbox._head)
            if number < known:
                slot.settled = KEYED
                entry = PyList_GET_ITEM(newest, number - first)
                if <object>entry is None:
                    self._epoch += 1
                elif (<Newest>entry).epoch == self._epoch and least <= (<Newest>entry).number < write:
                    older = inbox._at((<Newest>entry).number - inbox._head)
                    inbox._release(older)
                    older[0] = slot[0]
                    inbox.conflated += 1
                    inbox.dropped += 1
                    number += 1
                    continue
                else:
                    (<Newest>entry).epoch = self._epoch
                    (<Newest>entry).number = write
            if write < number:
                inbox._at(write - inbox._head)[0] = slot[0]
            write += 1
            number += 1
        inbox.frames = write - inbox._head
        return 0

    cdef int _forget_taken(self, Inbox inbox) except -1:
        """Forget the keys of messages that have left the queue, once there are many such keys."""
        if len(self._newest) > 2 * inbox.frames + 64:
            known, self._newest = self._newest, {}
            try:
                self._newest = {
                    key: newest for key, newest in known.items() if (<Newest>newest).number >= inbox._head}
            except Exception:
                pass  # a key can no longer be hashed: the messages that wait are not replaced any more
        return 0

"""Shows each message of a connection to the functions of the program. This runs for every message, so it is compiled:
in Python the call alone would cost as much as a function of the program that makes a key.
"""

cimport cython

import asyncio


@cython.final
cdef class Keys:
    """The keys of the last messages of a line: at least `remember` of them, and at most twice as many."""

    cdef:
        Py_ssize_t _remember
        set _recent
        set _before
        readonly object last        # None before the first

    def __cinit__(self, Py_ssize_t remember):
        self._remember = remember
        self._recent = set()
        self._before = set()

    cpdef add(self, key):
        self._recent.add(key)  # first: it raises TypeError if the key cannot be hashed
        self.last = key
        if len(self._recent) >= self._remember:
            self._before, self._recent = self._recent, set()

    def __len__(self):
        return len(self._recent) + len(self._before)

    def __contains__(self, key):
        return key in self._recent or key in self._before


@cython.final
cdef class Inspector:
    """Shows each message to the functions of the program that :func:`wsfast.supervise` was given.

    :param line: gets the message, too, unless it `is_alone`: there is no other line, nor was there one
    :param is_awaited: the line waits for a message: an acknowledgement, an announcement, or a first one
    """

    cdef:
        object _line
        object _liveness
        object _parse
        object _answer
        object _is_reply
        object _topic_of
        object _key_of
        object _raised
        dict _topics
        set _heard
        Keys _keys
        bint _is_alone
        bint _is_awaited

    def __cinit__(self, line, shared, liveness, bint is_alone, bint is_awaited):
        self._line = line
        self._liveness = liveness
        self._parse = shared.settings.parse
        self._answer = shared.settings.answer
        self._is_reply = None if shared.settings.heartbeat is None else shared.settings.heartbeat.is_reply
        self._topic_of = shared.settings.topic
        self._key_of = shared.settings.key
        self._raised = shared.callbacks.raised
        self._topics = shared.subscriptions.by_key
        self._heard = liveness.heard
        self._keys = line.keys
        self._is_alone = is_alone
        self._is_awaited = is_awaited

    def inspect(self, payload):
        """Returns what the engine does with a message, see show_messages()."""
        cdef bint was_in = False
        message = payload
        key = None
        if isinstance(payload, int):  # the size of a fragment
            return False if self._is_alone else self._line.brought_fragment(payload)
        if not self._is_alone:
            was_in = self._line.is_in
        if self._parse is not None:
            try:
                message = self._parse(payload)
            except (Exception, asyncio.CancelledError) as exc:
                self._raised("parse", exc)
                return False if self._is_alone else self._line.brought(payload, None, was_in)
        if self._answer is not None:
            try:
                if self._liveness.answers(self._answer(message)):
                    return True
            except (Exception, asyncio.CancelledError) as exc:
                self._raised("answer", exc)
        if self._is_reply is not None:
            try:
                if self._is_reply(message):
                    self._liveness.replied()
                    return True
            except (Exception, asyncio.CancelledError) as exc:
                self._raised("is_reply", exc)
        if self._is_awaited:
            self._line.look_for_awaited(message)
        if self._topic_of is not None:
            try:
                topic = self._topic_of(message)
                if topic in self._topics:
                    self._heard.add(topic)
            except (Exception, asyncio.CancelledError) as exc:
                self._raised("topic", exc)
        if self._key_of is not None:
            try:
                key = self._key_of(message)
                if key is not None:
                    self._keys.add(key)
            except (Exception, asyncio.CancelledError) as exc:
                self._raised("key", exc)
                key = None
        return False if self._is_alone else self._line.brought(payload, key, was_in)

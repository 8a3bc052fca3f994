"""Two lines that bring the same messages for a while, merged so that none is lost, and none overtakes another.

A line is a connection. It brings its messages in the order in which the server published them. Two lines may lag
differently, and by any time. All promises here rest on this order, and on nothing else: an answer to CLOSE or PING says
only that the server's library has read it, not that the library has sent what it had queued before.

The program gets the messages of the old line, and those of the new line are held. The old line is closed once it has
brought a message that the new line has brought, too, after its subscriptions were in: what was published before that
message the old line has brought, and what was published behind it the new line brings. That is the proof.

| state   | event                                              | next                                   |
|---------|----------------------------------------------------|----------------------------------------|
| HOLDING | the proof comes, and the new line has taken over   | CLOSING: CLOSE is sent on the old line |
|         | the time is over, and the program has caught up,   | CLOSING                                |
|         | or receives nothing                                |                                        |
|         | the old line ends                                  | ENDED                                  |
|         | the new line ends                                  | OVER: what it brought is dropped       |
|         | the time is over, and what was to be held was too  | OVER: the new line is dropped          |
|         | much                                               |                                        |
| CLOSING | the old line ends                                  | ENDED                                  |
| ENDED   | (a gap is counted unless there is a proof)         | OVER: what is held is delivered        |

The proof is a key that both lines brought, the old one since the rollover began. Without ``key=`` it is three messages
in a row whose payloads both lines brought in that order, and each of them once: heartbeats and repeated prices prove
nothing.

The old line's server may be later to take a subscription than the new one's. Then messages that the new line alone
brings are delivered after some that were published later. With ``key=`` a gap is counted before them; without it,
nothing tells them from those that are delivered again.

With ``key=`` a message of the new line is dropped if the old line brought its key, before or later. Without it nothing
is dropped: the new line may begin with a snapshot, which is delivered after all that the old line brought. So the
updates behind it must follow, although the old line has brought them.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Hashable
from typing import Any

from wsfast.exceptions import QueueOverflow
from wsfast.supervisor._inspector import Keys
from wsfast.supervisor.line import Line
from wsfast.supervisor.shared import Shared

__all__ = ["Merger", "Phase"]

# At most so many bytes are held. At this limit the supervisor stops reading the new line until the old one has caught
# up. But until its subscriptions are in, the new line is read on: beyond half the limit the held messages are dropped,
# and only a proof lets the new line take over. The same happens if the rest of one read would make it twice the limit.
_MOST_HELD = 16 * 1024 * 1024

# The cost of a held message besides its payload. That of a listener that gets frames pins a part of a read buffer, too.
_COST, _FRAME_COST = 512, 8 * 1024

# So many messages in a row prove an overlap if there are no keys.
_RUN = 3


class Phase(enum.Enum):
    """The states of the table above."""

    HOLDING = enum.auto()
    CLOSING = enum.auto()
    ENDED = enum.auto()
    OVER = enum.auto()


class Merger:
    """Made before the new line is, because that may lag behind what the old line brings meanwhile."""

    def __init__(self, old: Line, shared: Shared) -> None:
        self._shared = shared
        self.old = old
        #: None until it is made.
        self.new: Line | None = None
        self.phase = Phase.HOLDING
        self.is_proved = self.has_taken_over = False
        self._is_expired = False
        self._has_keys = shared.settings.key is not None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._taken = old.taken
        self._dropped = old.dropped_by_policy
        # The hashes of payloads are the keys if the program gives none.
        self._old_keys = old.history
        self._old_log, self._new_log = _Log(shared.settings.remember), _Log(None)
        # The held messages by their numbers, each with its size and whether it has a key; and the numbers of a key.
        self._held: dict[int, tuple[list[Any], int, bool]] = {}
        self._numbers: dict[Hashable, list[int]] = {}
        self._bytes = 0
        self._lacks_held = False  # some of what was held has been dropped
        # From which number on the new line may bring what the old one does not, because that one's server was later to
        # take a subscription. None: no subscription was under way.
        self._ahead_from = None if old.outbox.is_in and not old.outbox.late else 0
        self._overtakes = False  # the old line has brought a message that was published after one of those
        self._count = 0  # of the messages that the new line brought
        self._is_in_from = 0  # the number of the first one since its subscriptions were in
        # The keys that prove an overlap: those of the old line since the rollover began (the new line may begin with a
        # snapshot that has an older one), and those of either line since its subscriptions were in.
        self._old_recent, self._new_recent = Keys(shared.settings.remember), Keys(shared.settings.remember)
        old.merge(self)

    def join(self, new: Line) -> bool:
        """The new line was made. False if the old one has ended meanwhile."""
        if self.phase is not Phase.HOLDING:
            return False
        self.new = new
        return True

    # ---- messages, as they arrive

    def brought(self, line: Line, payload: Any, key: Hashable, is_in: bool) -> bool | list[Any]:
        """A line has brought a message. Returns what to do with it, see show_messages().

        :param is_in: the subscriptions of the line were in before
        """
        if not self._has_keys:
            key = hash(bytes(payload) if isinstance(payload, memoryview) else payload)
        try:
            return self._place(line, payload, key, is_in)
        except (Exception, asyncio.CancelledError) as exc:  # of __eq__ or __hash__ of the program's keys
            self._shared.callbacks.raised("key", exc)
            return self._place(line, payload, None, is_in)

    def _place(self, line: Line, payload: Any, key: Hashable, is_in: bool) -> bool | list[Any]:
        if line is self.old:
            if key is not None:
                self._old_brought(key)
            return False
        number = self._count
        self._count += 1
        is_in = is_in and not self._lacks_any
        has_too_much = self._bytes > (_MOST_HELD * 2 if is_in else _MOST_HELD >> 1)
        if has_too_much or not is_in:
            self._begin_anew()
            if has_too_much:
                self._drop_before_in()
        elif key is not None and self._has_keys:
            self._new_recent.add(key)
        if key is not None:
            if self._has_keys and any(key in keys for keys in self._old_keys):
                self._shared.duplicates += 1
                if is_in and key in self._old_recent:
                    self._look_before(number)
                    self._prove()
                return True
            if not self._has_keys and is_in:
                self._new_log.add(key)
                self._look_for_run(key)
        return self._hold(number, key if self._has_keys else None, len(payload))

    def fragment(self, line: Line, size: int) -> bool | list[Any]:
        """A listener that gets frames gets a part of a message."""
        if line is self.old:
            return False
        self._count += 1
        return self._hold(self._count - 1, None, size)

    def _old_brought(self, key: Hashable) -> None:
        if not self._has_keys:
            self._old_log.add(key)
            self._look_for_run(key)
            return
        is_in = self.old.outbox.is_in
        if is_in:
            self._old_recent.add(key)
        numbers = self._numbers.pop(key, ())
        for number in numbers:
            self._drop(number)
        if numbers:
            self._look_before(numbers[0])
        if is_in and key in self._new_recent:
            self._prove()

    def _look_before(self, end: int) -> None:
        """The old line has brought the message of this number. What is held before it, and has a key, it never will."""
        if self._ahead_from is None or self._overtakes:
            return
        for number, (_, _, has_key) in self._held.items():
            if number >= end:
                return
            if has_key and number >= self._ahead_from:
                self._overtakes = True
                return

    def _hold(self, number: int, key: Hashable, size: int) -> list[Any]:
        assert self.new is not None
        held: list[Any] = []
        size += _FRAME_COST if self.new.gets_frames else _COST
        if key is not None:
            self._numbers.setdefault(key, []).append(number)
        self._held[number] = held, size, key is not None
        self._bytes += size
        if self._bytes > _MOST_HELD:
            self._loop.call_soon(self._hold_no_more)
        return held

    def _hold_no_more(self) -> None:
        new = self.new
        if new is None or self.phase is Phase.OVER or self._bytes <= _MOST_HELD:
            return
        if new.is_in or self.phase is not Phase.HOLDING:
            new.pause()
        else:
            new.fail(QueueOverflow("a message of too many bytes came before all subscriptions were in"))

    def _drop_before_in(self) -> None:
        """Drop what proves nothing. The old line must bring all of it. Else the new one is of no use: it may have begun
        with a snapshot."""
        if self.phase is Phase.HOLDING:
            for number in [number for number in self._held if number < self._is_in_from]:
                self._bytes -= self._held.pop(number)[1]
                self._lacks_held = True
            if self._is_in_from == self._count:
                self._numbers.clear()

    def _drop(self, number: int) -> None:
        _, size, _ = self._held.pop(number, (None, 0, False))
        self._bytes -= size
        self._shared.duplicates += size > 0
        if self.new is not None and self._bytes < _MOST_HELD >> 2:
            self.new.resume()

    @property
    def held(self) -> int:
        """The number of held messages."""
        return len(self._held)

    # ---- the proof

    def _prove(self) -> None:
        if not self.is_proved:
            self.is_proved = True
            self._loop.call_soon(self._close_old)  # not here, amid the delivery of a message

    def again(self) -> None:
        """A subscription was added: a proof must come anew."""
        self._old_recent = Keys(self._shared.settings.remember)
        if self.phase is Phase.HOLDING and self._ahead_from is None:
            self._ahead_from = self._count
        self._begin_anew()
        if self._bytes > _MOST_HELD >> 1 and self.new is not None:
            self._drop_before_in()
            self.new.resume()  # the acknowledgement is not read otherwise

    def _begin_anew(self) -> None:
        """Forget the messages of the new line: they prove nothing."""
        if self.phase is Phase.HOLDING:
            self.is_proved = False
            self._is_in_from = self._count
            self._new_log, self._new_recent = _Log(None), Keys(self._shared.settings.remember)

    @property
    def _lacks_any(self) -> bool:
        """A subscription is late on the new line, and in on the old one."""
        return self.new is not None and any(map(self.old.outbox.has_in, self.new.outbox.late))

    def _look_for_run(self, key: Hashable) -> None:
        """Look for the proof without keys: a run of messages that both lines brought, which ends with this payload."""
        old, new = self._old_log, self._new_log
        run = old.run_before(key)
        if self.is_proved or run is None or run != new.run_before(key):
            return
        if all(new.place(one) is not None and old.place(one) is not None for one in run):
            self._prove()

    def take_over(self) -> None:
        """The program's messages are sent on the new line from now on. Close the old one when the proof has come."""
        self.has_taken_over = True
        if self.phase is not Phase.HOLDING:
            return
        self._await_proof()
        if self.is_proved:
            self._close_old()

    def _await_proof(self) -> None:
        self._taken = self.old.taken
        self._timer = self._loop.call_later(self._shared.rollover.timeout, self._expire)

    def _expire(self) -> None:
        # The proof may lie behind messages that the program has yet to receive, unless it receives none at all.
        catches_up = self.old.is_behind and self.old.taken != self._taken
        if catches_up or (self.new is not None and not self.new.is_in):
            self._await_proof()
        elif self._lacks_held and self.new is not None:
            self.new.fail(self._overflow())
        else:
            self._is_expired = True
            self._close_old()

    def _overflow(self) -> QueueOverflow:
        return QueueOverflow(
            "the new connection sent too much before all subscriptions were in, and nothing proves that"
            " the old one brought them"
        )

    def _close_old(self) -> None:
        if self.phase is not Phase.HOLDING or not self.has_taken_over or self.new is None:
            return
        if self.is_proved and (not self.new.is_in or self._lacks_any):
            self._begin_anew()
        if self.is_proved or self._is_expired:
            self.phase = Phase.CLOSING
            self._stop_timer()
            self.old.close(timeout=self._shared.rollover.drain_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- the end

    def end_old(self) -> str | None:
        """The old line has ended. Returns why messages may have been lost, or None."""
        self._stop_timer()
        is_expired, self.phase = self._is_expired, Phase.ENDED
        if self.new is None:
            return "there was no other one yet"
        if self.old.dropped_by_policy != self._dropped:
            return "messages of it were dropped"
        if self._overtakes:
            return "a subscription came in on it later than on the new one"
        if self.is_proved:
            return None
        return "no message came on both connections" if is_expired else "it ended first"

    def release(self) -> None:
        """Deliver the held messages, and leave both lines to themselves."""
        new = self.new
        if self.phase is Phase.OVER:
            return  # it was withdrawn meanwhile
        if new is not None:
            new.resume()  # first: what is delivered may stop the reading again
            if self._lacks_held and not self.is_proved:
                self._held.clear()
                new.fail(self._overflow())
            while self._held:
                held = [entry[0] for entry, _, _ in self._held.values() if entry]
                self._held.clear()
                new.deliver(held)
        self._leave()
        if new is not None and self._has_keys and self.is_proved:  # after a gap no key of before counts
            new.succeed(self.old)

    def withdraw(self) -> None:
        """Drop the held messages: the old line goes on alone."""
        self._stop_timer()
        self._held.clear()
        self._leave()

    def _leave(self) -> None:
        self.phase = Phase.OVER
        self.old.merge(None)
        if self.new is not None:
            self.new.merge(None)
            self.new.resume()


class _Log:
    """The payloads that a line has brought, by their hashes, and which came before which.

    :param most: how many are remembered, at least; None: all
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._payloads: list[Hashable] = []
        self._places: dict[Hashable, int | None] = {}  # None: it came more than once

    def add(self, payload: Hashable) -> None:
        if self._most is not None and len(self._payloads) >= 2 * self._most:
            self._payloads = self._payloads[-self._most :]
            self._places = {}
            for place, one in enumerate(self._payloads):
                self._places[one] = None if one in self._places else place
        self._places[payload] = None if payload in self._places else len(self._payloads)
        self._payloads.append(payload)

    def place(self, payload: Hashable) -> int | None:
        """The position of the payload; None unless it came exactly once."""
        return self._places.get(payload)

    def run_before(self, payload: Hashable) -> list[Hashable] | None:
        """The last payloads up to this one; None if it came more than once, or there are too few."""
        place = self._places.get(payload)
        if place is None or place < _RUN - 1:
            return None
        return self._payloads[place - _RUN + 1 : place + 1]

"""The supervisor stands between connections and a bot: it keeps a feed going. See :func:`supervise`, docs/bots.md."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, overload

from wsfast._engine.transport import WSListener
from wsfast.listener import ListenerFactory
from wsfast.supervisor.backoff import full_jitter
from wsfast.supervisor.connects import ConnectLimit
from wsfast.supervisor.errors import (
    HeartbeatTimeout,
    SendExpired,
    SilenceTimeout,
    SubscriptionRejected,
    SubscriptionTimeout,
    SupervisorTimeout,
)
from wsfast.supervisor.heartbeat import Heartbeat
from wsfast.supervisor.rollover import Rollover
from wsfast.supervisor.sequences import Sequence, Sequenced, Sequencer
from wsfast.supervisor.settings import Settings
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.states import State, StateChange
from wsfast.supervisor.stats import RTT, SupervisorStats
from wsfast.supervisor.subscriptions import Rejected, Subscription, SubscriptionState
from wsfast.supervisor.supervisor import Supervisor
from wsfast.supervisor.targets import Decision, URLs
from wsfast.supervisor.window import Window

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wsfast.supervisor.arguments import FeedOptions, ListenersFeedOptions

__all__ = [
    "RTT",
    "ConnectLimit",
    "Decision",
    "Heartbeat",
    "HeartbeatTimeout",
    "Rejected",
    "Rollover",
    "SendExpired",
    "Sequence",
    "Sequenced",
    "Sequencer",
    "SilenceTimeout",
    "State",
    "StateChange",
    "Subscription",
    "SubscriptionRejected",
    "SubscriptionState",
    "SubscriptionTimeout",
    "Supervisor",
    "SupervisorStats",
    "SupervisorTimeout",
    "Window",
    "full_jitter",
    "supervise",
]


@overload
def supervise(url: URLs, listener_factory: None = None, **options: Unpack[FeedOptions]) -> Supervisor: ...
@overload
def supervise(
    url: URLs, listener_factory: ListenerFactory[WSListener], **options: Unpack[ListenersFeedOptions]
) -> Supervisor: ...
def supervise(
    url: URLs,
    listener_factory: ListenerFactory[WSListener] | None = None,
    **options: Any,
) -> Supervisor:
    """Keep a feed going: connect, subscribe, watch, roll over, and connect again.

    ::

        async with supervise("wss://...", window=Window(5, 1.0), max_silence=30) as feed:
            feed.subscribe('{"op": "subscribe", "channel": "book"}', ack=is_ack)
            async for message in feed:
                ...

    Without `listener_factory` the program receives messages by ``async for`` and :meth:`Supervisor.recv`, and `options`
    are those of :class:`wsfast.connect`. With it each connection gets a listener of its own, and `options` are those
    of :func:`wsfast.ws_connect`. Times are in seconds. :doc:`bots` explains all this by programs.

    Which connections

    :param url: one, a list, or a function or coroutine function that returns one for each attempt, perhaps with
        options: ``(url, {"additional_headers": ...})``
    :param listener_factory: as for :func:`wsfast.ws_connect`
    :param by_turns: True: each connection goes to the URL after that of the last one. False: it tries the first URL
        first, and the next ones as attempts fail
    :param classify: gets the error of an attempt or a connection, and returns a :class:`Decision`, or None for the
        usual one
    :param delays: makes the iterator of delays between attempts
    :param min_lifetime: the delays begin anew only after a connection that has lived for so long
    :param max_attempts: give up after so many failed attempts in a row
    :param max_downtime: give up after so long without a connection
    :param connects: a limit on attempts, which supervisors share
    :param rollover: when to replace a connection that works, and how

    Sending

    :param window: how many messages may be sent in how many seconds
    :param reply_id: gets a message, and returns the id of the subscription that it acknowledges, a :class:`Rejected`,
        or None
    :param answer: gets a message, and returns the answer if it is a ping of the server's in text, or None

    Is the feed alive?

    :param max_silence: replace a connection that has brought no data for so long
    :param silence_is_normal: called then; returns True while silence is expected
    :param topic: gets a message, and returns its key, for subscriptions with a `max_silence` of their own
    :param heartbeat: an application's own ping

    Messages and reports

    :param parse: gets a message, and returns what the other functions get
    :param key: gets a message, and returns its key, or None: duplicates are removed by it while two connections are
        open
    :param remember: how many keys are kept, at least
    :param on_state: gets each :class:`StateChange`
    :param on_subscription: gets a subscription, its :class:`SubscriptionState` and the number of the connection

    Functions that get a message get it as the program does: as :meth:`recv` returns it, or as the payload of
    ``on_ws_message``. With `parse`, they get what it makes of that: it is called at most once for a message. If a
    listener has only ``on_ws_frame``, they get the bytes of each frame that is a whole message.
    """
    own = {name: options.pop(name) for name in Settings.__dataclass_fields__ if name in options}
    return Supervisor(Shared(url, listener_factory, Settings(**own), options))


def _shown() -> inspect.Signature:
    """The signature of ``supervise`` with its own options in it."""
    signature = inspect.signature(supervise)
    *positional, others = signature.parameters.values()
    own = inspect.signature(Settings).parameters.values()
    return signature.replace(parameters=[*positional, *own, others])


supervise.__signature__ = _shown()  # type: ignore[attr-defined]

"""Options as type checkers see them, where a function takes them as ``**options``. Nothing imports this at run time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, TypedDict

from wsfast._opening.arguments import AwaitablesOptions, ListenersOptions
from wsfast.supervisor.connects import ConnectLimit
from wsfast.supervisor.heartbeat import Heartbeat
from wsfast.supervisor.rollover import Rollover
from wsfast.supervisor.states import StateChange
from wsfast.supervisor.subscriptions import Subscription, SubscriptionState
from wsfast.supervisor.targets import Decision
from wsfast.supervisor.window import Window


class OwnOptions(TypedDict, total=False):
    """The options in the signature of ``supervise``."""

    by_turns: bool
    classify: Callable[[BaseException], Decision | None] | None
    delays: Callable[[], Generator[float, None, None]]
    min_lifetime: float
    max_attempts: int | None
    max_downtime: float | None
    window: Window | tuple[int, float] | None
    max_silence: float | None
    silence_is_normal: Callable[[], object] | None
    topic: Callable[[Any], Hashable] | None
    heartbeat: Heartbeat | None
    rollover: Rollover | None
    parse: Callable[[Any], Any] | None
    key: Callable[[Any], Hashable] | None
    remember: int
    reply_id: Callable[[Any], Any] | None
    answer: Callable[[Any], str | bytes | None] | None
    connects: ConnectLimit | None
    on_state: Callable[[StateChange], object] | None
    on_subscription: Callable[[Subscription, SubscriptionState, int], object] | None


class SubscriptionOptions(TypedDict, total=False):
    """The options of ``Supervisor.subscribe``."""

    key: Hashable
    id: Hashable
    stage: int
    ack: Callable[[Any], object] | None
    ack_timeout: float
    retries: int
    max_silence: float | None


class FeedOptions(OwnOptions, AwaitablesOptions, total=False):
    """All options of ``supervise`` without a listener."""


class ListenersFeedOptions(OwnOptions, ListenersOptions, total=False):
    """All options of ``supervise`` with a listener."""

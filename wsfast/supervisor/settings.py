"""The supervisor's own options: their types, defaults and checks. :func:`wsfast.supervise` documents them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any

from wsfast._common.options import check_callables, check_types, count, seconds
from wsfast.supervisor.backoff import full_jitter
from wsfast.supervisor.connects import ConnectLimit
from wsfast.supervisor.heartbeat import Heartbeat
from wsfast.supervisor.rollover import Rollover
from wsfast.supervisor.states import StateChange
from wsfast.supervisor.subscriptions import Subscription, SubscriptionState
from wsfast.supervisor.targets import Decision
from wsfast.supervisor.window import Window

__all__ = ["Settings"]


@dataclass(kw_only=True)
class Settings:
    """:raises TypeError, ValueError: a value is invalid"""

    by_turns: bool = False
    classify: Callable[[BaseException], Decision | None] | None = None
    delays: Callable[[], Generator[float, None, None]] = full_jitter
    min_lifetime: float = 5.0
    max_attempts: int | None = None
    max_downtime: float | None = None
    window: Window | tuple[int, float] | None = None
    max_silence: float | None = None
    silence_is_normal: Callable[[], object] | None = None
    topic: Callable[[Any], Hashable] | None = None
    heartbeat: Heartbeat | None = None
    rollover: Rollover | None = None
    parse: Callable[[Any], Any] | None = None
    key: Callable[[Any], Hashable] | None = None
    remember: int = 10_000
    reply_id: Callable[[Any], Any] | None = None
    answer: Callable[[Any], str | bytes | None] | None = None
    connects: ConnectLimit | None = None
    on_state: Callable[[StateChange], object] | None = None
    on_subscription: Callable[[Subscription, SubscriptionState, int], object] | None = None

    def __post_init__(self) -> None:
        check_callables(
            classify=self.classify,
            delays=self.delays,
            silence_is_normal=self.silence_is_normal,
            topic=self.topic,
            parse=self.parse,
            key=self.key,
            reply_id=self.reply_id,
            answer=self.answer,
            on_state=self.on_state,
            on_subscription=self.on_subscription,
        )
        check_types(Heartbeat, heartbeat=self.heartbeat)
        check_types(Rollover, rollover=self.rollover)
        check_types(Window, tuple, window=self.window)
        check_types(ConnectLimit, connects=self.connects)
        self.min_lifetime = seconds("min_lifetime", self.min_lifetime, none=None) or 0.0
        self.max_attempts = count("max_attempts", self.max_attempts, least=1, none="for no limit")
        self.max_downtime = seconds("max_downtime", self.max_downtime, none="for no limit", zero=False)
        self.max_silence = seconds("max_silence", self.max_silence, none="for no limit", zero=False)
        self.remember = count("remember", self.remember, least=1) or 1

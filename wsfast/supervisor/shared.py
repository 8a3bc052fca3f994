"""The state that all connections of a supervisor share: the checked options, and all that outlives a connection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Hashable
from typing import Any

from wsfast._common.headers import kept
from wsfast._common.option_names import names_of, unexpected
from wsfast._common.options import as_logger, check_callables, check_types, count, seconds
from wsfast._engine.transport import WSListener
from wsfast._engine.tuning import Tuning
from wsfast._opening.net.addresses import TLS_ARGUMENTS
from wsfast._opening.network_options import Network
from wsfast.asyncio.client import connect
from wsfast.listener import ListenerFactory, check_arguments, ws_connect
from wsfast.supervisor.callbacks import Callbacks
from wsfast.supervisor.change import Change
from wsfast.supervisor.connects import ConnectLimit
from wsfast.supervisor.liveness import Heartbeat
from wsfast.supervisor.rollover import Rollover
from wsfast.supervisor.sending import ProgramMessages
from wsfast.supervisor.states import StateChange
from wsfast.supervisor.stats import RTT
from wsfast.supervisor.subscriptions import Reporter, Subscription, Subscriptions, SubscriptionState
from wsfast.supervisor.targets import Decision, Targets, URLs
from wsfast.supervisor.window import Window

__all__ = ["Shared"]


class Shared:
    """Made by :func:`wsfast.supervise`, before anything is connected: that call raises the error for a wrong value."""

    def __init__(
        self,
        url: URLs,
        listener_factory: ListenerFactory[WSListener] | None,
        *,
        by_turns: bool,
        classify: Callable[[BaseException], Decision | None] | None,
        delays: Callable[[], Generator[float, None, None]],
        min_lifetime: float,
        max_attempts: int | None,
        max_downtime: float | None,
        window: Window | tuple[int, float] | None,
        max_silence: float | None,
        silence_is_normal: Callable[[], object] | None,
        topic: Callable[[Any], Hashable] | None,
        heartbeat: Heartbeat | None,
        rollover: Rollover | None,
        parse: Callable[[Any], Any] | None,
        key: Callable[[Any], Hashable] | None,
        remember: int,
        reply_id: Callable[[Any], Any] | None,
        answer: Callable[[Any], str | bytes | None] | None,
        connects: ConnectLimit | None,
        on_state: Callable[[StateChange], object] | None,
        on_subscription: Callable[[Subscription, SubscriptionState, int], object] | None,
        options: dict[str, Any],
    ) -> None:
        check_callables(
            listener_factory=listener_factory,
            classify=classify,
            delays=delays,
            silence_is_normal=silence_is_normal,
            topic=topic,
            parse=parse,
            key=key,
            reply_id=reply_id,
            answer=answer,
            on_state=on_state,
            on_subscription=on_subscription,
        )
        check_types(Heartbeat, heartbeat=heartbeat)
        check_types(Rollover, rollover=rollover)
        check_types(Window, tuple, window=window)
        check_types(ConnectLimit, connects=connects)
        self.targets = Targets(url, by_turns)
        self.listener_factory = listener_factory
        self.classify = classify
        self.delays = delays
        self.min_lifetime = seconds("min_lifetime", min_lifetime, none=None) or 0.0
        self.max_attempts = count("max_attempts", max_attempts, least=1, none="for no limit")
        self.max_downtime = seconds("max_downtime", max_downtime, none="for no limit", zero=False)
        self.window = Window(*window) if isinstance(window, tuple) else window
        self.max_silence = seconds("max_silence", max_silence, none="for no limit", zero=False)
        self.silence_is_normal = silence_is_normal
        self.topic = topic
        self.heartbeat = heartbeat
        self.rollover = rollover or Rollover()
        self.parse = parse
        self.reply_id = reply_id
        self.answer = answer
        self.connects = connects
        self.on_state = on_state
        # Iterators are used up by the first attempt.
        self.options = {name: kept(value) for name, value in options.items()}
        #: Seconds. If the program gives no `open_timeout`, the default of both faces applies.
        self.open_timeout: float | None = options.get("open_timeout", 10)
        self.logger = as_logger("logger", options.get("logger", options.get("logger_name")))
        self.callbacks = Callbacks(self.logger)
        self.subscriptions = Subscriptions()
        self.reporter = Reporter(on_subscription, self.callbacks, self.logger)
        self.messages = ProgramMessages()
        self.rtt = RTT()
        self.changed = Change()
        self.key = key
        self.remember = count("remember", remember, least=1) or 1
        #: Messages that were dropped because another line had brought them.
        self.duplicates = 0
        self._check_options()

    @property
    def inspects(self) -> bool:
        """A function of the program gets every message of every connection."""
        is_reply = None if self.heartbeat is None else self.heartbeat.is_reply
        functions = self.answer, is_reply, self.topic, self.key
        return any(function is not None for function in functions)

    def _check_options(self) -> None:
        """Refuse options with which no attempt would succeed.

        :raises TypeError, ValueError: there is no such option, or it cannot have this value
        """
        connects = connect if self.listener_factory is None else ws_connect
        names = names_of(connects) - {"uri", "url", "ws_listener_factory"}
        for name in self.options:
            if name not in names:
                if name in names_of(ws_connect if self.listener_factory is None else connect):
                    side = "with" if self.listener_factory is None else "without"
                    raise TypeError(f"{name} is an option of supervise() {side} a listener")
                own = inspect.signature(type(self)).parameters.keys() - {"options"}
                raise unexpected("supervise", name, names | own, (Tuning, Network))
        urls = self.targets.urls
        if not urls:  # a function will return one
            has_tls = any(
                self.options.get(name) is not None for name in ("ssl", "ssl_context", *TLS_ARGUMENTS)
            )
            urls = ["wss://localhost/" if has_tls else "ws://localhost/"]
        for url in urls:
            if self.listener_factory is None:
                connect(url, **self.options)
            else:
                check_arguments(url, self.options)

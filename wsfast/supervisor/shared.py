"""The state that all connections of a supervisor share: the checked options, and all that outlives a connection."""

from __future__ import annotations

from typing import Any

from wsfast._common.headers import reusable
from wsfast._common.option_names import names_of, unexpected
from wsfast._common.options import as_logger, check_callables
from wsfast._engine.transport import WSListener
from wsfast._engine.tuning import Tuning
from wsfast._opening.net.addresses import TLS_ARGUMENTS
from wsfast._opening.network_options import Network
from wsfast.asyncio.client import connect
from wsfast.listener import ListenerFactory, check_arguments, ws_connect
from wsfast.supervisor.callbacks import Callbacks
from wsfast.supervisor.change import Change
from wsfast.supervisor.rollover import Rollover
from wsfast.supervisor.sending import ProgramMessages
from wsfast.supervisor.settings import Settings
from wsfast.supervisor.stats import RTT
from wsfast.supervisor.subscriptions import Reporter, Subscriptions
from wsfast.supervisor.targets import Targets, URLs
from wsfast.supervisor.window import Window

__all__ = ["Shared"]


class Shared:
    """Made by :func:`wsfast.supervise`, before anything is connected: that call raises the error for a wrong value."""

    def __init__(
        self,
        url: URLs,
        listener_factory: ListenerFactory[WSListener] | None,
        settings: Settings,
        options: dict[str, Any],
    ) -> None:
        check_callables(listener_factory=listener_factory)
        self.targets = Targets(url, settings.by_turns)
        self.listener_factory = listener_factory
        self.settings = settings
        self.rollover = settings.rollover or Rollover()
        window = settings.window
        self.window = Window(*window) if isinstance(window, tuple) else window
        # Iterators are used up by the first attempt.
        self.options = {name: reusable(value) for name, value in options.items()}
        #: Seconds. If the program gives no `open_timeout`, the default of both faces applies.
        self.open_timeout: float | None = options.get("open_timeout", 10)
        self.logger = as_logger("logger", options.get("logger", options.get("logger_name")))
        self.callbacks = Callbacks(self.logger)
        self.subscriptions = Subscriptions()
        self.reporter = Reporter(settings.on_subscription, self.callbacks, self.logger)
        self.messages = ProgramMessages()
        self.rtt = RTT()
        self.changed = Change()
        #: Messages that were dropped because another line had brought them.
        self.duplicates = 0
        self._check_options()

    @property
    def inspects(self) -> bool:
        """A function of the program gets every message of every connection."""
        settings, heartbeat = self.settings, self.settings.heartbeat
        is_reply = None if heartbeat is None else heartbeat.is_reply
        functions = settings.answer, is_reply, settings.topic, settings.key
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
                own = {"url", "listener_factory", *Settings.__dataclass_fields__}
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

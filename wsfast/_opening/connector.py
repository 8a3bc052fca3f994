"""The part of the awaitable and of the blocking `connect` that is the same: checked arguments, attempts, redirects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from wsfast._common.headers import AwaitedHeadersLike, PlainHeaders, reusable
from wsfast._common.option_names import Fixed, names_of
from wsfast._common.options import Limits, Pinging, Timeouts, as_logger, check_callables
from wsfast._common.websockets_exceptions import look_for_websockets
from wsfast._engine.tuning import Tuning
from wsfast._opening.http.handshake import ClientHandshake
from wsfast._opening.reconnecting import Attempts, Delays, LoggerLike, Verdict
from wsfast._opening.route import Route, Routing
from wsfast._opening.uri import WebSocketURI, parse_uri
from wsfast.deflate import PerMessageDeflate, offers
from wsfast.exceptions import InvalidStatus

__all__ = ["Connecting", "offered"]


def offered(
    origin: str | None,
    subprotocols: Sequence[str] | None,
    compression: str | PerMessageDeflate | None,
    extensions: Sequence[PerMessageDeflate] | None,
) -> dict[str, Any]:
    """The parts of a request that are the same for every server."""
    return {
        "origin": origin,
        "subprotocols": reusable(subprotocols),
        "compression": offers(compression, extensions),
    }


class Connecting:
    """The checked arguments of a ``connect``. Each attempt uses them.

    The constructor refuses wrong arguments, before anything is connected. A program may change the attributes that
    websockets has, too; the next attempt uses the new value. Assignments to other options raise AttributeError.
    """

    # The clock that measures how long a connection lived.
    _clock = staticmethod(time.monotonic)

    _create_connection: Any
    _routing: Routing

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Connecting in cls.__bases__:  # a program's own subclasses name their attributes as they like
            for name in names_of(cls):
                if not hasattr(cls, name):
                    fixed = Fixed(
                        "and is not kept as an attribute", "cannot be changed: call connect() again"
                    )
                    fixed.__set_name__(cls, name)
                    setattr(cls, name, fixed)

    def __init__(
        self,
        uri: str,
        *,
        offered: dict[str, Any],
        additional_headers: AwaitedHeadersLike | None,
        user_agent_header: str | None,
        process_exception: Verdict,
        reconnect_delays: Delays,
        logger: LoggerLike | str | None,
        timeouts: Timeouts,
        pinging: Pinging,
        limits: Limits,
        tuning: Tuning,
    ) -> None:
        look_for_websockets()
        self._uri = uri
        self.ws_uri = parse_uri(uri)
        check_callables(process_exception=process_exception, reconnect_delays=reconnect_delays)
        tuning.check_kernel_stamps(not self.ws_uri.secure)
        self._timeouts = timeouts
        self._pinging = pinging
        self._limits = limits
        self._tuning = tuning
        self._offered = offered
        self._additional_headers: AwaitedHeadersLike | None = reusable(additional_headers)
        self._user_agent_header = user_agent_header
        self._first_handshake: ClientHandshake | None = None
        self._check_headers()
        self._process_exception = process_exception
        self._reconnect_delays = reconnect_delays
        self.logger = logger

    # ---- attributes that the program may change

    @property
    def uri(self) -> str:
        """The URI of the server."""
        return self._uri

    @property
    def additional_headers(self) -> AwaitedHeadersLike | None:
        """The program's headers for the next requests."""
        return self._additional_headers

    @additional_headers.setter
    def additional_headers(self, headers: AwaitedHeadersLike | None) -> None:
        before, self._additional_headers = self._additional_headers, reusable(headers)
        try:
            self._check_headers()
        except BaseException:
            self._additional_headers = before
            raise

    @property
    def user_agent_header(self) -> str | None:
        """The User-Agent header of the next requests."""
        return self._user_agent_header

    @user_agent_header.setter
    def user_agent_header(self, user_agent: str | None) -> None:
        before, self._user_agent_header = self._user_agent_header, user_agent
        try:
            self._check_headers()
        except BaseException:
            self._user_agent_header = before
            raise

    @property
    def open_timeout(self) -> float | None:
        """The time limit of the next attempts, in seconds."""
        return self._timeouts.open

    @open_timeout.setter
    def open_timeout(self, seconds: float | None) -> None:
        self._timeouts = Timeouts(seconds, self._timeouts.close)

    @property
    def close_timeout(self) -> float | None:
        """The time limit for closing the next connections, in seconds."""
        return self._timeouts.close

    @close_timeout.setter
    def close_timeout(self, seconds: float | None) -> None:
        self._timeouts = Timeouts(self._timeouts.open, seconds)

    @property
    def process_exception(self) -> Verdict:
        """Decides after which of the next errors a loop connects again."""
        return self._process_exception

    @process_exception.setter
    def process_exception(self, verdict: Verdict) -> None:
        check_callables(process_exception=verdict)
        self._process_exception = verdict

    @property
    def reconnect_delays(self) -> Delays:
        """Makes the delays of the next loop."""
        return self._reconnect_delays

    @reconnect_delays.setter
    def reconnect_delays(self, delays: Delays) -> None:
        check_callables(reconnect_delays=delays)
        self._reconnect_delays = delays

    @property
    def logger(self) -> LoggerLike:
        """The logger of the next attempts and connections."""
        return self._logger

    @logger.setter
    def logger(self, logger: LoggerLike | str | None) -> None:
        self._logger: LoggerLike = as_logger("logger", logger)

    # ---- for the faces

    def _route(self) -> Route:
        """A new route, for one attempt."""
        routing = self._routing
        routing.user_agent = self._user_agent_header
        self._redirected: WebSocketURI | None = None
        if type(self).process_redirect is not Connecting.process_redirect:
            routing.process_redirect = self._process_redirect
        return Route(routing)

    def _process_redirect(self, exc: InvalidStatus, uri: WebSocketURI) -> Exception | str:
        self._redirected = uri
        return self.process_redirect(exc)

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the URI that a server redirects to. A subclass may return another one, or an exception to be raised.

        A subclass may return a URI in a private network. The other rules hold all the same: not from ``wss`` to
        ``ws``, no credentials for another origin, no loop, and 10 redirects at most.
        """
        from wsfast._opening.redirects import is_redirect, location

        if not isinstance(exc, InvalidStatus) or not is_redirect(exc.response):
            return exc
        return location(self._redirected or self.ws_uri, exc.response).uri

    def _check_headers(self) -> None:
        """Make the handshake of the first attempt, which refuses wrong arguments.

        If a function makes the headers of each attempt, this handshake is only the check.
        """
        headers = self._additional_headers
        handshake = self._new_handshake(self.ws_uri, None if callable(headers) else headers)
        self._first_handshake = None if callable(headers) else handshake

    def _new_handshake(
        self, uri: WebSocketURI, headers: PlainHeaders | None, **offered: Any
    ) -> ClientHandshake:
        try:
            return ClientHandshake(
                uri,
                extra_headers=headers,
                user_agent=self._user_agent_header,
                **{**self._offered, **offered},
            )
        except (TypeError, ValueError) as exc:  # it knows an argument by picows' name
            text = str(exc).replace("extra_headers", "additional_headers")
            raise (TypeError if isinstance(exc, TypeError) else ValueError)(text) from None

    def _next_handshake(self, route: Route, headers: PlainHeaders | None) -> ClientHandshake:
        """Make the handshake for the server that `route` leads to."""
        if route.uri is not self.ws_uri:
            subprotocols = route.subprotocols(self._offered["subprotocols"])
            headers = route.headers(headers)
            return self._new_handshake(
                route.uri, headers, subprotocols=subprotocols, credentials=route.credentials
            )
        handshake, self._first_handshake = self._first_handshake, None
        credentials = route.credentials
        if handshake is not None and credentials is None:
            return handshake
        return self._new_handshake(self.ws_uri, headers, credentials=credentials)

    def _attempts(self) -> Attempts:
        """The attempts of a new loop over connections."""
        return Attempts(self._process_exception, self._reconnect_delays, self._logger, self._clock)

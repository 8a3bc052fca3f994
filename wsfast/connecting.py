"""The arguments of `connect` that mean the same to several faces."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from wsfast.deflate import PerMessageDeflate, offers
from wsfast.handshake import ClientHandshake, HeadersLike
from wsfast.reconnecting import Attempts, Delays, LoggerLike, Verdict
from wsfast.uri import parse_uri

__all__ = ["Connecting", "Limits", "check_timeouts"]

Limits = int | tuple[int | None, int | None] | None


def check_timeouts(**timeouts: float | None) -> None:
    """Refuse negative ones."""
    for name, seconds in timeouts.items():
        if seconds is not None and seconds < 0:
            raise ValueError(f"{name} must not be negative, not {seconds!r}")


class Connecting:
    """What each attempt to connect needs, of the awaitable and of the blocking client.

    Wrong arguments are refused at once, not by the first attempt.

    `proxy_arguments`: whether there are arguments that say how to use a proxy.
    """

    def __init__(
        self,
        uri: str,
        *,
        origin: str | None,
        extensions: Sequence[PerMessageDeflate] | None,
        subprotocols: Sequence[str] | None,
        compression: str | PerMessageDeflate | None,
        additional_headers: HeadersLike | None,
        user_agent_header: str | None,
        proxy: str | bool | None,
        proxy_arguments: bool,
        process_exception: Verdict,
        open_timeout: float | None,
        close_timeout: float | None,
        reconnect_delays: Delays,
        logger: LoggerLike | None,
    ) -> None:
        self.uri = uri
        self.ws_uri = parse_uri(uri)
        if proxy_arguments or proxy not in (None, True):
            raise NotImplementedError("proxy: connecting through a proxy is not implemented yet")
        check_timeouts(open_timeout=open_timeout, close_timeout=close_timeout)
        self._handshake_arguments: dict[str, Any] = {
            "subprotocols": subprotocols,
            "extra_headers": additional_headers,
            "origin": origin,
            "user_agent": user_agent_header,
            "compression": offers(compression, extensions),
        }
        # Made here to refuse wrong arguments; the first attempt uses it.
        self._first_handshake: ClientHandshake | None = self._new_handshake()
        self.process_exception = process_exception
        self.open_timeout = open_timeout
        self.reconnect_delays = reconnect_delays
        self.logger: LoggerLike = logging.getLogger("wsfast.client") if logger is None else logger

    def _new_handshake(self) -> ClientHandshake:
        return ClientHandshake(self.ws_uri, **self._handshake_arguments)

    def _next_handshake(self) -> ClientHandshake:
        """A handshake for one attempt."""
        handshake, self._first_handshake = self._first_handshake, None
        return handshake or self._new_handshake()

    def _attempts(self) -> Attempts:
        """For a loop over connections."""
        return Attempts(self.process_exception, self.reconnect_delays, self.logger)

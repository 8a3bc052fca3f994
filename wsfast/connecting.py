"""The arguments of `connect` that mean the same to the awaitable and to the blocking client."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from wsfast.handshake import ClientHandshake, HeadersLike
from wsfast.reconnecting import Attempts, Delays, LoggerLike, Verdict
from wsfast.uri import parse_uri

__all__ = ["DEFLATE", "Connecting", "Limits"]

Limits = int | tuple[int | None, int | None] | None


class _Default(str):
    """The default of a parameter, told from the same value given by the caller."""


DEFLATE = _Default("deflate")


class Connecting:
    """What each attempt to connect needs. Wrong arguments are refused at once, not by the first attempt.

    `proxy_arguments`: whether there are arguments that say how to use a proxy.
    """

    def __init__(
        self,
        uri: str,
        *,
        origin: str | None,
        extensions: Sequence[Any] | None,
        subprotocols: Sequence[str] | None,
        compression: str | None,
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
        _refuse_what_is_not_built(extensions, compression, proxy_arguments or proxy not in (None, True))
        for name, seconds in (("open_timeout", open_timeout), ("close_timeout", close_timeout)):
            if seconds is not None and seconds < 0:
                raise ValueError(f"{name} must not be negative, not {seconds!r}")
        self._handshake_arguments: dict[str, Any] = {
            "subprotocols": subprotocols,
            "extra_headers": additional_headers,
            "origin": origin,
            "user_agent": user_agent_header,
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


def _refuse_what_is_not_built(
    extensions: Sequence[Any] | None, compression: str | None, proxied: bool
) -> None:
    if compression is not None and compression is not DEFLATE:
        if compression != "deflate":
            raise ValueError(f"unsupported compression: {compression}")
        raise NotImplementedError("compression: permessage-deflate is not implemented yet")
    if extensions:
        raise NotImplementedError("extensions: none are implemented yet")
    if proxied:
        raise NotImplementedError("proxy: connecting through a proxy is not implemented yet")

"""The request and the reply of an opening in the log, at level DEBUG, a record for each line, as websockets has them.

``***`` replaces every value that redaction.py does not know to be harmless.
"""

from __future__ import annotations

import logging
from typing import Any

from wsfast._common.logging import guarded
from wsfast._common.redaction import shown_value
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse
from wsfast._opening.http.exchange import Exchange
from wsfast.exceptions import printable

__all__ = ["log_exchange"]


def log_exchange(exchange: Exchange, logger: Any) -> None:
    """Log the request, which is about to be sent, and the reply when it comes, if the logger is enabled for DEBUG."""
    if logger.isEnabledFor(logging.DEBUG):
        exchange.observer = log = ExchangeLog(logger)
        log.requested(exchange)


class ExchangeLog:
    """Logs the events of an `Exchange`."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def requested(self, exchange: Exchange) -> None:
        """The request is about to be sent."""
        self._log("> %s", exchange.shown_request_line)
        self._log_headers("> %s: %s", UpgradeRequest(exchange.request_bytes).headers.raw_items())

    def replied(self, response: UpgradeResponse) -> None:
        """The header of the final reply has come."""
        version = response.version.decode("ascii", "replace")
        self._log("< %s %d %s", version, response.status_code, printable(response.reason_phrase))
        self._log_headers("< %s: %s", response.headers.raw_items())

    def refused(self, body: bytes) -> None:
        """The peer has refused; `body` is the part that was received."""
        if body:
            self._log("< [body] (%d bytes)", len(body))

    def _log_headers(self, line: str, headers: Any) -> None:
        for name, value in headers:
            self._log(line, name, printable(shown_value(name, value)))

    def _log(self, line: str, *args: object) -> None:
        guarded(self._logger.debug, line, *args)

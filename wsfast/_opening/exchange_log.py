"""The request and the reply of an opening in the log, at level DEBUG, a record for each line, as websockets has them.

What is_secret() takes for a secret is replaced by ``***``. So are, in URLs, credentials and
the values of parameters with such names.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote

from wsfast._opening.exchange import Exchange
from wsfast.exceptions import printable
from wsfast.fields import is_secret
from wsfast.logs import guarded
from wsfast.upgrade import UpgradeRequest, UpgradeResponse

__all__ = ["log_exchange"]

_PARAMETER = re.compile(r"(?<=[?&#;])([^=?&#;]+)=[^&#\s>]*")
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*(?=@)")


def log_exchange(exchange: Exchange, logger: Any) -> None:
    """Log the request, which is about to be sent, and the reply when it comes, if the logger is enabled for DEBUG."""
    if logger.isEnabledFor(logging.DEBUG):
        exchange.observer = log = ExchangeLog(logger)
        log.requested(exchange.request_bytes)


class ExchangeLog:
    """What an `Exchange` tells of itself, in the log."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def requested(self, request: bytes) -> None:
        """The request is about to be sent."""
        line = request.partition(b"\r\n")[0].decode("ascii")
        self._log("> %s", _without_secrets(line))
        self._log_headers("> %s: %s", UpgradeRequest(request).headers.raw_items())

    def replied(self, response: UpgradeResponse) -> None:
        """The header of the final reply has come."""
        version = response.version.decode("ascii", "replace")
        self._log("< %s %d %s", version, response.status_code, printable(response.reason_phrase))
        self._log_headers("< %s: %s", response.headers.raw_items())

    def refused(self, body: bytes) -> None:
        """The peer has refused, with so much of a body."""
        if body:
            self._log("< [body] (%d bytes)", len(body))

    def _log_headers(self, line: str, headers: Any) -> None:
        for name, value in headers:
            self._log(line, name, "***" if is_secret(name, value) else printable(_without_secrets(value)))

    def _log(self, line: str, *args: object) -> None:
        guarded(self._logger.debug, line, *args)


def _without_secrets(text: str) -> str:
    """`text`, which may contain a URL, without the values of parameters that are secret, and without credentials."""

    def shown(parameter: re.Match[str]) -> str:
        return f"{parameter[1]}=***" if is_secret(unquote(parameter[1]), "") else parameter[0]

    return _PARAMETER.sub(shown, _CREDENTIALS.sub("***", text))

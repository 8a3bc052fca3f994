"""The server and the options to connect to it: the arguments that all commands with a URL share."""

from __future__ import annotations

import argparse
import dataclasses
import ssl
from typing import Any

import wsfast
from wsfast._common.redaction import shown
from wsfast.cli.outcome import Usage, why
from wsfast.exceptions import InvalidProxy, InvalidURI

__all__ = ["Target", "add_arguments", "of_arguments"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A server, and how to connect to it: the options of ``add_arguments``. All fields are JSON, for the workers."""

    url: str
    headers: list[list[str]]
    subprotocols: list[str]
    origin: str | None
    proxy: str | bool | None
    open_timeout: float
    insecure: bool
    cacert: str | None
    cert: str | None
    key: str | None
    server_hostname: str | None

    @property
    def shown(self) -> str:
        """The URL without its secrets, for the screen and for reports."""
        return shown(self.url)

    def options(self) -> dict[str, Any]:
        """The arguments of ``connect`` and ``ws_connect`` that have the same names in both."""
        options: dict[str, Any] = {
            "additional_headers": [(name, value) for name, value in self.headers],
            "subprotocols": self.subprotocols or None,
            "origin": self.origin,
            "proxy": self.proxy,
            "open_timeout": self.open_timeout,
        }
        if (tls := self._tls()) is not None:
            options["ssl"] = tls
        if self.server_hostname is not None:
            options["server_hostname"] = self.server_hostname
        return options

    def _tls(self) -> wsfast.TLS | ssl.SSLContext | None:
        if self.insecure:
            # wsfast.TLS always verifies. An SSLContext does as its owner configures it.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
            return context
        if self.cacert is None and self.cert is None:
            return None
        return wsfast.TLS(
            cafile=self.cacert, client_cert=None if self.cert is None else (self.cert, self.key)
        )

    def check(self) -> None:
        """Refuse settings with which no connection can be made, before anything is connected.

        :raises Usage: says which argument is wrong
        """
        try:
            options = self.options()
            if isinstance(tls := options.get("ssl"), wsfast.TLS):
                tls.context()  # reads the files
            wsfast.connect(self.url, **options)
        except (InvalidURI, InvalidProxy) as exc:
            raise Usage(why(exc)) from exc
        except OSError as exc:
            file = exc.filename or " or ".join(filter(None, (self.cacert, self.cert, self.key)))
            text = exc.strerror or why(exc)
            raise Usage(text if file in text else f"{file}: {text}") from exc
        except (TypeError, ValueError) as exc:
            raise Usage(why(exc)) from exc


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the URL, and the options that say how to connect."""
    parser.add_argument("url", metavar="URL", help="ws:// or wss://")
    connection = parser.add_argument_group("connection")
    connection.add_argument(
        "-H",
        "--header",
        metavar="'NAME: VALUE'",
        action="append",
        dest="headers",
        default=[],
        type=_header,
        help="add a header to the request; may be repeated",
    )
    connection.add_argument(
        "--subprotocol",
        metavar="NAME",
        action="append",
        dest="subprotocols",
        default=[],
        help="offer it; may be repeated",
    )
    connection.add_argument("--origin", metavar="ORIGIN", help="the Origin header")
    connection.add_argument(
        "--proxy",
        metavar="URL",
        type=lambda url: None if url == "none" else url,
        default=True,
        help="through this proxy, or 'none'; by default as the environment says",
    )
    connection.add_argument(
        "--open-timeout",
        metavar="SECONDS",
        type=positive,
        default=10.0,
        help="for DNS, TCP, TLS and upgrade together (10)",
    )
    tls = parser.add_argument_group("TLS")
    tls.add_argument("--insecure", action="store_true", help="accept any certificate; OpenSSL encrypts then")
    tls.add_argument("--cacert", metavar="FILE", help="trust these certificates (PEM), and no others")
    tls.add_argument("--cert", metavar="FILE", help="this client's certificate (PEM), perhaps with its key")
    tls.add_argument("--key", metavar="FILE", help="the key of --cert (PEM)")
    tls.add_argument("--server-hostname", metavar="NAME", help="the name that the certificate must have")


def of_arguments(arguments: argparse.Namespace) -> Target:
    """The target that the arguments name, checked.

    :raises Usage: an argument is wrong
    """
    if arguments.insecure and arguments.cacert is not None:
        raise Usage("--insecure accepts any certificate, so --cacert has no use")
    if arguments.key is not None and arguments.cert is None:
        raise Usage("--key needs --cert")
    names = {field.name for field in dataclasses.fields(Target)}
    target = Target(**{name: value for name, value in vars(arguments).items() if name in names})
    target.check()
    return target


def _header(text: str) -> list[str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("a header is 'NAME: VALUE'")
    return [name.strip(), value.strip()]


def positive(text: str) -> float:
    """A number of seconds, or of messages per second, above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def not_negative(text: str) -> float:
    """A number of seconds that may be 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def whole(text: str) -> int:
    """A whole number above 0."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)

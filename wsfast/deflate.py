"""permessage-deflate (RFC 7692): the client's offers, and the check that the server's answer fits one of them. No I/O.

This module parses the header itself, because other parsers are not strict enough: wsproto's extension splits at every
comma, accepts any parameter that begins with the right letters, and does not remember the offer. The streams come from
zlib, or from its drop-in replacements zlib-ng and isal, which are several times faster; see _engine/frames/streams.pyx.
"""

from __future__ import annotations

import functools
import importlib
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from wsfast._common.headers import TOKEN
from wsfast.exceptions import (
    DuplicateParameter,
    InvalidHeaderFormat,
    InvalidParameterName,
    InvalidParameterValue,
    NegotiationError,
)

__all__ = ["AgreedDeflate", "ClientPerMessageDeflateFactory", "PerMessageDeflate", "libraries"]

NAME = "permessage-deflate"

HEADER = "Sec-WebSocket-Extensions"

# The module of each library. The library that is fastest for most messages comes first.
_MODULES = {"zlib-ng": "zlib_ng.zlib_ng", "isal": "isal.isal_zlib", "zlib": "zlib"}

# RFC 7692 section 7.1.2: "a decimal integer value without leading zeroes between 8 to 15".
_WINDOW_BITS = {str(bits): bits for bits in range(8, 16)}

# The smallest window with which zlib can compress a raw stream, in bits.
_SMALLEST_TO_COMPRESS = 9

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BLANKS = re.compile(r"[ \t]*")

Parameters = list[tuple[str, str | None]]


@functools.cache
def _module(library: str) -> Any:
    """The module of a library; None if the library is not installed."""
    try:
        return importlib.import_module(_MODULES[library])
    except ImportError:
        return None


def libraries() -> list[str]:
    """The names of the installed libraries, out of "zlib-ng", "isal" and "zlib"."""
    return [library for library in _MODULES if _module(library) is not None]


@dataclass(frozen=True)
class PerMessageDeflate:
    """The parameters of compression: an offer to the server, and settings of the client alone.

    A window is the part of the earlier data to which compressed data may refer. Its size is 2 to the power of its bits,
    in bytes. Receiving costs about as much memory as the window, and sending four times as much. Context takeover means
    that the window continues from one message to the next.

    :param server_no_context_takeover: the server must start a new window for each message
    :param client_no_context_takeover: the client starts a new window for each message
    :param server_max_window_bits: the largest window that the server may use, 8-15; with None the server chooses
    :param client_max_window_bits: the largest window that the client uses, 9-15; True lets the server choose it, None
        does not
    :param level: the compression level: -1 to 9, or 0 to 3 with isal; None is the library's default
    :param mem_level: 1-9: the amount of memory for compressing
    :param strategy: ``Z_DEFAULT_STRATEGY`` of zlib, ``Z_FILTERED``, ``Z_HUFFMAN_ONLY``, ``Z_RLE`` or ``Z_FIXED``; isal
        supports only the first
    :param threshold: messages of fewer bytes are sent uncompressed; fragmented messages are always compressed
    :param library: ``"zlib"``, ``"zlib-ng"`` or ``"isal"``; None chooses the fastest installed library
    :raises ValueError: a value is out of range
    :raises ImportError: `library` is not installed
    """

    server_no_context_takeover: bool = False
    client_no_context_takeover: bool = False
    server_max_window_bits: int | None = None
    client_max_window_bits: int | Literal[True] | None = True
    level: int | None = None
    mem_level: int = 5
    strategy: int = zlib.Z_DEFAULT_STRATEGY
    threshold: int = 1024
    library: str | None = None

    def __post_init__(self) -> None:
        if self.library is not None and self.library not in _MODULES:
            raise ValueError(f"library must be one of {', '.join(_MODULES)}, not {self.library!r}")
        if self.library is not None and _module(self.library) is None:
            raise ImportError(f"library: {self.library} is not installed")
        client_bits = self.client_max_window_bits
        _check_range("server_max_window_bits", self.server_max_window_bits, 8, 15)
        _check_range("client_max_window_bits", None if client_bits is True else client_bits, 9, 15)
        levels = (0, 3) if self.library == "isal" else (-1, 9)
        _check_range("level", self.level, *levels)
        _check_range("mem_level", self.mem_level, 1, 9)
        _check_range("strategy", self.strategy, zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED)
        if self.library == "isal" and self.strategy != zlib.Z_DEFAULT_STRATEGY:
            raise ValueError(f"strategy: isal supports only the default strategy, not {self.strategy}")
        _check_range("threshold", self.threshold, 0, None)

    def offer(self) -> str:
        """This offer as an element of a Sec-WebSocket-Extensions header."""
        elements = [NAME]
        for name in ("server_no_context_takeover", "client_no_context_takeover"):
            if getattr(self, name):
                elements.append(name)
        for name in ("server_max_window_bits", "client_max_window_bits"):
            bits = getattr(self, name)
            if bits is not None:
                elements.append(name if bits is True else f"{name}={bits}")
        return "; ".join(elements)

    def accept(self, parameters: Parameters) -> AgreedDeflate:
        """Check the server's answer to this offer (RFC 7692 section 7.1).

        :raises NegotiationError: the answer is invalid, or does not fit this offer
        """
        answer = _checked(parameters)
        server_bits, client_bits = self._agreed_bits(
            answer.get("server_max_window_bits"), answer.get("client_max_window_bits")
        )
        # Section 7.1.1.1: a server that accepts the offer must answer with the parameter.
        if self.server_no_context_takeover and "server_no_context_takeover" not in answer:
            raise NegotiationError("the server did not accept server_no_context_takeover")
        return AgreedDeflate(
            "server_no_context_takeover" in answer,
            # Section 7.1.1.2: the offer is only a hint about the client, but the client keeps to it in any case.
            self.client_no_context_takeover or "client_no_context_takeover" in answer,
            server_bits,
            client_bits,
            self,
        )

    def _agreed_bits(self, server: int | None, client: int | None) -> tuple[int, int]:
        if self.server_max_window_bits is not None:
            # Section 7.1.2.1: the server must answer with the same or a smaller value.
            if server is None:
                raise NegotiationError("the server did not accept server_max_window_bits")
            if server > self.server_max_window_bits:
                raise NegotiationError(
                    f"the server's server_max_window_bits is larger than offered: {server}"
                )
        offered = 15 if self.client_max_window_bits is True else self.client_max_window_bits
        if client is not None:
            # Section 7.1.2.2: the answer may contain the parameter only if it was offered, with no larger value.
            if offered is None:
                raise NegotiationError("the server's client_max_window_bits was not offered")
            if client > offered:
                raise NegotiationError(
                    f"the server's client_max_window_bits is larger than offered: {client}"
                )
        return server or 15, client or offered or 15


class ClientPerMessageDeflateFactory(PerMessageDeflate):
    """:class:`PerMessageDeflate` with websockets' name and parameters. It compresses every message.

    :param compress_settings: ``level``, ``memLevel`` and ``strategy`` of ``zlib.compressobj``
    """

    name = NAME

    def __init__(
        self,
        server_no_context_takeover: bool = False,
        client_no_context_takeover: bool = False,
        server_max_window_bits: int | None = None,
        client_max_window_bits: int | Literal[True] | None = True,
        compress_settings: Mapping[str, int] | None = None,
    ) -> None:
        settings = dict(compress_settings or {})
        if "wbits" in settings:
            raise ValueError("compress_settings must not include wbits: set client_max_window_bits instead")
        super().__init__(
            server_no_context_takeover,
            client_no_context_takeover,
            server_max_window_bits,
            client_max_window_bits,
            settings.pop("level", None),
            settings.pop("memLevel", zlib.DEF_MEM_LEVEL),
            settings.pop("strategy", zlib.Z_DEFAULT_STRATEGY),
            threshold=0,
        )
        for setting in settings:
            raise ValueError(f"compress_settings: {setting} is not supported")


@dataclass
class AgreedDeflate:
    """The parameters agreed with the server: the attribute ``compression`` of a connection. Only wsfast makes it."""

    server_no_context_takeover: bool
    client_no_context_takeover: bool
    server_max_window_bits: int
    client_max_window_bits: int
    options: PerMessageDeflate
    inflating: str = field(init=False)
    """The library that decompresses. Without ``library=`` it may change once, after the first messages."""
    deflating: str = field(init=False)
    """The library that compresses."""

    def __post_init__(self) -> None:
        installed = libraries()
        self.inflating = self.options.library or next(name for name in installed if name != "isal")
        self.deflating = self.inflating
        self.for_large = "isal" if self.options.library is None and "isal" in installed else None

    @property
    def can_compress(self) -> bool:
        """False if the server requires a window that is too small for zlib; then messages are sent uncompressed."""
        return self.client_max_window_bits >= _SMALLEST_TO_COMPRESS

    @property
    def window_size(self) -> int:
        """The size of the server's window in bytes."""
        return 1 << self.server_max_window_bits

    @property
    def error(self) -> tuple[type[Exception], ...]:
        """The exceptions that a decompressor may raise."""
        return tuple(_module(library).error for library in libraries())

    def decompressors(self, library: str) -> Callable[..., Any]:
        """A function that makes a new stream; with ``zdict=`` the stream continues after that window. It runs no
        Python."""
        # zlib-ng and isal do not support a window of 8 bits. A larger window than the server's costs a few bytes.
        bits = max(self.server_max_window_bits, _SMALLEST_TO_COMPRESS)
        return functools.partial(_module(library).decompressobj, wbits=-bits)

    def compressor(self) -> Any:
        """A new stream of the library `deflating`."""
        options = self.options
        settings = {} if options.level is None else {"level": options.level}
        if options.strategy != zlib.Z_DEFAULT_STRATEGY:
            settings["strategy"] = options.strategy
        module = _module(self.deflating)
        return module.compressobj(wbits=-self.client_max_window_bits, memLevel=options.mem_level, **settings)


def offers(
    compression: str | PerMessageDeflate | None, extensions: Sequence[PerMessageDeflate] | None
) -> list[PerMessageDeflate]:
    """The offers for the arguments of connect(), in order of preference.

    As in websockets, ``compression="deflate"`` comes after `extensions`, and adds nothing if they already compress.
    """
    if isinstance(extensions, str) or not isinstance(extensions, Sequence | None):
        raise TypeError(f"extensions must be a sequence, not {type(extensions).__name__}")
    for extension in extensions or ():
        if not isinstance(extension, PerMessageDeflate):
            raise TypeError(
                "extensions must be PerMessageDeflate or ClientPerMessageDeflateFactory of wsfast.deflate, "
                f"not {type(extension).__module__}.{type(extension).__qualname__}"
            )
    if isinstance(compression, PerMessageDeflate):
        return [*(extensions or ()), compression]
    if compression not in (None, "deflate"):
        raise ValueError(f"unsupported compression: {compression}")
    if extensions or compression is None:
        return list(extensions or ())
    return [_default_offer()]


@functools.cache
def _default_offer() -> PerMessageDeflate:
    return PerMessageDeflate()


def negotiate(header: str | None, offered: Sequence[PerMessageDeflate]) -> AgreedDeflate | None:
    """Check the Sec-WebSocket-Extensions header of the server's reply.

    :returns: the agreed parameters, None if the server accepts no compression
    :raises InvalidHeaderFormat, NegotiationError: the connection must fail (RFC 6455 section 9.1, RFC 7692 section 5)
    """
    agreed: AgreedDeflate | None = None
    for name, parameters in parse(header) if header else ():
        if name != NAME or not offered:
            raise NegotiationError(f"the server picked an extension that wasn't offered: {name!r}")
        if agreed is not None:
            raise NegotiationError(f"the server picked {name} twice")
        agreed = _first_accepted(offered, parameters)
    return agreed


def _first_accepted(offered: Sequence[PerMessageDeflate], parameters: Parameters) -> AgreedDeflate:
    """Accept the answer for the first offer that it fits (section 5.1: the answer does not name the offer)."""
    failure: NegotiationError | None = None
    for offer in offered:
        try:
            return offer.accept(parameters)
        except NegotiationError as exc:
            failure = failure or exc
    assert failure is not None
    raise failure


def _checked(parameters: Parameters) -> dict[str, int | None]:
    """The parameters of an answer by name. Each must be known, valid and unique."""
    checked: dict[str, int | None] = {}
    for name, value in parameters:
        if name in checked:
            raise DuplicateParameter(name)
        if name in ("server_no_context_takeover", "client_no_context_takeover"):
            if value is not None:
                raise InvalidParameterValue(name, value)
            checked[name] = None
        elif name in ("server_max_window_bits", "client_max_window_bits"):
            if value not in _WINDOW_BITS:
                raise InvalidParameterValue(name, value)
            checked[name] = _WINDOW_BITS[value]
        else:
            raise InvalidParameterName(name)
    return checked


def _check_range(name: str, value: int | None, low: int, high: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < low or (high is not None and value > high):
        allowed = f"between {low} and {high}" if high is not None else f"at least {low}"
        raise ValueError(f"{name} must be {allowed}, not {value}")


# The header (RFC 6455 section 9.1): extension-list = 1#extension, extension = token *( ";" token [ "=" value ] ).


def parse(header: str) -> list[tuple[str, Parameters]]:
    """The extensions in a Sec-WebSocket-Extensions header, with their parameters. A parameter without a value has None.

    :raises InvalidHeaderFormat: the header violates the grammar
    """
    return _Parser(header).extensions()


class _Parser:
    def __init__(self, header: str) -> None:
        self.header = header
        self.at = 0

    def extensions(self) -> list[tuple[str, Parameters]]:
        extensions: list[tuple[str, Parameters]] = []
        while True:
            while self.skip(","):  # a recipient ignores empty elements of a list (RFC 9110 section 5.6.1)
                pass
            if self.at == len(self.header):
                return extensions
            extensions.append((self.token(), self.parameters()))
            if self.at < len(self.header) and not self.skip(","):
                self.fail("expected a comma")

    def parameters(self) -> Parameters:
        parameters: Parameters = []
        while self.skip(";"):
            name = self.token()
            parameters.append((name, self.value() if self.skip("=") else None))
        return parameters

    def value(self) -> str:
        quoted = _QUOTED.match(self.header, self.at)
        if quoted is None:
            return self.token()
        # "the value after quoted-string unescaping MUST conform to the 'token' ABNF".
        value = re.sub(r"\\(.)", r"\1", quoted[1])
        if not TOKEN.fullmatch(value):
            self.fail("expected a token between quotes")
        self.at = quoted.end()
        self.skip_blanks()
        return value

    def token(self) -> str:
        token = TOKEN.match(self.header, self.at)
        if token is None:
            self.fail("expected a token")
        self.at = token.end()
        self.skip_blanks()
        return token[0]

    def skip(self, separator: str) -> bool:
        self.skip_blanks()
        if not self.header.startswith(separator, self.at):
            return False
        self.at += 1
        self.skip_blanks()
        return True

    def skip_blanks(self) -> None:
        blanks = _BLANKS.match(self.header, self.at)
        assert blanks is not None
        self.at = blanks.end()

    def fail(self, error: str) -> NoReturn:
        raise InvalidHeaderFormat(HEADER, error, self.header, self.at)

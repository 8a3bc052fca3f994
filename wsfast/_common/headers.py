"""Header fields that are to be sent, checked before anything is (RFC 9110 section 5). No I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "TOKEN",
    "VISIBLE",
    "AwaitedHeadersLike",
    "HeadersLike",
    "PlainHeaders",
    "basic_auth",
    "check_value",
    "checked_headers",
    "resolve_headers",
    "reusable",
]

PlainHeaders = Mapping[str, str] | Iterable[tuple[str, str]]
# Headers, or a function that makes them for each attempt to connect.
HeadersLike = PlainHeaders | Callable[[], PlainHeaders]
AwaitedHeadersLike = HeadersLike | Callable[[], Awaitable[PlainHeaders]]

# RFC 9110 section 5.6.2.
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# The target of a request is visible ASCII: a blank would end it.
VISIBLE = re.compile(r"[\x21-\x7e]+")

# Characters that a field value cannot have: controls (RFC 9110 section 5.5), and surrogates, which UTF-8 cannot encode.
_NOT_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def reusable(items: Any) -> Any:
    """Return a list of an iterator's items, which the first request would use up; else `items`."""
    return list(items) if items is not None and isinstance(items, Iterator) else items


def resolve_headers(headers: AwaitedHeadersLike | None) -> Any:
    """The headers of one attempt to connect, or an awaitable of them: by the program's function if it gave one."""
    return headers() if callable(headers) else headers


def checked_headers(
    argument: str, headers: PlainHeaders | None, reserved: Sequence[str]
) -> list[tuple[str, str]]:
    """Names and values out of `headers`; None stands for none.

    :param argument: the name of `headers`, for errors
    :param reserved: names, in lower case, that the caller of this function sets itself
    :raises TypeError: they are no mapping and no pairs, of str
    :raises ValueError: one of them cannot be sent; the text hides the value, which may be a secret
    """
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, Iterable):
        raise TypeError(f"{argument} must be a mapping or pairs, not {type(pairs).__name__}")
    checked = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"{argument} must be a mapping or pairs, of str")
        name, value = pair
        if not TOKEN.fullmatch(name):
            raise ValueError(f"{argument}: {name.partition(':')[0]!r} isn't a header name")
        if name.lower() in reserved:
            raise ValueError(f"{argument}: {name} is set by the handshake")
        checked.append((name, check_value(f"{argument}[{name!r}]", value)))
    return checked


def check_value(argument: str, value: str) -> str:
    """The value of one field, without the blanks around it.

    :raises TypeError, ValueError: as `checked_headers`
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be str, not {type(value).__name__}")
    if _NOT_IN_VALUE.search(value):
        raise ValueError(f"{argument} contains a control character")
    return value.strip(" \t")


def basic_auth(username: str, password: str) -> str:
    """The value of an Authorization or Proxy-Authorization header (RFC 7617 section 2)."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")

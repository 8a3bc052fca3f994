"""The server's answer to offers of permessage-deflate, against websockets: both accept, with the same parameters, or
neither.

Input: a byte that picks the offer, then the value of the Sec-WebSocket-Extensions header.
"""

from __future__ import annotations

from typing import Any

from websockets.exceptions import InvalidHandshake as Theirs
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.headers import parse_extension

from wsfast.deflate import PerMessageDeflate, negotiate
from wsfast.exceptions import InvalidHandshake

# Takeover of the server's and the client's context is declined or not; their window bits.
OFFERS: list[tuple[Any, ...]] = [
    (False, False, None, True),
    (False, False, None, None),
    (True, False, None, True),
    (False, True, 12, 10),
    (True, True, 9, 15),
    (False, False, 15, None),
]


def check(data: bytes) -> None:
    header = data[1:].decode("latin-1").strip(" \t")
    # h11 lets no control character pass; an empty list is no answer to us, and an error to websockets.
    if not header.strip(", \t") or not header.replace("\t", "").isprintable():
        return
    offer = OFFERS[data[0] % len(OFFERS)]
    ours, theirs = answered(header, offer), answered_by_websockets(header, offer)
    if ours is not None and ours[3] == 8:
        return  # no zlib compresses with a window of 8 bits: websockets refuses, we send uncompressed
    assert ours == theirs, f"{header!r} to {offer}: {ours} instead of {theirs}"


def answered(header: str, offer: tuple[Any, ...]) -> Any:
    try:
        agreed = negotiate(header, [PerMessageDeflate(*offer)])
    except InvalidHandshake:
        return None
    assert agreed is not None
    return (
        agreed.server_no_context_takeover,
        agreed.client_no_context_takeover,
        agreed.server_max_window_bits,
        agreed.client_max_window_bits,
    )


def answered_by_websockets(header: str, offer: tuple[Any, ...]) -> Any:
    try:
        extensions = parse_extension(header)
        accepted: list[Any] = []
        for name, parameters in extensions:
            if name != "permessage-deflate":
                return None
            accepted.append(
                ClientPerMessageDeflateFactory(*offer).process_response_params(parameters, accepted)
            )
    except Theirs:
        return None
    (agreed,) = accepted
    return (
        agreed.remote_no_context_takeover,
        agreed.local_no_context_takeover,
        agreed.remote_max_window_bits,
        agreed.local_max_window_bits,
    )

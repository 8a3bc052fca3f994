"""The arguments about TCP and TLS that every client takes, checked."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from wsfast._common.options import check_address, check_types, count, seconds

# A function that gets the parsed URL of the server, or the user's proxy.
SocketFactory = Callable[[Any], Awaitable[socket.socket | None] | socket.socket | None]

# Seconds that an address may take before the next one is tried, too (RFC 8305 section 8).
HAPPY_EYEBALLS_DELAY = 0.25

FAMILIES = (socket.AF_INET, socket.AF_INET6)

# The keyword arguments of loop.create_connection() that are about TCP, and those about TLS. The last two are
# aiofastnet's.
ARGUMENTS = ("host", "port", "family", "proto", "flags", "local_addr", "happy_eyeballs_delay", "interleave")

TLS_ARGUMENTS = (
    "server_hostname",
    "ssl_handshake_timeout",
    "ssl_shutdown_timeout",
    "ssl_incoming_bio_size",
    "ssl_outgoing_bio_size",
)


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse wrong values of these arguments before anything is connected.

    :raises TypeError, ValueError: with the name of the argument
    """
    for name, value in arguments.items():
        if name in ("host", "server_hostname"):
            check_types(str, **{name: value})
        elif name == "port":
            check_types(int, str, port=value)
        elif name == "local_addr":
            check_address(name, value)
        elif name in ("family", "proto", "flags"):
            count(name, value)
        elif name == "interleave":
            count(name, value, none="for the default")
        elif name.startswith("ssl_") and name.endswith("_size"):
            count(name, value, least=1, none="for the default")
        else:  # happy_eyeballs_delay, and the time-outs of TLS
            seconds(name, value, zero=not name.startswith("ssl_"), none="for the default")

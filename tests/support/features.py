"""Writes docs/features.md: which face has which option, attribute and method, read from the code.

``PYTHONPATH=tests python -m support.features`` writes it anew. What one face has and another lacks needs a reason here,
or the test fails.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import wsfast
import wsfast.asyncio.client
import wsfast.sync.client
from support import behaviours
from wsfast._common.option_names import names_of

WHERE = "tests/support/features.py"
PAGE = Path(__file__).parents[2] / "docs" / "features.md"

FACES = ("`ws_connect`", "`connect`", "`sync.client.connect`")
OBJECTS = ("`WSTransport`", "awaitable `ClientConnection`", "blocking `ClientConnection`")

# Names of the same thing.
SAME_OPTIONS = [
    ("uri", "url"),
    ("ssl", "ssl_context"),
    ("max_size", "max_frame_size"),
    ("additional_headers", "extra_headers"),
    ("logger", "logger_name"),
    ("local_addr", "source_address"),
    ("sock", "socket_factory"),
    ("create_connection", "ws_listener_factory"),
    ("proxy_ssl", "proxy_ssl_context"),
]
SAME_MEMBERS = [
    ("close", "send_close", "disconnect"),
    ("wait_closed", "wait_disconnected"),
    ("ping", "send_ping"),
    ("pong", "send_pong"),
    ("transport", "underlying_transport", "socket"),
    ("state", "is_disconnected", "is_close_frame_sent"),
    ("set_write_buffer_limits", "write_limit"),
]

SETTING = "websockets' attribute, which may be set; a listener says it to `ws_connect` once"
CREATE_CONNECTION = "of `loop.create_connection`"
PICOWS_PINGS = "picows' names of `ping_interval` and `ping_timeout`"
RECONNECTING = "of loops that reconnect, which the listener has not: {doc}`howto/reconnect` is a recipe"
QUEUE = "a listener has no queue"
NO_BACKLOG = "a listener has no queue, and a blocking client reads when it is asked"
CALLBACKS = "of callbacks"
WEBSOCKETS = "websockets' name; see `close_info` and `close_handshake`"

# Why not every face has it.
OPTIONS = {
    "disconnect_on_exception": CALLBACKS,
    "websocket_handshake_timeout": "picows' name; `open_timeout` is for everything",
    "enable_auto_ping": PICOWS_PINGS,
    "auto_ping_idle_timeout": PICOWS_PINGS,
    "auto_ping_reply_timeout": PICOWS_PINGS,
    "auto_ping_strategy": PICOWS_PINGS,
    "enable_auto_pong": "PING frames are delivered to callbacks only",
    "max_redirects": "picows' name; for the others see {doc}`howto/proxies`",
    "read_buffer_init_size": "accepted for picows' sake",
    "use_aiofastnet": "of the listener, for tests of an event loop",
    "process_exception": RECONNECTING,
    "reconnect_delays": RECONNECTING,
    "max_queue": QUEUE,
    "overflow": NO_BACKLOG,
    "conflate_key": NO_BACKLOG,
    "on_high_water": NO_BACKLOG,
    "write_limit": "the listener has `set_write_buffer_limits()`; a blocking `send` always waits",
    "proto": CREATE_CONNECTION,
    "flags": CREATE_CONNECTION,
    "interleave": CREATE_CONNECTION,
    "ssl_handshake_timeout": CREATE_CONNECTION,
    "ssl_shutdown_timeout": CREATE_CONNECTION,
    "ssl_incoming_bio_size": CREATE_CONNECTION,
    "ssl_outgoing_bio_size": CREATE_CONNECTION,
    "all_errors": "accepted for websockets' sake",
    "legacy": "websockets' name, of its blocking client",
    "client_cert": "the others take it in `wsfast.TLS` or in a context",
    "address": "`host` and `port` in one, as `socket.create_connection` has it",
}
MEMBERS = {
    "backlog": NO_BACKLOG,
    "recv": "a listener gets callbacks",
    "recv_many": "a listener gets lists by `on_ws_messages`",
    "batches": "a listener gets lists by `on_ws_messages`",
    "recv_streaming": "a listener gets fragments by `on_ws_frame`",
    "messages": "a listener gets callbacks, by its `payload_type`",
    "send_threadsafe": "a blocking connection's `send` may be called by any thread",
    "poll": "`recv(timeout=0)` does that in the blocking client",
    "close_handshake": "picows' name; the others have `close_code` and `close_reason`",
    "close_code": WEBSOCKETS,
    "close_reason": WEBSOCKETS,
    "id": "websockets' name",
    "logger": "websockets' name",
    "is_client_side": "picows' name",
    "is_secure": "picows' name",
    "latency": "the listener has `measure_roundtrip_time()`",
    "local_address": "the listener has `underlying_transport.get_extra_info()`",
    "remote_address": "the listener has `underlying_transport.get_extra_info()`",
    "close_timeout": SETTING,
    "ping_interval": SETTING,
    "ping_timeout": SETTING,
    "protocol": "websockets' name: the `WSTransport` of an awaitable connection, and a blocking connection itself",
    "notify_user_specific_pong_received": CALLBACKS,
    "send_reuse_external_bytearray": "picows' name; for the lowest latency",
    "set_write_buffer_limits": "a blocking `send` always waits",
    "write_buffer_size": "the awaitable `send` waits by `write_limit`, the blocking one always",
}

# Members that are there and are not for programs: what asyncio calls, and what a connection says that it does not have.
INTERNAL = {
    "connection_made",
    "connection_lost",
    "data_received",
    "eof_received",
    "get_buffer",
    "buffer_updated",
    "is_buffered_protocol",
    "pause_writing",
    "resume_writing",
    "listener",
}
INTERNAL |= {"max_size", "max_queue"}


def options() -> list[set[str]]:
    blocking = {"legacy", *names_of(wsfast.sync.client.reconnect)}
    return [set(names_of(wsfast.ws_connect)), set(names_of(wsfast.asyncio.client.connect)), blocking]


def members() -> list[set[str]]:
    faces = (wsfast.WSTransport, wsfast.asyncio.client.ClientConnection, wsfast.sync.client.ClientConnection)
    return [{name for name in _names(face) if name not in INTERNAL} for face in faces]


def _names(kind: type[Any]) -> set[str]:
    found = set(dir(kind))
    for base in kind.__mro__:
        found |= set(inspect.get_annotations(base))
    return {name for name in found if not name.startswith("_")}


def rows(faces: list[set[str]], same: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Each matter once, in alphabetical order: all the names that it has."""
    grouped = {name for group in same for name in group}
    alone = [(name,) for name in set().union(*faces) - grouped]
    return sorted([*same, *alone])


def mistakes(faces: list[set[str]], same: list[tuple[str, ...]], reasons: dict[str, str]) -> list[str]:
    """What is wrong with the reasons: one lacks, or is for nothing."""
    found = []
    names = set()
    for group in rows(faces, same):
        names.add(group[0])
        everywhere = all(face & set(group) for face in faces)
        if everywhere and group[0] in reasons:
            found.append(f"{group[0]} is everywhere, and has a reason")
        if not everywhere and group[0] not in reasons:
            found.append(f"{group[0]} is not everywhere, and has no reason in {WHERE}")
        found += [f"{name} is nowhere" for name in group if not any(name in face for face in faces)]
    return found + [f"{name} has a reason, and is nowhere" for name in reasons if name not in names]


def table(
    heads: tuple[str, ...], faces: list[set[str]], same: list[tuple[str, ...]], reasons: dict[str, str]
) -> str:
    lines = ["| " + " | ".join((*heads, "why not everywhere")) + " |", "|---" * (len(heads) + 1) + "|"]
    for group in rows(faces, same):
        cells = [", ".join(f"`{name}`" for name in group if name in face) or "—" for face in faces]
        lines.append("| " + " | ".join((*cells, reasons.get(group[0], ""))) + " |")
    return "\n".join(lines)


HEAD = """# Features of each face

This page is written from signatures and classes. A test fails when one face gains an option, an attribute or a method
that another lacks. Then edit `tests/support/features.py`, which has the names and the reasons, and write the page anew:
`PYTHONPATH=tests .venv/bin/python -m support.features`.

Two names in one cell are names of the same thing. A call with both raises `TypeError`. The fields of `tuning` and
`network` are the same for all clients ({doc}`reference`). Only `write_policy="gather"` is not for the blocking one: its
`send` returns when the kernel has the message.
"""

OPENING = """
## Opening a connection

`tests/support/behaviours.py` lists what options do not show, and the tests of it. A test checks that these exist.
"""

TAIL = """
## Not yet

| matter | today |
|---|---|
| kernel TLS | not by rustls; by aiofastnet, with an `ssl.SSLContext` that has `OP_ENABLE_KTLS` |

`dir()` shows more of a `WSTransport`. asyncio and aiofastnet call these methods, and programs do not:
`connection_made`, `connection_lost`, `data_received`, `eof_received`, `get_buffer`, `buffer_updated`, `pause_writing`,
`resume_writing`, `is_buffered_protocol`. A `WSTransport` is the protocol of its
connection: see {doc}`architecture`.
"""


def page() -> str:
    return "\n".join(
        (
            HEAD,
            "## Options\n",
            table(FACES, options(), SAME_OPTIONS, OPTIONS),
            "\n## Attributes and methods of a connection\n",
            table(OBJECTS, members(), SAME_MEMBERS, MEMBERS),
            OPENING,
            behaviours.table(),
            TAIL,
        )
    )


if __name__ == "__main__":
    PAGE.write_text(page())

"""What is known of a received message besides its payload."""

from __future__ import annotations

from typing import NamedTuple

from wsfast._common.protocol_numbers import WSMsgType

__all__ = ["WSMessageInfo"]


class WSMessageInfo(NamedTuple):
    """When a message was received, and how. A connection that was made with ``timestamps`` keeps it as
    ``last_message``.

    ``msg_type`` is ``WSMsgType.TEXT`` or ``BINARY``. ``compressed`` says whether the server compressed the message.
    ``last_in_buffer`` is False if another complete frame had been received behind the message, so that more follows at
    once. ``recv_time_ns`` is when the read that completed the message returned, in nanoseconds of
    ``time.monotonic_ns()``. ``kernel_time_ns`` is when the kernel had received those bytes, by the same clock: None
    unless ``timestamps`` is ``"kernel"``, and None for the first packets, because the kernel takes a while to begin.
    """

    msg_type: WSMsgType
    compressed: bool
    last_in_buffer: bool
    recv_time_ns: int
    kernel_time_ns: int | None

"""Records of a connection: its counters, the arrival of a message, and frames as lines of a log."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from wsfast._common.closing import MAX_CONTROL
from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.frames.frame import CONTROL_BIT, FIN_BIT, OPCODE_BITS, RSV1_BIT
from wsfast.exceptions import Close

# Characters of a payload that are shown: those at its beginning and at its end.
_SHOWN = 75
_CUT = _SHOWN // 3 - 1

_NAMES: dict[int, str] = {**{opcode: opcode.name for opcode in WSMsgType}, WSMsgType.CONTINUATION: "CONT"}
# True for frames that usually contain text. A line notes a frame that is unlike the others of its opcode.
_IS_TEXT: dict[int, bool] = {WSMsgType.TEXT: True, WSMsgType.BINARY: False, WSMsgType.CLOSE: True}


class WSStats(NamedTuple):
    """Counts since the start of the connection. Subtract two snapshots to get the counts of the time in between.

    ``frames_received``, ``frames_sent``
        frames of all types, including those that wsfast sends and answers by itself
    ``bytes_received``, ``bytes_sent``
        bytes of the stream, including the headers of frames; over TLS, before encryption. The server's reply to the
        upgrade request counts as received, but the request does not count as sent.
    ``reads``, ``writes``
        how often wsfast took bytes from the transport beneath, or gave bytes to it. Without TLS this is the number of
        ``recv`` and ``send`` calls that moved bytes, except those that write a backlog.
    ``frames_gathered``
        frames that were combined with others, by ``cork()``, ``send_many()`` or ``write_policy="gather"``
    ``longest_backlog``
        the largest number of bytes that waited because the kernel did not take them; over TLS, a backlog counts only
        above the high-water mark
    ``poll_hits``, ``poll_misses``
        poll attempts, by ``busy_poll`` or ``poll()``, that found bytes, and those that found none
    ``empty_wakeups``
        how often the event loop announced bytes that a poll attempt had already read
    """

    frames_received: int
    bytes_received: int
    reads: int
    frames_sent: int
    bytes_sent: int
    writes: int
    frames_gathered: int
    longest_backlog: int
    poll_hits: int
    poll_misses: int
    empty_wakeups: int


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


def describe(head: int, payload: bytes) -> str:
    """A frame as websockets logs it, at level DEBUG: ``TEXT 'hello' [5 bytes]``.

    :param head: its first byte
    """
    opcode = head & OPCODE_BITS
    size = len(payload)
    expected = _IS_TEXT.get(opcode)
    text = _as_text(opcode, payload)
    if text is None:
        text, is_text = _as_hex(payload), False
    else:
        is_text = True if payload else expected  # type: ignore[assignment]
    if len(text) > _SHOWN:
        text = f"{text[: 2 * _CUT]}...{text[-_CUT:]}"
    notes = [f"{size} byte{'' if size == 1 else 's'}"]
    if is_text != expected:
        notes.insert(0, "text" if is_text else "binary")
    if head & RSV1_BIT:
        notes.append("compressed")
    if not head & FIN_BIT:
        notes.append("continued")
    return f"{_NAMES.get(opcode, opcode)} {text} [{', '.join(notes)}]"


def _as_text(opcode: int, payload: bytes) -> str | None:
    """None if it is none."""
    try:
        if not payload:
            return "''"
        if opcode == WSMsgType.CLOSE:
            return str(Close(int.from_bytes(payload[:2], "big"), payload[2:].decode()))
        if opcode & CONTROL_BIT:
            text = payload.decode("ascii")
            return repr(text) if text.isprintable() else None
        # The bytes between them are not shown. A fragment may end within a character.
        decoder = codecs.getincrementaldecoder("utf-8")()
        shown = decoder.decode(payload[: 4 * _SHOWN])
        if len(payload) > 4 * _SHOWN:
            shown += payload[-4 * _CUT :].decode(errors="replace")
        text = repr(shown)
        return None if "\\x" in text else text  # text contains printable characters only
    except UnicodeDecodeError:
        return None


def _as_hex(payload: bytes) -> str:
    if len(payload) > MAX_CONTROL:
        payload = payload[:_SHOWN] + payload[-_SHOWN:]
    return payload.hex(" ")

"""Frames in the words that websockets logs them with, at level DEBUG: ``TEXT 'hello' [5 bytes]``."""

from __future__ import annotations

import codecs

from wsfast._common.closing import MAX_CONTROL
from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.frames.frame import CONTROL_BIT, FIN_BIT, OPCODE_BITS, RSV1_BIT
from wsfast.exceptions import Close

__all__ = ["describe"]

# Characters of a payload that are shown: those at its beginning and at its end.
_SHOWN = 75
_CUT = _SHOWN // 3 - 1

_NAMES: dict[int, str] = {**{opcode: opcode.name for opcode in WSMsgType}, WSMsgType.CONTINUATION: "CONT"}
# Whether a frame is expected to be text; it is said where it is otherwise.
_IS_TEXT: dict[int, bool] = {WSMsgType.TEXT: True, WSMsgType.BINARY: False, WSMsgType.CLOSE: True}


def describe(head: int, payload: bytes) -> str:
    """A frame, by its first byte and its payload."""
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
        return None if "\\x" in text else text  # what is not printable is in no text
    except UnicodeDecodeError:
        return None


def _as_hex(payload: bytes) -> str:
    if len(payload) > MAX_CONTROL:
        payload = payload[:_SHOWN] + payload[-_SHOWN:]
    return payload.hex(" ")

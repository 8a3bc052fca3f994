"""Opcodes and close codes have the numbers of RFC 6455, and picows' names."""

from __future__ import annotations

import pytest

from wsfast._common.protocol_numbers import WSAutoPingStrategy, WSCloseCode, WSMsgType
from wsfast._engine.frames.frame import close_code_valid


def test_message_types_are_the_opcodes_of_rfc_6455() -> None:
    assert {member.name: int(member) for member in WSMsgType} == {
        "CONTINUATION": 0,
        "TEXT": 1,
        "BINARY": 2,
        "CLOSE": 8,
        "PING": 9,
        "PONG": 10,
    }


def test_close_codes() -> None:
    assert {member.name: int(member) for member in WSCloseCode} == {
        "NO_INFO": 0,
        "OK": 1000,
        "GOING_AWAY": 1001,
        "PROTOCOL_ERROR": 1002,
        "UNSUPPORTED_DATA": 1003,
        "ABNORMAL_CLOSURE": 1006,
        "INVALID_TEXT": 1007,
        "POLICY_VIOLATION": 1008,
        "MESSAGE_TOO_BIG": 1009,
        "MANDATORY_EXTENSION": 1010,
        "INTERNAL_ERROR": 1011,
        "SERVICE_RESTART": 1012,
        "TRY_AGAIN_LATER": 1013,
        "BAD_GATEWAY": 1014,
    }


def test_ping_strategies() -> None:
    assert {member.name: int(member) for member in WSAutoPingStrategy} == {
        "PING_WHEN_IDLE": 1,
        "PING_PERIODICALLY": 2,
    }


def test_exactly_these_codes_may_be_on_the_wire() -> None:
    allowed = {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}
    assert {code for code in (*range(-1, 65537), 2**32 + 1000) if close_code_valid(code)} == allowed


@pytest.mark.parametrize("code", [WSCloseCode.NO_INFO, WSCloseCode.ABNORMAL_CLOSURE])
def test_internal_codes_are_never_on_the_wire(code: WSCloseCode) -> None:
    assert not close_code_valid(code)

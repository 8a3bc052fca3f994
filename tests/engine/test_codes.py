"""Opcodes and close codes have the numbers of RFC 6455, and picows' names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wsfast
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


def test_close_codes_are_those_of_cython() -> None:
    """A C enum and an IntEnum cannot be one."""
    text = Path(wsfast.__file__).with_name("_engine") / "frames" / "frame.pxd"
    declared = text.read_text().split("cdef enum WSCloseCode:\n")[1].split("\n\n")[0]
    codes = {name: int(code) for name, code in re.findall(r"(\w+) = (\d+)", declared)}
    assert codes == {member.name: int(member) for member in WSCloseCode}
    assert codes["GOING_AWAY"] == 1001


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

"""Every compiled type through everything that Python can do to an object: no crash, no wrong copy."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.frames import text
from support.listeners import Scripted
from support.mock import Wire
from support.types import CHECKS, compiled_types

import wsfast
from wsfast import WSFrame, WSListener

pytestmark = pytest.mark.memory

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("check", CHECKS)
def test_no_type_crashes(check, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=":")
    ran = subprocess.run(
        [sys.executable, "-m", "support.types", check],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stdout.splitlines()
    assert said[-1:] == ["passed"], f"{ran.returncode}, after {said[-3:]}:\n{ran.stderr[-6000:]}"


@pytest.mark.checkout
def test_every_type_of_the_sources_is_found():
    sources = [path.read_text() for path in Path(wsfast.__file__).parent.rglob("*.pyx")]
    written = {name for source in sources for name in re.findall(r"^cdef class (\w+)", source, re.MULTILINE)}
    assert len(written) > 25
    assert written <= {cls.__name__ for cls in compiled_types()}


class Named(WSListener):
    """A listener with state of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = [1, 2]


class Slotted(WSListener):
    __slots__ = ("name",)


class Telling(Named):
    """Says itself what its state is."""

    def __getstate__(self):
        return {"name": self.name.upper()}

    def __setstate__(self, state):
        self.__dict__.update(state, told=True)


def test_listeners_are_copied_like_plain_objects():
    one = Named("a")
    assert vars(copy.copy(one)) == vars(one)
    assert copy.copy(one).seen is one.seen
    assert copy.deepcopy(one).seen == one.seen
    assert copy.deepcopy(one).seen is not one.seen
    slotted = Slotted()
    slotted.name = "s"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert vars(pickle.loads(pickle.dumps(one, protocol))) == vars(one)
        assert pickle.loads(pickle.dumps(slotted, protocol)).name == "s"
        assert vars(pickle.loads(pickle.dumps(Telling("t"), protocol))) == {"name": "T", "told": True}
    assert type(copy.copy(WSListener())) is WSListener


def test_a_frame_that_is_copied_is_the_frame(loop):
    kept: list[WSFrame] = []
    wire = Wire(loop, Scripted(on_ws_frame=lambda self, transport, frame: kept.append(frame)))
    wire.feed(text("a" * 100))
    copies = [copy.copy(kept[0]), copy.deepcopy(kept[0]), copy.deepcopy(kept)[0]]
    wire.end()
    del wire, kept[:]
    gc.collect()
    assert [bytes(one) for one in copies] == [b"a" * 100] * 3
    with pytest.raises(TypeError, match=r"send bytes\(frame\)"):
        pickle.dumps(copies[0])


def test_a_connection_is_not_copied(loop):
    wire = Wire(loop)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle"):
            way(wire.transport)
    wire.end()

"""What the fuzzers keep is replayed, and hypothesis puts together what they would take long to invent.

``make fuzz`` runs the fuzzers themselves, see tests/fuzz.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz import connection, handshake, location, negotiation, seeds, tunnel
from hypothesis import given, settings
from hypothesis import strategies as st

CORPUS = Path(seeds.__file__).parent / "corpus"
TARGETS = {
    "connection": connection,
    "handshake": handshake,
    "location": location,
    "negotiation": negotiation,
    "tunnel": tunnel,
}

seed = st.integers(0, 255).map(lambda number: bytes([number]))


@pytest.fixture(autouse=True)
def _no_loop_is_left() -> Iterator[None]:
    yield
    connection.loop().close()
    connection.loop.cache_clear()


@pytest.mark.parametrize("target", TARGETS)
def test_the_kept_corpus(target):
    with tarfile.open(CORPUS / f"{target}.tar.gz") as archive:
        inputs = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert len(inputs) > 20, "a corpus that is not found is no success"
    for name, data in inputs.items():
        try:
            TARGETS[target].check(data)
        except Exception as exc:
            raise AssertionError(f"{name}: {exc}") from exc


# Streams put together of what the tests know, with some noise between; most are legal for a while.
known = sorted({*seeds.streams(), *seeds.compressed()})
streams = st.lists(st.one_of(st.sampled_from(known), st.binary(max_size=6)), max_size=5)


@pytest.mark.memory
@settings(max_examples=400)
@given(seed=seed, parts=streams)
def test_every_face_takes_a_connection_as_wsproto_does(seed, parts):
    connection.check(seed + b"".join(parts))


lines = sorted({line for reply in seeds.replies() for line in reply.splitlines(keepends=True)})
accepted = next(seeds.replies()).splitlines(keepends=True)[:-1]


@settings(max_examples=200)
@given(seed=seed, more=st.lists(st.sampled_from(lines), max_size=4), end=st.binary(max_size=6))
def test_a_reply_is_judged_alike_however_it_is_cut(seed, more, end):
    handshake.check(seed + b"".join([*accepted, *more]) + b"\r\n" + end)
    handshake.check(seed + b"".join(more) + end)


proxy_lines = sorted({line for reply in seeds.tunnels() for line in reply.splitlines(keepends=True)})


@settings(max_examples=200)
@given(seed=seed, parts=st.lists(st.sampled_from(proxy_lines), max_size=5), end=st.binary(max_size=6))
def test_a_proxy_is_judged_alike_however_its_reply_is_cut(seed, parts, end):
    tunnel.check(seed + b"".join(parts) + end)
    tunnel.check(seed + proxy_lines[0] + b"".join(parts) + b"\r\n" + end)


places = sorted({part for place in seeds.locations() for part in (place, *place.split(b"/"))})


@settings(max_examples=400)
@given(seed=seed, parts=st.lists(st.one_of(st.sampled_from(places), st.binary(max_size=3)), max_size=4))
def test_no_redirect_takes_a_secret_to_another_origin(seed, parts):
    location.check(seed + b"".join(parts))


answers = st.lists(st.one_of(st.sampled_from(sorted(seeds.answers())), st.binary(max_size=4)), max_size=3)


@settings(max_examples=200)
@given(seed=seed, parts=answers)
def test_an_answer_to_an_offer_is_judged_as_websockets_judges_it(seed, parts):
    negotiation.check(seed + b"; ".join(parts))

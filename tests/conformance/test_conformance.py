"""Runs the table with every face, over a server that says exactly what the row says."""

from __future__ import annotations

import asyncio
import zlib

import pytest
from support import HUNG, certificates
from support.certificates import WAYS
from support.faces import FACES, MANY, TAKING_FRAMES
from support.frames import CLOSE, PONG, parse_close
from support.servers import Peer, serve

from conformance import cases, deflate, utf8
from conformance.cases import Case
from wsfast.exceptions import InvalidText, PayloadTooBig, ProtocolError

SECTIONS = {
    "framing": cases.FRAMING,
    "pings": cases.PINGS,
    "reserved_bits": cases.RESERVED_BITS,
    "opcodes": cases.OPCODES,
    "fragmentation": cases.FRAGMENTATION,
    "utf8": utf8.CASES,
    "closing": cases.CLOSING,
    "limits": cases.LIMITS,
    "misc": cases.MISC,
    "deflate": deflate.CASES,
}
CASES = [case for section in SECTIONS.values() for case in section]

BEHIND = {1002: ProtocolError, 1007: InvalidText, 1009: PayloadTooBig}


def asks_for_messages(case: Case) -> bool:
    """Does it say something of messages, rather than of frames?"""
    of_fragments = case.fails == 1009 and "fragment" in case.name
    return bool(case.extensions) or of_fragments or (case.fails == 1007 and case in utf8.CASES)


ROWS = [(case, face) for case in CASES for face in FACES | MANY]
ROWS += [(case, face) for case in CASES for face in TAKING_FRAMES if not asks_for_messages(case)]
NAMES = [f"{case.name.strip()}-{face}" for case, face in ROWS]


def test_the_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("bits", [8, 9, 12])
def test_a_server_keeps_to_its_window(bits):
    stream = zlib.decompressobj(wbits=-bits)
    data, inflated = deflate.Server(bits=bits).deflate(deflate.JSON), b""
    # A byte at a time: what a call has put out may be referred to without a window.
    while piece := stream.decompress(data, 1):
        data = stream.unconsumed_tail
        inflated += piece
    assert inflated.decode() == deflate.JSON


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize(("case", "face"), ROWS, ids=NAMES)
async def test_case(case: Case, face: str):
    await play(case, face)


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("way", ["rustls", "openssl"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("section", SECTIONS)
async def test_section_over_tls(section: str, face: str, way: str):
    """All cases of a section in one test, some at a time: a test for each would take three times as long. Over OpenSSL
    each face has a third of them."""
    failed: list[str] = []
    waiting = iter(SECTIONS[section] if way == "rustls" else SECTIONS[section][list(FACES).index(face) :: 3])

    async def play_cases() -> None:
        for case in waiting:
            try:
                await play(case, face, way)
            except Exception as exc:
                failed.append(f"{case.name}: {exc!r}")

    await asyncio.gather(*(play_cases() for _ in range(8)))
    assert not failed, "\n".join(failed)


async def play(case: Case, face: str, way: str = "plain") -> None:
    secure = WAYS[way]

    async def server(peer: Peer) -> list:
        extensions = f"Sec-WebSocket-Extensions: {case.extensions}\r\n" if case.extensions else ""
        await peer.accept(headers=extensions.encode())
        for piece in case.everything:
            peer.send(piece)
            await asyncio.sleep(0)  # the client may read it
        sent = await asyncio.wait_for(peer.frames_until_close(), HUNG / 2)  # an error that names the case
        # It is the server that closes (RFC 6455 section 7.1.1). asyncio's TLS has no half-close.
        peer.writer.close() if secure else peer.writer.write_eof()
        return sent + await peer.rest()

    context = certificates.server_context() if secure else None
    settings = secure() if secure else None
    async with serve(server, ssl_context=context) as served:
        async with (FACES | MANY | TAKING_FRAMES)[face](
            served.url, context=settings, **case.options
        ) as client:
            messages, end = await client.rest()
        sent = await served.result()

    assert messages == case.gets
    *answers, last = sent
    assert [(one.opcode, one.payload) for one in answers] == [(PONG, payload) for payload in case.pongs]
    assert last.opcode == CLOSE
    if case.fails is None:
        payload = b"\x03\xe8" if case.closes is None else case.closes
        code = parse_close(payload)[0] or 1005
        assert last.payload == payload
        assert (end.received, end.sent, end.cause) == (code, code, None)
    else:
        code, reason = parse_close(last.payload)
        assert code == case.fails
        assert reason, "a server is told what it did"
        assert (end.received, end.sent) == (None, case.fails)
        assert isinstance(end.cause, BEHIND[case.fails])
        assert end.cause.code == case.fails

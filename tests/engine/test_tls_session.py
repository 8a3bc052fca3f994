"""A TLSSession against OpenSSL, without a network: what the server says arrives, in whatever pieces it comes."""

from __future__ import annotations

import random
import ssl

import pytest
from support import certificates, tls_peer
from support.frames import pattern

from wsfast._engine.sockets.tls_transport import TLSSession
from wsfast._opening.tls import rustls

pytestmark = pytest.mark.memory


class Pair:
    """A session and its server, after the handshake."""

    def __init__(self, version: ssl.TLSVersion) -> None:
        context = certificates.server_context.__wrapped__()
        context.maximum_version = version
        assert rustls.load_openssl() is None
        self.session = TLSSession(rustls.config(certificates.client_settings()), b"localhost", 1)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        done = False
        while not done:
            self.incoming.write(self.session.take())
            try:
                self.server.do_handshake()
                done = not self.session.is_handshaking
            except ssl.SSLWantReadError:
                pass
            self.session.feed(bytearray(self.outgoing.read()))
            assert not self.session.has_failed
        self.sent, self.got = bytearray(), bytearray()

    def say(self, r: random.Random) -> bytes:
        """The next records of the server."""
        kind = r.choice(["data", "data", "data", "key update", "ticket", "padding"])
        if self.server.version() == "TLSv1.2" or kind == "data":
            data = pattern(r.choice([1, 5, 100, 1000, 16_383, 16_384, 16_385, 40_000]), len(self.sent))
            self.sent += data
            self.server.write(data)
        elif kind == "key update":
            tls_peer.key_update(self.server)
        elif kind == "ticket":
            tls_peer.set_fragment(self.server, r.choice([512, 16_384]))
            tls_peer.ticket(self.server)
        else:
            tls_peer.set_padding(self.server, r.choice([1, 512, 16_384]))
        return self.outgoing.read()

    def take(self, piece: bytes) -> None:
        self.got += self.session.decrypt(bytearray(piece))

    def answer(self, r: random.Random) -> None:
        """The client says something, perhaps in the middle of one of the server's records."""
        data = pattern(r.choice([1, 100, 20_000]), len(self.got))
        self.incoming.write(self.session.encrypt(data))
        said = b""
        while len(said) < len(data):
            said += self.server.read(1 << 18)
        assert said == data


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_server_says_in_whatever_pieces(seed, version):
    r = random.Random(seed)
    pair = Pair(version)
    for _ in range(r.randint(1, 5)):
        wire = b"".join(pair.say(r) for _ in range(r.randint(1, 12)))
        size = (
            r.choice([1, 3, 50, 1000, 17_000, 1 << 20])
            if len(wire) < 5000
            else r.choice([999, 17_000, 1 << 20])
        )
        while wire:
            cut = r.randint(1, size)
            pair.take(wire[:cut])
            wire = wire[cut:]
            assert not pair.session.has_failed, pair.session.failure()
            if r.random() < 0.05:
                pair.answer(r)
        assert pair.got == pair.sent
    pair.answer(r)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_changed_on_its_way_never_passes(seed, version):
    r = random.Random(seed)
    pair = Pair(version)
    wire = bytearray(b"".join(pair.say(r) for _ in range(8)))
    for _ in range(r.randint(1, 3)):
        place = r.randrange(len(wire))
        how = r.randrange(3)
        if how == 0:
            wire[place] ^= 1 << r.randrange(8)
        elif how == 1:
            del wire[place : place + r.randint(1, 40)]
        else:
            wire[place:place] = r.randbytes(r.randint(1, 40))
    size = r.choice([1000, 1 << 20])
    for place in range(0, len(wire), size):
        pair.take(wire[place : place + size])
    assert pair.sent.startswith(pair.got)

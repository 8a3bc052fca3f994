"""permessage-deflate: what is offered and accepted, and the streams of the three libraries. No connection."""

import contextlib
import random
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kinds import kind_of

from wsfast import PayloadTooBig, ProtocolError, deflate
from wsfast._engine.frames.streams import TAIL, Deflater, Inflater
from wsfast.deflate import AgreedDeflate, ClientPerMessageDeflateFactory, PerMessageDeflate, negotiate, offers
from wsfast.exceptions import (
    DuplicateParameter,
    InvalidHeaderFormat,
    InvalidParameterName,
    InvalidParameterValue,
    NegotiationError,
)

LIBRARIES = ["zlib", "zlib-ng", "isal"]


def test_all_three_libraries_are_here():
    assert deflate.libraries() == ["zlib-ng", "isal", "zlib"]


# The offer


@pytest.mark.parametrize(
    ("options", "offer"),
    [
        ({}, "permessage-deflate; client_max_window_bits"),
        ({"client_max_window_bits": None}, "permessage-deflate"),
        ({"client_max_window_bits": 9}, "permessage-deflate; client_max_window_bits=9"),
        (
            {"server_max_window_bits": 8, "client_max_window_bits": 15},
            "permessage-deflate; server_max_window_bits=8; client_max_window_bits=15",
        ),
        (
            {"server_no_context_takeover": True, "client_no_context_takeover": True},
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits",
        ),
    ],
)
def test_the_offer(options, offer):
    assert PerMessageDeflate(**options).offer() == offer


@pytest.mark.parametrize(
    ("options", "exception"),
    [
        ({"server_max_window_bits": 7}, ValueError),
        ({"server_max_window_bits": 16}, ValueError),
        ({"server_max_window_bits": True}, TypeError),
        ({"client_max_window_bits": 8}, ValueError),
        ({"client_max_window_bits": 16}, ValueError),
        ({"client_max_window_bits": "9"}, TypeError),
        ({"level": 10}, ValueError),
        ({"level": -1, "library": "isal"}, ValueError),
        ({"mem_level": 0}, ValueError),
        ({"strategy": 5}, ValueError),
        ({"strategy": zlib.Z_RLE, "library": "isal"}, ValueError),
        ({"threshold": -1}, ValueError),
        ({"library": "brotli"}, ValueError),
    ],
)
def test_options_that_are_refused(options, exception):
    with pytest.raises(exception, match=next(iter(options))):
        PerMessageDeflate(**options)


def test_a_library_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(deflate._MODULES, "isal", "there_is_no_such_module")
    deflate._module.cache_clear()
    try:
        assert deflate.libraries() == ["zlib-ng", "zlib"]
        assert PerMessageDeflate().accept([]).for_large is None
        with pytest.raises(ImportError, match="isal is not installed"):
            PerMessageDeflate(library="isal")
    finally:
        deflate._module.cache_clear()


def test_zlib_alone_will_do(monkeypatch):
    for library in ("isal", "zlib-ng"):
        monkeypatch.setitem(deflate._MODULES, library, "there_is_no_such_module")
    deflate._module.cache_clear()
    try:
        agreed = PerMessageDeflate().accept([])
        assert (agreed.inflating, agreed.deflating) == ("zlib", "zlib")
        data = Deflater(agreed).deflate(b"message", True)
        assert Inflater(agreed).inflate(data, len(data), 100, True) == b"message"
    finally:
        deflate._module.cache_clear()


def test_the_factory_of_websockets():
    factory = ClientPerMessageDeflateFactory(True, False, 10, None, {"level": 1, "memLevel": 4})
    assert factory.name == "permessage-deflate"
    assert factory.offer() == "permessage-deflate; server_no_context_takeover; server_max_window_bits=10"
    assert (factory.level, factory.mem_level, factory.threshold) == (1, 4, 0)
    assert ClientPerMessageDeflateFactory().mem_level == zlib.DEF_MEM_LEVEL
    for setting in ("wbits", "zdict"):
        with pytest.raises(ValueError, match=setting):
            ClientPerMessageDeflateFactory(compress_settings={setting: 9})


def test_what_the_arguments_of_connect_offer():
    mine = PerMessageDeflate(threshold=1)
    theirs = ClientPerMessageDeflateFactory()
    assert offers(None, None) == []
    assert offers("deflate", None) == [PerMessageDeflate()]
    assert offers(mine, None) == [mine]
    assert offers("deflate", [theirs]) == [theirs]
    assert offers(None, [theirs, mine]) == [theirs, mine]
    assert offers(mine, (theirs,)) == [theirs, mine]
    with pytest.raises(ValueError, match="unsupported compression: gzip"):
        offers("gzip", None)
    for wrong in (["permessage-deflate"], "permessage-deflate", 3):
        with pytest.raises(TypeError, match="extensions"):
            offers("deflate", wrong)


# Answers that a server may give (RFC 7692 section 7.1)


ALL = PerMessageDeflate()
NONE = PerMessageDeflate(client_max_window_bits=None)


@pytest.mark.parametrize(
    ("offer", "answer", "agreed"),
    [
        # server_no_context_takeover, client_no_context_takeover, server_max_window_bits, client_max_window_bits
        (ALL, "", (False, False, 15, 15)),
        (ALL, "server_no_context_takeover", (True, False, 15, 15)),
        (ALL, "client_no_context_takeover", (False, True, 15, 15)),
        (ALL, "server_max_window_bits=8", (False, False, 8, 15)),
        (ALL, "server_max_window_bits=15; client_max_window_bits=9", (False, False, 15, 9)),
        (ALL, 'client_max_window_bits="10"', (False, False, 15, 10)),
        (ALL, r'client_max_window_bits="1\0"', (False, False, 15, 10)),
        (NONE, "", (False, False, 15, 15)),
        (PerMessageDeflate(client_max_window_bits=12), "", (False, False, 15, 12)),
        (PerMessageDeflate(client_max_window_bits=12), "client_max_window_bits=12", (False, False, 15, 12)),
        (PerMessageDeflate(client_max_window_bits=12), "client_max_window_bits=9", (False, False, 15, 9)),
        (PerMessageDeflate(client_no_context_takeover=True), "", (False, True, 15, 15)),
        (
            PerMessageDeflate(True, True, 10),
            "server_max_window_bits=10;server_no_context_takeover;client_no_context_takeover",
            (True, True, 10, 15),
        ),
        (PerMessageDeflate(server_max_window_bits=10), "server_max_window_bits=9", (False, False, 9, 15)),
    ],
)
def test_an_answer_to_the_offer(offer, answer, agreed):
    result = negotiate("permessage-deflate" + (f"; {answer}" if answer else ""), [offer])
    assert agreed == (
        result.server_no_context_takeover,
        result.client_no_context_takeover,
        result.server_max_window_bits,
        result.client_max_window_bits,
    )


@pytest.mark.parametrize(
    ("offer", "answer", "exception"),
    [
        (ALL, "server_max_window_bits", InvalidParameterValue),
        (ALL, "client_max_window_bits", InvalidParameterValue),
        *(
            (ALL, f"{end}_max_window_bits={bits}", InvalidParameterValue)
            for end in ("server", "client")
            for bits in ("7", "16", "08", "1_0", "nine", '""', "+9", "٩")
            if bits not in ('""', "٩")
        ),
        (ALL, "server_no_context_takeover=1", InvalidParameterValue),
        (ALL, "client_no_context_takeover=true", InvalidParameterValue),
        (ALL, "server_no_context_takeover; server_no_context_takeover", DuplicateParameter),
        (ALL, "client_no_context_takeover; client_no_context_takeover", DuplicateParameter),
        (ALL, "server_max_window_bits=9; server_max_window_bits=9", DuplicateParameter),
        (ALL, "client_max_window_bits=9; client_max_window_bits=10", DuplicateParameter),
        (ALL, "window_bits=9", InvalidParameterName),
        (ALL, "Server_max_window_bits=9", InvalidParameterName),
        (NONE, "client_max_window_bits=15", NegotiationError),
        (PerMessageDeflate(client_max_window_bits=10), "client_max_window_bits=11", NegotiationError),
        (PerMessageDeflate(server_max_window_bits=10), "", NegotiationError),
        (PerMessageDeflate(server_max_window_bits=10), "server_max_window_bits=11", NegotiationError),
        (PerMessageDeflate(server_no_context_takeover=True), "", NegotiationError),
    ],
)
def test_what_is_no_answer_to_the_offer(offer, answer, exception):
    with pytest.raises(exception) as caught:
        negotiate("permessage-deflate" + (f"; {answer}" if answer else ""), [offer])
    assert kind_of(caught.value) is exception


@pytest.mark.parametrize(
    "header",
    [
        "permessage-deflate;",
        "permessage-deflate; =9",
        "permessage-deflate; server_max_window_bits=",
        'permessage-deflate; server_max_window_bits=""',
        'permessage-deflate; server_max_window_bits="9',
        'permessage-deflate; server_max_window_bits="9 "',
        'permessage-deflate; server_max_window_bits="9"0',
        "permessage-deflate server_max_window_bits=9",
        "permessage-deflate; server_max_window_bits=٩",
        "permessage deflate",
        "\xe9",
    ],
)
def test_a_header_that_breaks_the_grammar(header):
    with pytest.raises(InvalidHeaderFormat):
        negotiate(header, [ALL])


@pytest.mark.parametrize("header", [None, "", " ", ",", ", ,\t,"])
def test_no_answer(header):
    assert negotiate(header, [ALL]) is None


def test_an_answer_among_empty_elements():
    assert (
        negotiate(", permessage-deflate ;\tclient_max_window_bits = 9 ,,", [ALL]).client_max_window_bits == 9
    )


def test_what_was_not_offered():
    for header, offered in (("permessage-deflate", []), ("x-webkit-deflate-frame", [ALL])):
        with pytest.raises(NegotiationError, match="extension that wasn't offered"):
            negotiate(header, offered)
    with pytest.raises(NegotiationError, match="permessage-deflate twice"):
        negotiate("permessage-deflate, permessage-deflate", [ALL, NONE])


def test_of_several_offers_the_first_that_fits_is_meant():
    small = PerMessageDeflate(server_max_window_bits=10)
    assert negotiate("permessage-deflate", [small, NONE]).options is NONE
    assert negotiate("permessage-deflate; server_max_window_bits=9", [small, NONE]).options is small
    with pytest.raises(NegotiationError, match="did not accept server_max_window_bits"):
        negotiate("permessage-deflate", [small, small])


# Streams


def agreed(library="zlib", server_bits=15, client_bits=15, **options):
    answer = [("server_max_window_bits", str(server_bits)), ("client_max_window_bits", str(client_bits))]
    answer += [(name, None) for name in options if name.endswith("no_context_takeover")]
    return PerMessageDeflate(library=library, **options).accept(answer)


class Server:
    """Compresses as a server does, by zlib."""

    def __init__(self, bits=15, takeover=True, level=6):
        self.bits, self.takeover, self.level = max(bits, 9), takeover, level
        self.stream = None

    def fragment(self, data, fin=True):
        if self.stream is None:
            self.stream = zlib.compressobj(level=self.level, wbits=-self.bits)
        deflated = self.stream.compress(data) + self.stream.flush(zlib.Z_SYNC_FLUSH)
        if fin and not self.takeover:
            self.stream = None
        return deflated  # with the tail

    def message(self, data):
        deflated = self.fragment(data)
        return deflated if deflated else b"\x00" + TAIL


def inflate(inflater, deflated, limit=1 << 40, fin=True, current=None):
    return inflater.inflate(deflated, len(deflated), limit, fin, current)


def ticks(size, count, seed=1):
    """Messages of about `size` bytes that resemble each other."""
    rng = random.Random(seed)
    return [
        b",".join(
            b'["%d.%02d","%d"]' % (rng.randrange(43000, 43100), rng.randrange(100), rng.randrange(9999))
            for _ in range(max(1, size // 19))
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("library", [*LIBRARIES, None])
@pytest.mark.parametrize("size", [0, 60, 3000])
@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("bits", [8, 9, 12, 15])
def test_messages_of_a_server(library, size, takeover, bits):
    options = {} if takeover else {"server_no_context_takeover": True}
    inflater = Inflater(agreed(library, bits, **options))
    server = Server(bits, takeover)
    for message in [b"", *ticks(size, 50), b""] if size else [b""] * 50:
        assert inflate(inflater, server.message(message)) == message


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("bits", [9, 15])
def test_messages_of_the_client(library, takeover, bits):
    options = {} if takeover else {"client_no_context_takeover": True}
    deflater = Deflater(agreed(library, 15, bits, **options))
    assert deflater.threshold == 1024
    stream = zlib.decompressobj(wbits=-bits)
    for message in [b"", *ticks(500, 20), b"", b"", bytes(100_000)]:
        deflated = deflater.deflate(message, True)
        assert deflated.endswith(TAIL)
        if not takeover:
            stream = zlib.decompressobj(wbits=-bits)
        assert stream.decompress(deflated) == message
        assert not stream.unused_data


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_client_compresses_what_it_is_given_as_it_is_told(library):
    data = b"".join(ticks(5000, 4))
    sizes = {
        level: len(Deflater(agreed(library, level=level)).deflate(data, True)) for level in (None, 0, 1, 3)
    }
    assert sizes[3] < sizes[0] < len(data) + 100
    assert sizes[None] < len(data)


@pytest.mark.parametrize("library", LIBRARIES)
def test_after_a_reset_nothing_refers_to_what_was_lost(library):
    deflater = Deflater(agreed(library))
    first, lost, last = ticks(300, 3)
    stream = zlib.decompressobj(wbits=-15)
    assert stream.decompress(deflater.deflate(first, True)) == first
    deflater.deflate(lost, True)
    deflater.reset()
    assert stream.decompress(deflater.deflate(last, True)) == last


# The examples of RFC 7692 section 7.2.3


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_examples_of_the_rfc(library):
    examples = [
        "f2 48 cd c9 c9 07 00",  # 7.2.3.1: one block
        "f2 00 11 00 00",  # 7.2.3.2: shares the window with the one before
        "00 05 00 fa ff 48 65 6c 6c 6f 00",  # 7.2.3.3: a block without compression
        "f3 48 cd c9 c9 07 00 00",  # 7.2.3.4: a block with BFINAL
        "f2 48 05 00 00 00 ff ff ca c9 c9 07 00",  # 7.2.3.5: two blocks
    ]
    inflater = Inflater(agreed(library))
    for example in examples:
        assert inflate(inflater, bytes.fromhex(example) + TAIL) == b"Hello"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("last", ["", "00"])
def test_final_blocks(library, last):
    """zlib's Z_FINISH ends a stream; what follows, in the same message or the next, is another one."""
    inflater = Inflater(agreed(library))

    def final(data):
        stream = zlib.compressobj(wbits=-15)
        return stream.compress(data) + stream.flush()

    for _ in range(3):
        message = final(b"Hello") + final(b", world" * 20_000) + bytes.fromhex(last) + TAIL
        assert inflate(inflater, message) == b"Hello" + b", world" * 20_000
    assert inflate(inflater, Server().message(b"and so on")) == b"and so on"


@pytest.mark.parametrize("library", LIBRARIES)
def test_too_many_final_blocks(library):
    with pytest.raises(ProtocolError, match="final blocks"):
        inflate(Inflater(agreed(library)), bytes.fromhex("0300") * 10_000 + TAIL)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "garbage",
    [
        "ff ff ff ff",  # no such type of block
        "00 05 00 00 00 48 65 6c 6c 6f",  # length and its complement differ
        "f3 48 cd c9 c9 07 00 ff ff",  # after a final block
    ],
)
def test_garbage(library, garbage):
    with pytest.raises(ProtocolError, match="decompression failed") as caught:
        inflate(Inflater(agreed(library)), bytes.fromhex(garbage) + TAIL)
    assert caught.value.code == 1002


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_server_that_refers_to_what_it_never_sent(library):
    message = random.Random(1).randbytes(500)
    stream = zlib.compressobj(wbits=-15, zdict=message)
    deflated = stream.compress(message) + stream.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(ProtocolError, match="decompression failed"):
        inflate(Inflater(agreed(library)), deflated)


@pytest.mark.parametrize("library", ["zlib", "zlib-ng"])
def test_a_server_that_refers_to_more_than_its_window(library):
    """isal remembers more than it must."""
    inflater, server, message = Inflater(agreed(library, 10)), Server(15), random.Random(1).randbytes(5000)
    assert inflate(inflater, server.message(message)) == message
    with pytest.raises(ProtocolError, match="too far back"):
        inflate(inflater, server.message(message))


# Limits


SIZES = [1, 2, 100, 65536, 262_143, 262_144, 262_145, 600_000]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["bomb", "noise", "mixed"])
def test_limits_are_exact(library, size, kind):
    noise = random.Random(size).randbytes(size)
    message = {"bomb": bytes(size), "noise": noise, "mixed": (b"ab" * size + noise)[-size:]}[kind]
    for limit in (0, size - 2, size - 1):
        if 0 <= limit < size:
            with pytest.raises(PayloadTooBig) as caught:
                inflate(Inflater(agreed(library)), Server().message(message), limit)
            assert (caught.value.size, caught.value.max_size, caught.value.code) == (None, limit, 1009)
    for limit in (size, size + 1, size + 2):
        inflater, server = Inflater(agreed(library)), Server()
        assert inflate(inflater, server.message(message), limit) == message
        assert inflate(inflater, server.message(b"next"), limit=4) == b"next"


def test_the_limit_of_a_fragment_tells_of_those_before_it():
    with pytest.raises(PayloadTooBig, match="after reading 30 bytes exceeds limit of 40 bytes"):
        inflate(Inflater(agreed()), Server().message(bytes(11)), 10, current=30)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_bomb_costs_the_limit_and_a_block(library, pieces):
    limit = 1 << 20
    bomb = Server().message(bytes(100 << 20))
    inflater = Inflater(agreed(library))
    inflate(inflater, Server().message(b"warm up"))
    size = -(-len(bomb) // pieces)

    def inflate_all():
        left = limit
        for start in range(0, len(bomb), size):
            left -= len(inflate(inflater, bomb[start : start + size], left, start + size >= len(bomb)))

    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooBig):
            inflate_all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit + (1 << 20)  # a block, what the library grows it by, and a piece of the input


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_long_message_is_in_memory_once(library):
    size = 16 << 20
    message = Server().message(bytes(size))
    inflater = Inflater(agreed(library))
    inflate(inflater, Server().message(b"warm up"))
    tracemalloc.start()
    try:
        assert len(inflate(inflater, message, size)) == size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size * 5 // 4  # what grows is given an eighth more than it needs


# The choice of the library


@pytest.mark.parametrize(("size", "library"), [(300, "zlib-ng"), (3000, "isal")])
@pytest.mark.parametrize("takeover", [True, False])
def test_the_size_of_messages_decides(size, library, takeover):
    options = {} if takeover else {"server_no_context_takeover": True}
    deal = agreed(None, **options)
    inflater, server = Inflater(deal), Server(takeover=takeover)
    assert (deal.inflating, deal.deflating) == ("zlib-ng", "zlib-ng")
    for message in ticks(size, 31):
        assert inflate(inflater, server.message(message)) == message
    assert deal.inflating == "zlib-ng"
    for message in ticks(size, 31):
        assert inflate(inflater, server.message(message)) == message
    assert (deal.inflating, deal.deflating) == (library, "zlib-ng")


def test_a_library_that_was_named_stays():
    for library in LIBRARIES:
        deal = agreed(library)
        inflater, server = Inflater(deal), Server()
        for message in ticks(3000, 40):
            inflate(inflater, server.message(message))
        assert (deal.inflating, deal.deflating) == (library, library)


# Whatever is sent arrives


@settings(max_examples=60, deadline=None)
@given(
    library=st.sampled_from([*LIBRARIES, None]),
    takeover=st.booleans(),
    bits=st.integers(9, 15),
    level=st.integers(0, 9),
    messages=st.lists(
        st.tuples(
            st.sampled_from([b"", b"a", b"price: 43000.12;", bytes(range(256))]),
            st.integers(1, 300),
            st.lists(st.integers(0, 4000), max_size=4),
        ),
        max_size=40,
    ),
)
def test_messages_in_fragments(library, takeover, bits, level, messages):
    """Fragments may be cut anywhere in the compressed bytes."""
    options = {} if takeover else {"server_no_context_takeover": True}
    inflater, server = Inflater(agreed(library, bits, **options)), Server(bits, takeover, level)
    for piece, count, cuts in messages:
        message = piece * count
        deflated = server.message(message)
        cuts = sorted(cut % (len(deflated) - len(TAIL) + 1) for cut in cuts)
        received, left = b"", len(message)
        for start, end in zip([0, *cuts], [*cuts, len(deflated)]):
            part = inflate(inflater, deflated[start:end], left, end == len(deflated))
            received += part
            left -= len(part)
        assert received == message


@settings(max_examples=300, deadline=None)
@given(library=st.sampled_from(LIBRARIES), garbage=st.binary(max_size=200), limit=st.integers(0, 2000))
def test_garbage_of_any_kind(library, garbage, limit):
    """It is refused or inflated, never to more than the limit, and nothing else happens."""
    with contextlib.suppress(ProtocolError):
        assert len(inflate(Inflater(agreed(library)), garbage + TAIL, limit)) <= limit


def test_the_agreement_is_shown():
    shown = repr(agreed("zlib", 12, 11))
    assert shown.startswith(
        "AgreedDeflate(server_no_context_takeover=False, client_no_context_takeover=False"
    )
    assert "inflating='zlib'" in shown
    assert not AgreedDeflate(False, False, 15, 8, PerMessageDeflate()).can_compress

"""Writes the first corpora: every kind of frame that the tests know, legal and not, in the form that each target reads.

``python -m fuzz.seeds``, with tests/ on the path; again when the input of a target changes. It writes to
build/fuzz/corpus. `make fuzz-minimise` folds that, with what the fuzzers have found, into the kept corpora.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from support import frames
from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame, header

from fuzz.handshake import ACCEPT

FOUND = Path(__file__).parents[2] / "build/fuzz/corpus"

TEXTS = [
    b"",
    b"a",
    "κόσμε".encode(),
    "Hello-µ@ßöäüàá-UTF-8!!".encode(),
    "\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode(),
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xf8\x88\x80\x80\x80",
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
    b"a" * 33 + b"\xc3\xa9" + b"b" * 40,
    b"a" * 16 + b"\xff",
    b"\x80",
    b"\xe2\x82",
]


def streams() -> Iterator[bytes]:
    """What servers say: one frame each, then conversations."""
    for opcode in range(16):
        for fin in (True, False):
            yield frame(opcode, b"payload", fin=fin)
    for size in (0, 1, 125, 126, 127, 1000):
        for opcode in (TEXT, BINARY, PING):
            yield frame(opcode, b"x" * size)
    for rsv in range(1, 8):
        yield frame(TEXT, b"rsv", rsv=rsv)
        yield frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b", rsv=rsv)
    for form, size in ((16, 1), (16, 125), (64, 1), (64, 65535), (64, 65536), (64, 2**31), (64, 2**63 - 1)):
        yield header(BINARY, size, form=form)
    yield b"\x82\x7f" + b"\xff" * 8
    yield frames.masked(TEXT, b"from a server")
    for code in (0, 999, 1000, 1001, 1004, 1005, 1006, 1007, 1015, 1016, 2999, 3000, 4999, 5000, 65535):
        yield frames.close(code, "reason")
    yield frames.close()
    yield frame(CLOSE, b"\x03")
    yield frames.close(1000, b"\xff")
    yield frames.close(1000, b"r" * 123)
    fragments = frame(TEXT, b"one ", fin=False) + frame(CONTINUATION, b"two ", fin=False)
    last = frame(CONTINUATION, b"three")
    yield fragments + last + frames.text(b"four") + frames.close(1000)
    yield fragments + frame(PING, b"?") + last + frame(PONG, b"!") + frames.binary(b"\x00\xff")
    yield fragments + frames.text(b"interleaved")
    yield last
    yield b"".join(frame(PING, bytes([i])) for i in range(40)) + frames.text(b"after")
    yield b"".join(frames.text(text) for text in TEXTS)
    for text in TEXTS:
        cut = len(text) // 2
        yield frame(TEXT, text[:cut], fin=False) + frame(CONTINUATION, text[cut:])


def compressed() -> Iterator[bytes]:
    """The same with permessage-deflate."""
    stream = zlib.compressobj(wbits=-15)

    def deflated(payload: bytes) -> bytes:
        return (stream.compress(payload) + stream.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")

    hello = deflated(b"Hello, world! " * 9)
    yield frame(TEXT, hello, rsv=4)
    yield (
        frame(TEXT, hello, rsv=4) + frame(TEXT, deflated(b"Hello, world! " * 9), rsv=4) + frames.text("plain")
    )
    cut = frame(TEXT, hello[:9], rsv=4, fin=False), frame(CONTINUATION, hello[9:])
    yield frame(PING, b"?").join(cut) + frames.close(1000)
    yield frame(CONTINUATION, b"", fin=False).join(cut) + frame(BINARY, b"\x00", rsv=4)
    yield cut[0] + frame(CONTINUATION, hello[9:], rsv=4)
    yield frame(PING, b"?", rsv=4)
    yield frame(TEXT, b"\xff" * 8, rsv=4)
    yield frame(TEXT, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", rsv=4) * 2  # RFC 7692 section 7.2.3.4
    yield frame(BINARY, b"\x00\x05\x00\xfa\xffHello\x00", rsv=4)
    for text in TEXTS:
        yield frame(TEXT, deflated(text), rsv=4)


def replies() -> Iterator[bytes]:
    """What servers answer to the upgrade request."""
    upgrade, connection = b"Upgrade: websocket\r\n", b"Connection: Upgrade\r\n"
    accept = b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n"
    status = b"HTTP/1.1 101 Switching Protocols\r\n"
    good = status + upgrade + connection + accept
    yield good + b"\r\n"
    yield good + b"\r\n" + frames.text("hello") + frames.close(1000)
    yield good.replace(b"\r\n", b"\n") + b"\n"
    yield status + b"upgrade: WebSocket\r\nconnection: keep-alive, upgrade\r\n" + accept + b"\r\n"
    for missing in (upgrade, connection, accept):
        yield good.replace(missing, b"") + b"\r\n"
        yield good + missing + b"\r\n"
    for protocol in (b"chat", b"v2.superchat", b"other", b"", b"chat, v2.superchat"):
        yield good + b"Sec-WebSocket-Protocol: " + protocol + b"\r\n\r\n"
    for extension in (
        b"permessage-deflate",
        b'x-other; note="c, d"',
        b"unknown",
        b"permessage-deflate, unknown; a",
    ):
        yield good + b"Sec-WebSocket-Extensions: " + extension + b"\r\n\r\n"
    yield good.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n"
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + good + b"\r\n"
    yield b"HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nsorry and more"
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
    yield b"HTTP/1.1 503 \r\nRetry-After: 3\r\n\r\nuntil the end"
    yield b"HTTP/1.1 302 Found\r\nLocation: wss://elsewhere/\r\nContent-Length: 0\r\n\r\n"
    yield b"HTTP/1.1 204 No Content\r\n\r\n"
    yield b"HTTP/1.1 999 ?\r\nContent-Length: x\r\n\r\n"
    yield good + b"Folded: a\r\n b\r\n\r\n"
    yield good + "X: żółw\r\n".encode() + b"Y: \xff\x80\r\n\r\n"
    yield good + b"Bad Name: x\r\n\r\n"
    yield good + b"NoColon\r\n\r\n"
    yield good + b"X: nul\x00\r\n\r\n"
    yield good + b"X: " + b"y" * 3000 + b"\r\n\r\n"
    yield good + b"X: 1\r\n" * 150 + b"\r\n"
    yield b"\x15\x03\x03\x00\x02\x02\x46"
    yield b"SSH-2.0-OpenSSH_9.2\r\n"
    yield b"\x81\x05hello"


def answers() -> Iterator[bytes]:
    """What servers answer to an offer of permessage-deflate."""
    name = b"permessage-deflate"
    parameters = [
        b"server_no_context_takeover",
        b"client_no_context_takeover",
        *(b"server_max_window_bits=%d" % bits for bits in (7, 8, 9, 12, 15, 16)),
        *(b"client_max_window_bits=%d" % bits for bits in (8, 9, 10, 15)),
        b'server_max_window_bits="10"',
        b"server_max_window_bits",
        b"client_max_window_bits=010",
        b"client_no_context_takeover=1",
        b"unknown",
        b'quoted="a, b"',
    ]
    yield name
    yield name + b", " + name
    yield name + b" ;; x"
    yield b"x-webkit-deflate-frame"
    for number, one in enumerate(parameters):
        yield name + b"; " + one
        yield name + b"; " + one + b" ;" + parameters[number - 1]
        yield name + b";" + one + b";" + one


def tunnels() -> Iterator[bytes]:
    """What proxies answer to CONNECT."""
    for version in (b"1.0", b"1.1", b"1.2", b"2.0"):
        yield b"HTTP/" + version + b" 200 Connection established\r\n\r\n"
    for status in (101, 199, 200, 204, 226, 299, 300, 302, 403, 407, 502, 599, 999):
        yield b"HTTP/1.1 %d \r\nVia: x\r\n\r\n" % status
        yield b"HTTP/1.1 %d No\r\nContent-Length: 3\r\n\r\nbody of the server" % status
    challenge = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\n"
    yield challenge + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\x16\x03\x01"
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"
    yield b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n"
    yield b"HTTP/1.1 200 OK\n\n"
    yield b"HTTP/1.1 200 OK\r\nX: nul\x00\r\n\r\n"
    yield b"\x15\x03\x03\x00\x02\x02\x46"
    yield b"\x05\x00"
    yield b"SSH-2.0-OpenSSH_9.2\r\n"


def locations() -> Iterator[bytes]:
    """Where servers redirect to."""
    hosts = [b"exchange.example", b"EXCHANGE.example.", b"8.8.8.8", b"127.0.0.1", b"127.1", b"0x7f000001"]
    hosts += [b"[::1]", b"[::ffff:127.0.0.1]", b"[fe80::1%25eth0]", b"localhost", "bücher.example".encode()]
    hosts += [
        b"127%2e0.0.1",
        b"1\xe3\x80\x822.3.4",
        b"8.8.8.8@127.0.0.1",
        b"8.8.8.8\\@127.0.0.1",
        b"8.8.8.8#@127.0.0.1",
    ]
    for host in hosts:
        for scheme in (b"ws:", b"wss:", b"http:", b"https:", b""):
            yield scheme + b"//" + host + b"/"
        yield b"wss://eve:evil@" + host + b":443/x?y#z"
    for port in (b"", b"0", b"65535", b"65536", b"8443", b"+1", b"\xd9\xa1"):
        yield b"wss://exchange.example:" + port + b"/"
    yield from (
        b"",
        b"/",
        b"?",
        b"#",
        b"..",
        b"../../x",
        b"//",
        b"///",
        b"//@",
        b"/%0d%0aX: y",
        b"/\xff",
        b"?a=b c",
    )
    yield from (
        b"ws:",
        b"wss:/",
        b"wss:exchange.example",
        b"javascript:0",
        b"file:///etc",
        b"ws+unix:///x",
        b"/\x85",
    )


def seeds() -> Iterator[tuple[str, bytes]]:
    for stream in streams():
        yield from (("connection", bytes([8 * 5 + face]) + stream) for face in range(4))
        yield "frame", b"\x05\x00" + stream  # no RSV bits, a limit of 65535
        yield "frame", b"\xc9\x07" + stream  # RSV1, inside a message, no limit
        yield "message", bytes([5 | 6 << 3, 7]) + stream  # messages of 1000 bytes, frames of 70000
        yield "message", bytes([3 | 2 << 3, 1]) + stream  # messages of 125 bytes, frames of 5
        yield "message", bytes([2 | 5 << 3, 3]) + stream  # messages of 5 bytes
    for stream in compressed():
        yield "connection", bytes([8 * 0 + 4]) + stream
        yield "connection", bytes([8 * 5 + 4]) + stream
        yield "message", bytes([0x80 | 5 | 5 << 3, 7]) + stream  # RSV1
        yield "message", bytes([0x80 | 2 | 2 << 3, 7]) + stream
    for text in TEXTS:
        yield "utf8", b"\x00" + text
        yield "utf8", b"\x03" + text * 3

    for number, answer in enumerate(answers()):
        yield "negotiation", bytes([number % 6]) + answer
    for reply in replies():
        yield "handshake", b"\x09" + reply
    for reply in tunnels():
        yield "tunnel", b"\x09" + reply
    for number, place in enumerate(locations()):
        yield "location", bytes([number]) + place


if __name__ == "__main__":
    for target, data in seeds():
        folder = FOUND / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)

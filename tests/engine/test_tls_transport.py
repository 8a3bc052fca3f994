"""wsfast's own TLS beneath the engine: records however they come, and every end that TLS has."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support import certificates, frames, proxies
from support.blocking import in_thread
from support.faces import FACES
from support.listeners import Recorder, Scripted
from support.servers import Peer, echo, serve
from support.tls_peer import WRONG, TLSPeer, cut, text, until_it_ends

from wsfast import TLS, ConnectionClosed, Tuning, WSMsgType, ws_connect
from wsfast._engine.sockets.tls_transport import TLSSession, TLSTransport
from wsfast._opening.tls import rustls

pytestmark = pytest.mark.memory

TEXT = WSMsgType.TEXT


@asynccontextmanager
async def connected(
    listener: Recorder,
    script: Callable[[TLSPeer], Any],
    *,
    context: ssl.SSLContext | None = None,
    settings: TLS | None = None,
    **options: Any,
) -> AsyncIterator[Any]:
    """A listener that is connected to a server, which goes on with `script`, and the server's result."""

    async def handler(peer: Peer) -> object:
        secure = TLSPeer(peer, context)
        await secure.accept()
        return await script(secure)

    async with serve(handler) as served:
        transport, _ = await ws_connect(
            lambda: listener,
            served.url.replace("ws:", "wss:"),
            ssl_context=settings or certificates.client_settings(),
            **options,
        )
        assert type(transport.underlying_transport) is TLSTransport
        yield transport, served


def old() -> ssl.SSLContext:
    """A server that speaks TLS 1.2."""
    context = certificates.server_context.__wrapped__()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


versions = pytest.mark.parametrize("context", [None, old], ids=["TLS 1.3", "TLS 1.2"])


async def closing(server: TLSPeer) -> None:
    """Answer CLOSE, and the end of TLS."""
    payload = (await server.frames(1))[0]
    server.send(server.records(frames.frame(frames.CLOSE, payload)))
    assert await server.read() == b""
    server.send(server.end())


async def finish(transport) -> None:
    transport.disconnect()
    await transport.wait_disconnected()


# ---- records


@versions
async def test_records_a_byte_at_a_time(context):
    payloads = [b"a", b"b" * 500, b"c" * 20_000]

    async def script(server):
        for payload in payloads:
            wire = server.records(text(payload))
            for place in range(0, len(wire), 1 if len(payload) < 1000 else 977):
                server.send(wire[place : place + (1 if len(payload) < 1000 else 977)])
                await asyncio.sleep(0)
        await closing(server)

    listener = Recorder()
    async with connected(listener, script, context=context and context()) as (transport, served):
        await listener.received(3)
        assert listener.payloads == payloads
        await finish(transport)
        await served.result()
    assert transport.close_info.cause is None


@versions
@pytest.mark.parametrize("max_read_size", [None, 1, 100, 5000])
async def test_many_records_at_once(context, max_read_size):
    payloads = [b"%d" % number for number in range(300)] + [frames.pattern(300_000), b"end"]

    async def script(server):
        server.send(b"".join(server.records(text(payload)) for payload in payloads[:300]))
        server.send(server.records(frames.binary(payloads[300])) + server.records(text("end")))
        await closing(server)

    if max_read_size == 1:
        payloads[300] = frames.pattern(3000)
    options = {} if max_read_size is None else {"tuning": Tuning(max_read_size=max_read_size)}
    listener = Recorder()
    async with connected(listener, script, context=context and context(), **options) as (transport, served):
        await listener.received(len(payloads))
        assert listener.payloads == payloads
        await finish(transport)
        await served.result()


async def test_what_came_with_the_reply_is_delivered():
    async def handler(peer: Peer) -> None:
        server = TLSPeer(peer)
        await server.accept(glued=b"")
        await closing(server)

    async def glued(peer: Peer) -> None:
        server = TLSPeer(peer)
        send, server.send = server.send, lambda wire: None if not wire else kept.append(wire)
        kept: list[bytes] = []
        handshake = asyncio.ensure_future(server.accept())
        while not handshake.done():  # whatever it sends, it sends at once, and the frame with the reply
            await asyncio.sleep(0)
            if kept and not handshake.done():
                send(b"".join(kept))
                kept.clear()
        send(b"".join(kept) + server.records(text("at once")) + server.end())
        server.send = send
        await server.read()

    listener = Recorder()
    async with serve(glued) as served:
        transport, _ = await ws_connect(
            lambda: listener, served.url.replace("ws:", "wss:"), ssl_context=certificates.client_settings()
        )
        await listener.received(1)
        await transport.wait_disconnected()
        assert listener.payloads == [b"at once"]


async def test_a_ticket_in_pieces_while_something_is_sent():
    """rustls is asked for a record while it has seen a part of a handshake message."""
    issued = certificates.authority().issue_cert("client@a-rather-long-name.example")
    context = certificates.server_context.__wrapped__()
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority().configure_trust(context)

    async def script(server):
        pieces = cut(server.ticket(512))
        assert len(pieces) > 1, "the ticket is too small to be cut"
        for piece in pieces:
            server.send(piece)
            server.send(b"")
            told.set()
            got.extend(await server.frames(1))
        server.send(server.records(text("end")))
        await closing(server)

    got: list[bytes] = []
    told = asyncio.Event()
    listener = Recorder()
    with issued.private_key_and_cert_chain_pem.tempfile() as pem:
        settings = certificates.client_settings(pem)
        async with connected(listener, script, context=context, settings=settings) as (transport, served):
            number = 0
            while not listener.frames:
                await told.wait()
                told.clear()
                for _ in range(5):
                    await asyncio.sleep(0.001)
                transport.send(TEXT, f"{number}")
                number += 1
                if number > 1:
                    await listener.until(lambda: listener.frames or told.is_set())
            assert listener.payloads == [b"end"]
            await finish(transport)
            await served.result()
    assert got == [b"%d" % number for number in range(len(got))]


async def test_the_key_changes():
    async def script(server):
        for number in range(5):
            server.send(server.key_update() + server.records(text(f"{number}")))
        got = await server.frames(5)
        await closing(server)
        return got

    listener = Scripted(on_ws_frame=lambda self, transport, frame: transport.send(TEXT, bytes(frame)))
    async with connected(listener, script) as (transport, served):
        await listener.received(5)
        await finish(transport)
        assert await served.result() == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_flood_of_key_updates_is_an_error():
    async def script(server):
        server.send(b"".join(server.key_update() for _ in range(200)))
        return await until_it_ends(server)

    listener = Recorder()
    async with connected(listener, script) as (transport, served):
        await transport.wait_disconnected()
        assert await served.result() != "close_notify"
    assert type(transport.close_info.cause) is ssl.SSLError


async def test_renegotiation_is_refused():
    async def script(server):
        server.send(server.renegotiate())
        return await until_it_ends(server)

    listener = Recorder()
    async with connected(listener, script, context=old()) as (transport, served):
        assert "no renegotiation" in await served.result()
        await transport.wait_disconnected()
    assert type(transport.close_info.cause) is EOFError


# ---- what goes wrong


@versions
@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_no_record_ends_the_connection(wrong, context):
    async def script(server):
        server.send(server.records(text("good")) + WRONG[wrong](server))
        return await until_it_ends(server)

    listener = Recorder()
    async with connected(listener, script, context=context and context()) as (transport, served):
        await transport.wait_disconnected()
        told = await served.result()
    cause = transport.close_info.cause
    assert type(cause) is ssl.SSLError
    assert cause.errno == ssl.SSL_ERROR_SSL
    assert cause.library == "SSL"
    assert cause.reason in str(cause)
    assert listener.payloads[0] == b"good"
    assert "alert" in told, "the server is told why"


async def test_an_alert_is_told_in_openssl_s_words():
    """The server refuses the client for its lack of a certificate, after the handshake as the client sees it."""
    context = certificates.server_context.__wrapped__()
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority().configure_trust(context)

    async def handler(peer: Peer) -> None:
        server = TLSPeer(peer, context)
        with pytest.raises(ssl.SSLError):
            await server.accept()
        server.send(server.records(b""))

    async with serve(handler) as served:
        with pytest.raises(ssl.SSLError, match="alert certificate required") as caught:
            await ws_connect(
                Recorder, served.url.replace("ws:", "wss:"), ssl_context=certificates.client_settings()
            )
        await served.result()
    assert caught.value.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"


@pytest.mark.parametrize("cut_at", [None, 10], ids=["between records", "in a record"])
async def test_an_end_without_close_notify(cut_at):
    async def script(server):
        server.send(server.records(text("last")))
        if cut_at:
            server.send(server.records(text("x" * 100))[:cut_at])
        server.peer.writer.close()

    listener = Recorder()
    async with connected(listener, script) as (transport, _):
        await transport.wait_disconnected()
    assert listener.payloads == [b"last"]
    assert type(transport.close_info.cause) is EOFError


async def test_close_notify_with_the_last_data():
    async def script(server):
        server.send(server.records(text("last")) + server.end() + b"what follows means nothing")
        while await server.read():
            pass

    listener = Recorder()
    async with connected(listener, script) as (transport, served):
        await transport.wait_disconnected()
        await served.result()  # it got close_notify
    assert listener.payloads == [b"last"]
    assert type(transport.close_info.cause) is EOFError


@pytest.mark.parametrize("end", ["CLOSE", "EOF", "garbage"])
async def test_within_the_tls_of_a_proxy(end):
    """Whatever the proxy says, it is the server that must say that nothing follows."""
    payloads = [b"%d" % number for number in range(50)] + [frames.pattern(300_000)]

    async def script(server):
        server.send(
            b"".join(server.records(text(payload)) for payload in payloads[:50]) + server.key_update()
        )
        server.send(server.records(frames.binary(payloads[50])))
        got = await server.frames(2)
        if end == "CLOSE":
            await closing(server)
        elif end == "garbage":
            server.send(b"garbage that is no record")
            await until_it_ends(server)
        return got

    listener = Recorder()
    with proxies.http(certificates.server_context()) as proxy:
        options = {"proxy": proxy.url, "proxy_ssl_context": certificates.client_settings()}
        async with connected(listener, script, **options) as (transport, served):
            transport.send(WSMsgType.BINARY, payloads[50])
            transport.send(TEXT, "last")
            await listener.received(len(payloads))
            if end == "CLOSE":
                await finish(transport)
            await transport.wait_disconnected()
            assert await served.result() == [payloads[50], b"last"]
    assert listener.payloads == payloads
    cause = {"CLOSE": type(None), "EOF": EOFError, "garbage": ssl.SSLError}[end]
    assert type(transport.close_info.cause) is cause


# ---- callbacks in the middle of what was decrypted


def flight(server: TLSPeer, count: int = 20) -> bytes:
    return b"".join(server.records(text(f"{number}")) for number in range(count))


@pytest.mark.parametrize("how", ["disconnect", "abort", "close", "transport abort"])
@pytest.mark.parametrize("size", [1 << 20, 7])
async def test_a_callback_that_ends_it(how, size):
    async def script(server):
        server.send(flight(server))
        await until_it_ends(server)

    def end(self, transport, frame):
        if len(self.frames) == 3:
            if how == "close":
                transport.underlying_transport.close()
            elif how == "transport abort":
                transport.underlying_transport.abort()
            else:
                getattr(transport, how)()

    listener = Scripted(on_ws_frame=end)
    async with connected(listener, script, tuning=Tuning(max_read_size=size), close_timeout=0.05) as (
        transport,
        served,
    ):
        await transport.wait_disconnected()
        await served.result()
    if how in ("disconnect", "abort"):
        assert len(listener.frames) == 3


@pytest.mark.parametrize("size", [1 << 20, 7])
async def test_a_callback_that_polls(size):
    async def script(server):
        server.send(flight(server))
        await closing(server)

    def nested(self, transport, frame):
        assert frame.get_payload_as_bytes() == b"%d" % (len(self.frames) - 1)
        if len(self.frames) % 3 == 1 and len(self.frames) < 20:
            assert transport.poll(5)

    listener = Scripted(on_ws_frame=nested)
    async with connected(listener, script, tuning=Tuning(max_read_size=size)) as (transport, served):
        await listener.received(20)
        assert listener.payloads == [b"%d" % number for number in range(20)]
        await finish(transport)
        await served.result()


@pytest.mark.parametrize("size", [1 << 20, 7])
@pytest.mark.parametrize("end", ["close_notify", "EOF", "garbage"])
async def test_a_callback_that_pauses_reading(size, end):
    async def script(server):
        wire = flight(server) + (server.end() if end == "close_notify" else b"")
        server.send(wire + (b"garbage that is no record" * 10 if end == "garbage" else b""))
        if end == "EOF":
            server.peer.writer.close()
            return
        await until_it_ends(server)

    def pause(self, transport, frame):
        if len(self.frames) == 3:
            transport.underlying_transport.pause_reading()

    listener = Scripted(on_ws_frame=pause)
    async with connected(listener, script, tuning=Tuning(max_read_size=size)) as (transport, served):
        await listener.received(3)
        for _ in range(10):
            await asyncio.sleep(0.001)
        seen = len(listener.frames)
        assert seen == (3 if size == 7 else 20)
        assert "disconnected" not in listener.events
        transport.underlying_transport.resume_reading()
        await transport.wait_disconnected()
        assert listener.payloads == [b"%d" % number for number in range(20)]
        await served.result()
    assert type(transport.close_info.cause) is (ssl.SSLError if end == "garbage" else EOFError)


async def test_a_callback_that_sends_before_an_error_is_told():
    """rustls has failed already, and what came before is not yet delivered: there was no room for it at once."""
    payloads = [b"%d" % number + b"x" * 60 for number in range(20)]

    async def script(server):
        assert await server.frames(1) == [b"go"]
        record = server.records(b"".join(map(text, payloads)))
        size = len(record) - 10  # so the last read takes the end of the record, and what follows it
        server.send(record[:size])
        await asyncio.sleep(0.05)
        server.send(record[size:] + b"garbage that is no record")
        await until_it_ends(server)

    listener = Scripted(on_ws_frame=lambda self, transport, frame: transport.send(TEXT, bytes(frame)))
    async with connected(listener, script, tuning=Tuning(max_read_size=50)) as (transport, served):
        transport.send(TEXT, "go")
        await transport.wait_disconnected()
        await served.result()
    assert listener.payloads == payloads
    assert type(transport.close_info.cause) is ssl.SSLError


async def test_a_callback_that_raises(loop_errors):
    async def script(server):
        server.send(flight(server))
        while await server.read():
            pass
        server.send(server.end())

    def fail(self, transport, frame):
        raise ZeroDivisionError

    async with connected(Scripted(on_ws_frame=fail), script) as (transport, served):
        with pytest.raises(ZeroDivisionError):
            await transport.wait_disconnected()
        await served.result()


# ---- a server that does not read


@versions
async def test_what_the_kernel_does_not_take_is_queued_in_order(context):
    async def script(server):
        server.peer.writer.transport.pause_reading()
        await go.wait()
        server.peer.writer.transport.resume_reading()
        got = await server.frames(60)
        await closing(server)
        return got

    go = asyncio.Event()
    listener = Recorder()
    async with connected(listener, script, context=context and context()) as (transport, served):
        payloads = [frames.pattern(200_000, number) for number in range(60)]
        for payload in payloads:
            transport.send(WSMsgType.BINARY, payload)
        assert listener.events == ["connected", "pause"]
        size = transport.write_buffer_size
        assert 1_000_000 < size < 60 * 200_000 * 1.01
        assert transport.stats.longest_backlog >= size
        go.set()
        assert await served_frames(served, transport) == payloads
    assert "resume" in listener.events
    assert transport.write_buffer_size == 0


async def served_frames(served, transport):
    transport.disconnect()
    got = await served.result()
    await transport.wait_disconnected()
    return got


async def test_close_timeout_ends_what_the_server_does_not_read():
    async def script(server):
        server.peer.writer.transport.pause_reading()
        await transport_gone.wait()
        server.peer.writer.transport.abort()

    transport_gone = asyncio.Event()
    async with connected(Recorder(), script, close_timeout=0.05) as (transport, _):
        for number in range(60):
            transport.send(WSMsgType.BINARY, frames.pattern(200_000, number))
        await finish(transport)
        transport_gone.set()
    assert type(transport.close_info.cause) is TimeoutError


# ---- the asyncio.Transport


async def test_close_says_and_awaits_the_end():
    async def script(server):
        assert await server.read() == b""
        server.send(server.records(text("too late")))
        ended.set()
        await go.wait()
        server.send(server.end())
        return server.unread() + await server.peer.reader.read()

    ended, go = asyncio.Event(), asyncio.Event()
    listener = Recorder()
    async with connected(listener, script) as (transport, served):
        beneath = transport.underlying_transport
        beneath.pause_reading()
        beneath.close()
        beneath.close()
        assert beneath.is_closing()
        assert not transport.is_disconnected
        beneath.write(b"dropped")
        with pytest.raises(ConnectionClosed):
            transport.send(TEXT, "x")
        await ended.wait()
        assert not transport.is_disconnected
        go.set()
        await transport.wait_disconnected()
        assert await served.result() == b"", "a record behind close_notify"
    assert listener.frames == []


async def test_close_does_not_wait_for_ever():
    async def script(server):
        await gone.wait()

    gone = asyncio.Event()
    async with connected(Recorder(), script, ssl_shutdown_timeout=0.05) as (transport, _):
        transport.underlying_transport.close()
        await transport.wait_disconnected()
        gone.set()
    assert type(transport.close_info.cause) is TimeoutError


async def test_write_eof_leaves_reading_open():
    async def script(server):
        assert await server.read() == b""
        server.send(server.records(text("still")))
        await go.wait()
        server.send(server.end())

    go = asyncio.Event()
    listener = Recorder()
    async with connected(listener, script) as (transport, served):
        beneath = transport.underlying_transport
        beneath.write_eof()
        beneath.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            beneath.write(b"x")
        await listener.received(1)
        go.set()
        await transport.wait_disconnected()
        await served.result()


@versions
async def test_what_was_agreed_is_told(context):
    async def script(server):
        await closing(server)
        return server.tls.version(), server.tls.cipher()[0], server.tls.selected_alpn_protocol()

    served_by = (context or certificates.server_context.__wrapped__)()
    served_by.set_alpn_protocols(["http/1.1"])
    settings = TLS(cadata=certificates.authority().cert_pem.bytes().decode(), alpn=["http/1.1"])
    async with connected(Recorder(), script, context=served_by, settings=settings) as (transport, served):
        told = transport.tls
        assert told == transport.underlying_transport.get_extra_info("tls")
        await finish(transport)
        version, cipher, alpn = await served.result()
    assert (told.layer, told.version, told.alpn) == ("rustls", version, alpn)
    assert told.cipher.endswith(cipher.removeprefix("TLS_")) or version == "TLSv1.2"
    assert not told.resumed
    assert ssl.DER_cert_to_PEM_cert(told.certificates[0])
    assert transport.tls == told  # also afterwards


@versions
async def test_sessions_are_resumed(context):
    rustls._configs.clear()
    async with serve(echo, ssl_context=(context or certificates.server_context.__wrapped__)()) as served:
        resumed = []
        for _ in range(3):
            transport, listener = await ws_connect(
                Recorder, served.url, ssl_context=certificates.client_settings()
            )
            transport.send(TEXT, "x")
            await listener.received(1)
            resumed.append(transport.tls.resumed)
            await finish(transport)
    assert resumed == [False, True, True]


@pytest.mark.parametrize("face", FACES)
@versions
async def test_every_face_tells_the_same(face, context):
    served_by = (context or certificates.server_context.__wrapped__)()
    async with serve(echo, ssl_context=served_by) as served:
        told = []
        for settings in (certificates.client_settings(), certificates.client_context()):
            async with FACES[face](served.url, context=settings) as client:
                told.append(client.tls)
    rustls, openssl = told
    assert (rustls.layer, openssl.layer) == ("rustls", "OpenSSL")
    assert rustls.version == openssl.version == ("TLSv1.2" if context else "TLSv1.3")
    assert rustls.cipher.startswith("TLS_")
    assert openssl.cipher
    assert rustls.alpn is openssl.alpn is None
    assert rustls.certificates[0] == openssl.certificates[0]


@pytest.mark.parametrize("face", FACES)
async def test_a_context_that_asks_for_tls_by_the_kernel_is_honoured(face):
    """Also on a kernel that cannot."""
    context = certificates.client_context()
    context.options |= getattr(ssl, "OP_ENABLE_KTLS", 1 << 3)
    async with (
        serve(echo, ssl_context=certificates.server_context()) as served,
        FACES[face](served.url, context=context) as client,
    ):
        await client.send("x" * 100_000)
        assert await client.recv() == "x" * 100_000
        assert client.tls.layer == "OpenSSL"


@pytest.mark.skipif(not os.path.exists("/sys/module/tls"), reason="the kernel's module tls is not loaded")
@pytest.mark.skipif(not hasattr(ssl, "OP_ENABLE_KTLS"), reason="the option is CPython 3.12's")
async def test_the_kernel_encrypts():
    context = certificates.client_context()
    context.options |= ssl.OP_ENABLE_KTLS
    async with serve(echo, ssl_context=certificates.server_context()) as served:
        transport, listener = await ws_connect(Recorder, served.url, ssl_context=context)
        if not transport.underlying_transport.get_extra_info("ktls_send_enabled"):
            pytest.skip("Python's OpenSSL was built without kernel TLS")
        payloads = [frames.pattern(size) for size in (1, 16_384, 300_000)]
        for payload in payloads:
            transport.send(WSMsgType.BINARY, payload)
        await listener.received(3)
        assert listener.payloads == payloads
        await finish(transport)


async def test_openssl_may_have_the_socket():
    """As with the kernel's TLS: aiofastnet then calls OpenSSL for each read and each write."""
    context = certificates.client_context()
    context._aiofastnet_force_socket_bio = True
    size = 300_000

    async def handler(peer: Peer) -> None:
        await peer.accept()
        for _ in range(3):
            peer.send(frames.frame(frames.BINARY, (await peer.frame()).payload))
        await peer.answer_close()

    with serve_in_thread(handler) as url:
        transport, listener = await ws_connect(Recorder, url, ssl_context=context)
        assert not transport.underlying_transport.get_extra_info("ssl_incoming_use_membio")
        for number, wait in enumerate((None, False, True)):
            transport.send(WSMsgType.BINARY, frames.pattern(size, number))
            if wait is None:
                await listener.received(1)
            else:
                assert transport.poll(20, sleep=wait)
            assert listener.payloads[-1] == frames.pattern(size, number)
        await finish(transport)


def serve_in_thread(handler: Callable[[Peer], Any]) -> Any:
    @asynccontextmanager
    async def make() -> AsyncIterator[str]:
        async with serve(handler, ssl_context=certificates.server_context()) as served:
            yield served.url

    return in_thread(make)


async def test_without_tls_there_is_nothing_to_tell():
    async with serve(echo) as served:
        transport, _ = await ws_connect(Recorder, served.url)
        assert transport.tls is None
        await finish(transport)


async def test_where_openssl_hides_the_present_transport_serves(monkeypatch):
    monkeypatch.setattr(
        "wsfast._opening.tls.rustls.load_openssl", lambda: "it does not show its SSL_read_ex()"
    )
    async with serve(echo, ssl_context=certificates.server_context()) as served:
        transport, listener = await ws_connect(
            Recorder, served.url, ssl_context=certificates.client_settings()
        )
        assert transport.tls.layer == "OpenSSL"
        transport.send(TEXT, "x")
        await listener.received(1)
        await finish(transport)


def test_a_session_is_made_of_a_configuration_alone():
    for config in (None, 5, rustls.ffi.NULL, rustls.ffi.new("int *")):
        with pytest.raises(TypeError):
            TLSSession(config, b"name", 1)
    with pytest.raises(ValueError, match="ssl: "):
        TLSSession(rustls.config(TLS()), b"not a name", 1)
    with pytest.raises(TypeError):
        TLSTransport.__new__(TLSTransport)


async def test_the_session_of_a_transport_carries_no_other_one():
    """Its memory would be that one's, and the transport would go on using it."""
    async with serve(echo, ssl_context=certificates.server_context()) as served:
        tls = certificates.client_settings()
        transport, listener = await ws_connect(Recorder, served.url, ssl_context=tls)
        parts = gc.get_referents(transport.underlying_transport)
        (session,) = (part for part in parts if isinstance(part, TLSSession))
        with pytest.raises(ValueError, match="a transport uses this TLS session"):
            TLSSession(rustls.config_for(tls, "localhost"), b"localhost", 1, session)
        transport.send(TEXT, "x")
        await listener.received(1)
        await finish(transport)


# ---- the handshake


async def test_a_handshake_has_a_limit_of_its_own():
    async def silent(peer: Peer) -> None:
        await peer.reader.read()

    async with serve(silent) as served:
        with pytest.raises(ConnectionAbortedError, match=r"longer than 0\.02 seconds"):
            await ws_connect(
                Recorder,
                served.url.replace("ws:", "wss:"),
                ssl_context=certificates.client_settings(),
                ssl_handshake_timeout=0.02,
            )


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x01\x00"], ids=["EOF", "close_notify"])
async def test_a_server_that_ends_the_handshake(answer):
    async def ending(peer: Peer) -> None:
        await peer.reader.read(10)
        peer.send(answer)

    async with serve(ending) as served:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await ws_connect(
                Recorder, served.url.replace("ws:", "wss:"), ssl_context=certificates.client_settings()
            )


async def test_what_is_no_tls_is_called_that():
    async def plain(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.reader.read()

    async with serve(plain) as served:
        with pytest.raises(ssl.SSLError, match="is it a ws:// server"):
            await ws_connect(
                Recorder, served.url.replace("ws:", "wss:"), ssl_context=certificates.client_settings()
            )

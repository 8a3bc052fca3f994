"""TLS: who is trusted, what moves through it, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme
from support import certificates, frames
from support.listeners import Recorder
from support.servers import Peer, echo, is_fast, serve

from wsfast import InvalidMessage, WSMsgType, tls, ws_connect
from wsfast._opening.tls import rustls

transports = pytest.mark.parametrize(
    ("client_context", "use_aiofastnet"),
    [
        (certificates.client_settings, None),
        (certificates.client_context, None),
        (certificates.client_context, False),
        (certificates.client_settings, False),
    ],
    ids=["rustls", "aiofastnet", "the loop's", "the loop's, with settings"],
)


def never() -> Recorder:
    raise AssertionError("the listener is made only when the server has agreed")


async def unreached(peer: Peer) -> None:
    await peer.reader.read()


async def finish(transport) -> None:
    transport.disconnect()
    await transport.wait_disconnected()


# (name, the server's certificate, does the client trust its authority, what the error says)
UNTRUSTED = [
    ("unknown authority", {}, False, "unable to get local issuer|self.signed"),
    (
        "wrong host name",
        {"names": ("other.example",)},
        True,
        "IP address mismatch|Hostname",
    ),
    ("expired", {"names": ("127.0.0.1",), "expired": True}, True, "expired"),
]


@transports
@pytest.mark.parametrize(
    ("server", "client", "message"), [row[1:] for row in UNTRUSTED], ids=[r[0] for r in UNTRUSTED]
)
async def test_a_server_that_cannot_be_trusted_is_refused(
    server, client, message, client_context, use_aiofastnet
):
    context = certificates.server_context(*server.get("names", ()), expired=server.get("expired", False))
    async with serve(unreached, ssl_context=context) as served:
        with pytest.raises(ssl.SSLCertVerificationError, match=message):
            await ws_connect(
                never,
                served.url,
                ssl_context=client_context() if client else None,
                use_aiofastnet=use_aiofastnet,
            )


@transports
async def test_the_host_name_of_the_certificate_is_checked_and_can_be_given(client_context, use_aiofastnet):
    async with serve(echo, ssl_context=certificates.server_context("feed.example")) as server:
        context = client_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await ws_connect(never, server.url, ssl_context=context, use_aiofastnet=use_aiofastnet)
        transport, _ = await ws_connect(
            Recorder,
            server.url,
            ssl_context=context,
            server_hostname="feed.example",
            use_aiofastnet=use_aiofastnet,
        )
        await finish(transport)


@transports
async def test_a_socket_of_the_user_s_own_gets_tls_for_the_url_s_host(client_context, use_aiofastnet):
    async with serve(echo, ssl_context=certificates.server_context("feed.example")) as server:
        transport, listener = await ws_connect(
            Recorder,
            "wss://feed.example/",
            ssl_context=client_context(),
            socket_factory=lambda uri: socket.create_connection(("127.0.0.1", server.port)),
            use_aiofastnet=use_aiofastnet,
        )
        transport.send(WSMsgType.TEXT, "x")
        await listener.received(1)
        await finish(transport)


async def test_a_plain_server_behind_wss_is_an_ssl_error():
    async def handler(peer: Peer) -> None:
        await peer.reader.read(10)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serve(handler) as server:
        url = server.url.replace("ws:", "wss:")
        with pytest.raises(ssl.SSLError):
            await ws_connect(never, url, ssl_context=certificates.client_context())


async def test_a_tls_server_behind_ws_is_told_from_garbage(loop_errors):
    async with serve(unreached, ssl_context=certificates.server_context()) as server:
        url = server.url.replace("wss:", "ws:")
        with pytest.raises((InvalidMessage, ConnectionError)):
            await ws_connect(never, url)
    loop_errors.clear()  # the server complains about our HTTP


@transports
@pytest.mark.parametrize("size", [1, 16384, 16385, 300_000, 5_000_000])
async def test_messages_of_any_size_arrive_intact(size, client_context, use_aiofastnet):
    async with serve(echo, ssl_context=certificates.server_context()) as server:
        transport, listener = await ws_connect(
            Recorder, server.url, ssl_context=client_context(), use_aiofastnet=use_aiofastnet
        )
        transport.send(WSMsgType.BINARY, frames.pattern(size))
        transport.send(WSMsgType.TEXT, "end")
        await listener.received(2)
        assert listener.payloads == [frames.pattern(size), b"end"]
        await finish(transport)


async def test_a_buffer_may_be_overwritten_although_its_message_is_still_queued():
    async def handler(peer: Peer) -> list[bytes]:
        await peer.accept()
        peer.writer.transport.pause_reading()
        await go.wait()
        peer.writer.transport.resume_reading()
        return [sent.payload for sent in await peer.frames_until_close()]

    go = asyncio.Event()
    async with serve(handler, ssl_context=certificates.server_context()) as server:
        transport, _ = await ws_connect(Recorder, server.url, ssl_context=certificates.client_context())
        for number in range(200):
            buffer = bytearray(frames.pattern(50_000, number))
            transport.send(WSMsgType.BINARY, buffer)
            buffer[:] = b"\xee" * len(buffer)
        assert transport.write_buffer_size > 1_000_000
        go.set()
        transport.disconnect()
        received = await server.result()
        assert received[:-1] == [frames.pattern(50_000, number) for number in range(200)]
        await transport.wait_disconnected()


async def test_key_logging_works_through_the_loop_s_own_tls(tmp_path):
    """aiofastnet 1.2 crashes when OpenSSL logs its keys."""
    context = certificates.client_context()
    context.keylog_filename = str(tmp_path / "keys")
    async with serve(echo, ssl_context=certificates.server_context()) as server:
        transport, listener = await ws_connect(Recorder, server.url, ssl_context=context)
        assert not is_fast(transport)
        transport.send(WSMsgType.BINARY, frames.pattern(500_000))
        await listener.received(1)
        assert listener.payloads == [frames.pattern(500_000)]
        await finish(transport)
    assert "CLIENT_TRAFFIC_SECRET_0" in (tmp_path / "keys").read_text()
    # The context keeps the log open until it goes.
    context.keylog_filename = None


async def test_the_default_context_follows_sslkeylogfile(tmp_path, monkeypatch):
    """It is cached, because loading the authorities takes milliseconds; but the variable may be set later."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with serve(echo, ssl_context=context) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        transport.send(WSMsgType.TEXT, "x")
        await listener.received(1)
        await finish(transport)
    assert "CLIENT_TRAFFIC_SECRET_0" in (tmp_path / "keys").read_text()
    rustls._configs.clear()
    tls._context.cache_clear()  # context and configuration keep the log open until they go


async def test_a_handshake_that_the_server_breaks_off_is_an_error():
    async def handler(peer: Peer) -> None:
        await peer.reader.read(10)
        peer.reset()

    async with serve(handler) as server:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await ws_connect(
                never, server.url.replace("ws:", "wss:"), ssl_context=certificates.client_context()
            )

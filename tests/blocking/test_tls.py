"""TLS of the blocking client: by OpenSSL with a context, and by rustls with wsfast.TLS."""

import _ssl
import contextlib
import ctypes
import dataclasses
import functools
import os
import shutil
import socket
import ssl
import subprocess
import threading
import types
import weakref

import pytest
import trustme
from support import HUNG
from support.blocking import echo, running, scripted
from support.certificates import authority, client_context, client_settings, server_context
from support.frames import BINARY, PING, PONG, frame, pattern, text

from wsfast import TLS
from wsfast.exceptions import ConnectionClosedError, TLSUnavailable, WebSocketException
from wsfast.sync.client import connect

ways = pytest.mark.parametrize("way", [client_context, client_settings], ids=["openssl", "rustls"])


def exchange(server, uri=None, **options):
    with connect(uri or server.url, **options) as ws:
        ws.send("x")
        assert ws.recv() == "x"


def refused(context, server=None, *, match, **options):
    """The certificate is refused; returns the exception."""

    def never(peer):
        raise AssertionError("the handshake must fail")

    with pytest.raises(ssl.SSLError):  # of the server
        with scripted(never, ssl_context=server or server_context()) as served:
            with pytest.raises(ssl.SSLCertVerificationError, match=match) as raised:
                connect(served.url, ssl=context, **options)
    return raised.value


def test_an_authority_that_is_trusted():
    with scripted(echo, ssl_context=server_context()) as server:
        exchange(server, ssl=client_context())


@pytest.mark.parametrize("protocols", [[], ["http/1.1"], ["other", "http/1.1"]])
def test_alpn_protocols(protocols):
    def script(peer):
        echo(peer)
        return peer.sock.selected_alpn_protocol()

    there, here = server_context(), client_context()
    there.set_alpn_protocols(["http/1.1"])
    if protocols:
        here.set_alpn_protocols(protocols)
    with scripted(script, ssl_context=there) as server:
        exchange(server, ssl=here)
    assert server.result() == ("http/1.1" if protocols else None)


def test_an_authority_that_is_not():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trustme.CA().configure_trust(context)
    error = refused(context, match="unable to get local issuer certificate")
    assert error.verify_code == 20


def test_the_systems_authorities_are_the_default(monkeypatch, tmp_path):
    refused(None, match="unable to get local issuer certificate")
    ca = tmp_path / "ca.pem"
    authority().cert_pem.write_to_path(str(ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    with scripted(echo, ssl_context=server_context()) as server:
        exchange(server)


def test_a_directory_of_authorities(monkeypatch, tmp_path):
    """Debian has one: OpenSSL looks into it when it needs to, and a context does not list it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    command = ["openssl", "x509", "-hash", "-noout", "-in", tmp_path / "ca.pem"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    authority().cert_pem.write_to_path(str(tmp_path / f"{name}.0"))
    (tmp_path / "4567abcd.0").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with scripted(echo, ssl_context=server_context(), connections=2) as server:
        exchange(server)
        context = ssl.create_default_context()
        assert context.get_ca_certs() == []
        exchange(server, ssl=context)


def test_an_expired_certificate():
    refused(client_context(), server_context(expired=True), match="expired")


def test_a_wrong_name():
    refused(client_context(), server_context("elsewhere.example"), match="is not valid for '127.0.0.1'")


def test_server_hostname():
    with scripted(echo, ssl_context=server_context("elsewhere.example")) as server:
        exchange(server, ssl=client_context(), server_hostname="elsewhere.example")
    refused(client_context(), server_hostname="elsewhere.example", match="Hostname mismatch")


def test_check_hostname_can_be_off():
    context = client_context()
    context.check_hostname = False
    with scripted(echo, ssl_context=server_context("elsewhere.example")) as server:
        exchange(server, ssl=context)
    refused(context, server_context("elsewhere.example", expired=True), match="expired")


def test_verification_can_be_off():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with scripted(echo, ssl_context=server_context("elsewhere.example", expired=True)) as server:
        exchange(server, ssl=context)


def test_a_context_that_changes_is_looked_at_again():
    context = client_context()
    with scripted(echo, ssl_context=server_context()) as server:
        exchange(server, ssl=context)
    refused(context, server_context("elsewhere.example"), match="is not valid for '127.0.0.1'")
    context.check_hostname = False
    with scripted(echo, ssl_context=server_context("elsewhere.example")) as server:
        exchange(server, ssl=context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(version):
    def script(peer):
        echo(peer)
        return peer.sock.version()

    context = client_context()
    context.minimum_version = context.maximum_version = version
    with scripted(script, ssl_context=server_context()) as server:
        exchange(server, ssl=context)
    assert server.result() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]


def test_versions_that_do_not_meet():
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1").configure_cert(old)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    context = client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError), scripted(echo, ssl_context=old) as server:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
            connect(server.url, ssl=context)


def test_cipher_suites():
    def script(peer):
        echo(peer)
        return peer.sock.cipher()[0]

    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
    with scripted(script, ssl_context=server_context()) as server:
        exchange(server, ssl=context)
    assert server.result() == "ECDHE-ECDSA-CHACHA20-POLY1305"


def test_arguments_that_contradict_each_other():
    for tls in (client_context(), TLS(client_cert="file")):
        with pytest.raises(ValueError, match="client_cert"):
            connect("wss://127.0.0.1:1", ssl=tls, client_cert="other")
    with pytest.raises(TypeError, match="SSLContext or a wsfast.TLS, not int"):
        connect("wss://127.0.0.1:1", ssl=1)


def test_a_context_that_would_run_python_while_locks_are_held_is_refused():
    context = client_context()
    context._msg_callback = lambda *_: None
    with scripted(lambda peer: None) as server, pytest.raises(ValueError, match="_msg_callback"):
        connect(server.url.replace("ws:", "wss:"), ssl=context)


def test_a_context_whose_connections_are_not_python_s_is_refused():
    class Other(ssl.SSLContext):
        def wrap_bio(self, *arguments, **options):
            return object()

    with scripted(lambda peer: None) as server, pytest.raises(ValueError, match="Other.wrap_bio"):
        connect(server.url.replace("ws:", "wss:"), ssl=Other(ssl.PROTOCOL_TLS_CLIENT))


@pytest.mark.parametrize("together", [True, False])
def test_a_client_certificate(tmp_path, together):
    certificate = authority().issue_cert("client.example")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    if together:
        certificate.private_key_and_cert_chain_pem.write_to_path(str(chain))
    else:
        certificate.cert_chain_pems[0].write_to_path(str(chain))
        certificate.private_key_pem.write_to_path(str(key))
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1").configure_cert(strict)
    authority().configure_trust(strict)
    strict.verify_mode = ssl.CERT_REQUIRED

    def script(peer):
        echo(peer)
        return peer.sock.getpeercert()["subjectAltName"]

    with scripted(script, ssl_context=strict) as server:
        exchange(server, ssl=client_settings(chain if together else (chain, str(key))))
    assert server.result() == (("DNS", "client.example"),)
    chain.write_bytes(b"no certificate")
    with pytest.raises(ssl.SSLError):
        connect("wss://127.0.0.1:1", client_cert=chain)


@ways
def test_a_server_that_wants_a_certificate_and_gets_none(way):
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1").configure_cert(strict)
    strict.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(ssl.SSLError), scripted(echo, ssl_context=strict) as server:
        # With TLS 1.3 the server's alert comes after the client's handshake.
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate.?required"):
            connect(server.url, ssl=way())


def test_key_log(monkeypatch, tmp_path):
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    context = ssl.create_default_context()
    authority().configure_trust(context)
    with scripted(echo, ssl_context=server_context()) as server:
        exchange(server, ssl=context)
    assert "CLIENT_TRAFFIC_SECRET_0" in keys.read_text()


@ways
def test_a_server_that_does_not_speak_tls(way):
    with scripted(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        with pytest.raises(ssl.SSLError):
            connect(server.url.replace("ws:", "wss:"), ssl=way())
    with scripted(lambda peer: None) as server, pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
        connect(server.url.replace("ws:", "wss:"), ssl=way())


@ways
def test_the_end_without_close_notify_is_an_end(way):
    def script(peer):
        peer.accept()
        peer.frame()
        os.close(peer.sock.detach())

    with (
        scripted(script, ssl_context=server_context()) as server,
        connect(server.url, ssl=way()) as ws,
    ):
        ws.send("x")
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert isinstance(raised.value.__cause__, EOFError)


@ways
def test_a_record_that_was_tampered_with_ends_the_connection_behind_what_came_before(way):
    def script(peer):
        peer.accept()
        peer.frame()
        peer.send(text("before"))
        os.write(peer.sock.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
        with contextlib.suppress(OSError):  # our alert
            peer.rest()

    with scripted(script, ssl_context=server_context()) as server, connect(server.url, ssl=way()) as ws:
        ws.send("x")
        assert ws.recv() == "before"
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert type(raised.value.__cause__) is ssl.SSLError
        assert "decrypt" in str(raised.value.__cause__)
        with pytest.raises(ConnectionClosedError):
            ws.send("x")


@ways
def test_a_long_message_is_kept_whole_while_the_server_does_not_read(way):
    """More than the kernel takes, or than is encrypted at once; a ping that comes meanwhile is answered behind it."""
    size = 20_000_000

    def script(peer):
        peer.accept()
        peer.send(frame(PING, b"p"))
        go.wait(HUNG)
        got = [peer.frame() for _ in range(2)]
        peer.answer_close()
        return sorted((sent.opcode, len(sent.payload), sent.payload == data) for sent in got)

    go, data = threading.Event(), pattern(size)
    with scripted(script, ssl_context=server_context()) as server:
        with connect(server.url, ssl=way(), max_queue=None) as ws:
            with running(lambda: ws.send(data)):
                go.set()
    assert server.result() == [(BINARY, size, True), (PONG, 1, False)]


@ways
def test_records_of_every_size(way):
    """Messages that end within a record, at its end, and after it."""
    sizes = [2**14 + extra for extra in range(-20, 3)] + [2**15 - 10, 2**15 + 10]

    with (
        scripted(echo, ssl_context=server_context()) as server,
        connect(server.url, ssl=way()) as ws,
    ):
        for size in sizes:
            ws.send(pattern(size))
            assert ws.recv() == pattern(size)


def test_sessions_are_resumed():
    """Equal settings are configured once, and the crate keeps their tickets."""

    def script(peer):
        echo(peer)
        return peer.sock.session_reused

    with scripted(script, ssl_context=server_context(), connections=2) as server:
        for _ in range(2):
            settings = client_settings()
            exchange(server, ssl=dataclasses.replace(settings, alpn=["no other test has this"]))
    assert server.results == [False, True]


def ask_for_renegotiation(sock):
    """A server that has nothing else to do sends it. Python's ssl does not show it."""
    openssl = ctypes.CDLL(_ssl.__file__)
    fields = ctypes.cast(id(sock._sslobj) + object.__basicsize__, ctypes.POINTER(ctypes.c_void_p))
    connection = ctypes.c_void_p(fields[1])
    with contextlib.suppress(OSError):
        while openssl.SSL_renegotiate(connection) == 1 and openssl.SSL_do_handshake(connection) == 1:
            pass


@ways
def test_a_server_that_wants_answers_and_does_not_read_them(way):
    context = server_context.__wrapped__()  # of its own, since it is changed
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with scripted(lambda peer: ask_for_renegotiation(peer.sock), ssl_context=context) as server:
        # The queue of unsent bytes is bounded, so the connection ends, and not by its deadline.
        with pytest.raises(ssl.SSLError, match="(?i)answers|TooManyRenegotiationRequests"):
            connect(server.url, ssl=way(), open_timeout=None)


@pytest.mark.parametrize("option", [None, client_context, client_settings])
def test_an_openssl_that_is_hidden_is_said_before_anything_is_connected(option, monkeypatch):
    """A Python linked with a static OpenSSL hides it. Then there is no TLS, and the rest works."""
    monkeypatch.setattr(
        "wsfast._opening.tls.rustls.load_openssl", lambda: "it does not show its SSL_read_ex()"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        with pytest.raises(TLSUnavailable, match=r"SSL_read_ex.*wsfast\.connect") as caught:
            connect(f"wss://127.0.0.1:{port}/", ssl=option and option())
        with pytest.raises(BlockingIOError):
            server.accept()
    assert isinstance(caught.value, WebSocketException)
    assert isinstance(caught.value, NotImplementedError)
    with scripted(echo) as server:
        exchange(server)


@pytest.mark.memory
@pytest.mark.parametrize("after", ["echo", "close"])
def test_the_crate_keeps_the_tls_of_a_context_alive(monkeypatch, after):
    """When Python has let go of the session that it made."""
    kept = []

    def partial(function, sessions):
        kept.append(sessions)
        return functools.partial(function, sessions)

    monkeypatch.setattr("wsfast.sync.client.functools", types.SimpleNamespace(partial=partial))
    with scripted(echo, ssl_context=server_context()) as server:
        with connect(server.url, ssl=client_context()) as ws:
            (sessions,) = kept
            alive = weakref.ref(sessions.pop())
            assert alive() is None
            if after == "echo":
                ws.send(pattern(100_000))
                assert ws.recv() == pattern(100_000)

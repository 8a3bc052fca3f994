"""Trust in certificates: every context with every server and every face, as OpenSSL itself decides in memory.

A face connects if, and only if, OpenSSL does, it shows the server the same, and it fails with the same words.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import functools
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support import HUNG, certificates, tls_table
from support.faces import FACES as CLIENTS
from support.servers import echo, serve
from support.tls_table import CONTEXTS, SERVERS, SYSTEM, Refusal, Seen, verdict
from support.upgrade import acceptance

import wsfast
import wsfast.sync.client
from wsfast import TLS, WSListener, ws_connect
from wsfast.tls import server_name


class Server:
    """Accepts connections, one after the other, and notes what it sees of each client that gets as far as a request."""

    def __init__(self, context):
        self.context = context
        self.seen = []
        self.served = threading.Semaphore(0)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                sock.settimeout(10)
                self.serve(sock)
            self.served.release()

    def serve(self, sock):
        names = [None]
        self.context.sni_callback = lambda _, asked, __: names.append(asked)
        with self.context.wrap_socket(sock, server_side=True) as secure:
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                data = secure.recv(4096)
                if not data:
                    return
                request += data
            self.seen.append(Seen.of(secure, names[-1]))
            secure.sendall(acceptance(request))
            secure.recv(4096)  # CLOSE
            secure.sendall(b"\x88\x02\x03\xe8")

    def end(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listening.close()


@pytest.fixture(scope="module")
def servers():
    running = {name: Server(context) for name, (context, _) in SERVERS.items()}
    yield running
    for server in running.values():
        server.end()


@pytest.fixture(autouse=True)
def system(tmp_path, monkeypatch):
    """The system trusts SYSTEM alone."""
    (tmp_path / "system.pem").write_text(SYSTEM.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "missing"))


def uri_of(host, port):
    return f"wss://{host}:{port}/"


def tcp(port):
    return socket.create_connection(("127.0.0.1", port))


def listener(tls, host, port):
    async def connect():
        transport, _ = await ws_connect(
            WSListener, uri_of(host, port), ssl_context=tls, socket_factory=lambda _: tcp(port)
        )
        transport.disconnect()
        await transport.wait_disconnected()

    return connect()


def awaitable(tls, host, port):
    async def connect():
        options = {} if tls is None else {"ssl": tls}
        async with wsfast.connect(uri_of(host, port), sock=tcp(port), **options):
            pass

    return connect()


def blocking(tls, host, port):
    wsfast.sync.client.connect(uri_of(host, port), ssl=tls, sock=tcp(port)).close()


def outcome(face, tls, host, server, loop):
    """The server's view of the connection, or the reason why it saw none."""
    server.seen.clear()
    try:
        done = face(tls, host, server.port)
        if done is not None:
            loop.run_until_complete(done)
    except (OSError, wsfast.InvalidHandshake) as exc:
        refusal = Refusal.of(exc)
    else:
        refusal = None
    assert server.served.acquire(timeout=HUNG)
    return refusal or server.seen[0]


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a failed handshake is told to us anyway
    yield loop
    loop.close()


FACES = {"listener": listener, "awaitable": awaitable, "blocking": blocking}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("says", CONTEXTS)
def test_openssl_decides(face, says, servers, loop, tmp_path, monkeypatch):
    connect = FACES[face]

    def use(context):
        host = SERVERS["by an authority of the system"][1]
        assert isinstance(
            outcome(connect, context, host, servers["by an authority of the system"], loop), Seen
        )

    tls_table.write_files(tmp_path)
    make = functools.partial(CONTEXTS[says], tmp_path)
    monkeypatch.setattr(tls_table, "use", use)
    tls = make()
    monkeypatch.setattr(tls_table, "use", lambda _: None)
    reference = make()
    if not isinstance(reference, ssl.SSLContext):
        reference = (reference or TLS()).context()
    differ = {}
    for name, (there, host) in SERVERS.items():
        expected = verdict(reference, there, server_name(host))
        got = outcome(connect, tls, host, servers[name], loop)
        if got != expected:
            differ[name] = got, expected
    assert not differ, "".join(
        f"\n{name}:\n  {got}\n  {expected}" for name, (got, expected) in differ.items()
    )
    if isinstance(tls, ssl.SSLContext):
        tls.keylog_filename = None  # it keeps the file open
        reference.keylog_filename = None


every_face = pytest.mark.parametrize("face", CLIENTS)


@every_face
@pytest.mark.parametrize("name", ["foo-.example.com", "-foo.example.com"])
async def test_a_name_that_rustls_does_not_take(face, name):
    context = certificates.server_context("*.example.com")
    async with serve(echo, ssl_context=context) as server:
        settings = certificates.client_settings()
        url = f"wss://{name}:{server.port}/"
        async with CLIENTS[face](url, context=settings, host="127.0.0.1") as client:
            await client.send("x")
            assert await client.recv() == "x"


@every_face
async def test_a_name_that_no_certificate_has_fails_as_an_error_of_the_connection(face):
    async with serve(echo, ssl_context=certificates.server_context()) as server:
        with pytest.raises(OSError, match="certificate"):
            async with CLIENTS[face](f"wss://127.1:{server.port}/", context=certificates.client_settings()):
                pass


def p521(path):
    """A client's certificate with a key that rustls cannot sign with."""
    key = ec.generate_private_key(ec.SECP521R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(5)
    builder = builder.public_key(key.public_key()).not_valid_before(datetime.datetime(2024, 1, 1))
    certificate = builder.not_valid_after(datetime.datetime(2099, 1, 1)).sign(key, hashes.SHA256())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
    return str(path)


@every_face
async def test_a_client_s_key_that_rustls_does_not_take(face, tmp_path):
    settings = certificates.client_settings(p521(tmp_path / "client.pem"))
    context = certificates.server_context()
    async with (
        serve(echo, ssl_context=context) as server,
        CLIENTS[face](server.url, context=settings) as client,
    ):
        await client.send("x")
        assert await client.recv() == "x"


async def test_etimedout_of_the_socket_is_not_the_limit_of_the_handshake(monkeypatch):
    async def time_out(*_):
        raise OSError(errno.ETIMEDOUT, "no answer")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_recv", time_out, raising=False)
    async with serve(echo, ssl_context=certificates.server_context()) as server:
        with pytest.raises(TimeoutError, match="no answer"):
            await ws_connect(WSListener, server.url, ssl_context=certificates.client_settings())

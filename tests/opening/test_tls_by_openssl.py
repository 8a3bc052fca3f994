"""What rustls cannot do OpenSSL does, with the context that the same settings make: for all faces."""

from __future__ import annotations

import asyncio
import datetime
import errno

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support import certificates
from support.faces import FACES
from support.servers import echo, serve

from wsfast import WSListener, ws_connect

every_face = pytest.mark.parametrize("face", FACES)


@every_face
@pytest.mark.parametrize("name", ["foo-.example.com", "-foo.example.com"])
async def test_a_name_that_rustls_does_not_take(face, name):
    context = certificates.server_context("*.example.com")
    async with serve(echo, ssl_context=context) as server:
        settings = certificates.client_settings()
        url = f"wss://{name}:{server.port}/"
        async with FACES[face](url, context=settings, host="127.0.0.1") as client:
            await client.send("x")
            assert await client.recv() == "x"


@every_face
async def test_a_name_that_no_certificate_has_fails_as_an_error_of_the_connection(face):
    async with serve(echo, ssl_context=certificates.server_context()) as server:
        with pytest.raises(OSError, match="certificate"):
            async with FACES[face](f"wss://127.1:{server.port}/", context=certificates.client_settings()):
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
        FACES[face](server.url, context=settings) as client,
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

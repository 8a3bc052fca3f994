"""Servers behind nginx and HAProxy, as most exchanges are."""

from __future__ import annotations

import socket

import pytest
from support import certificates
from support.faces import FACES, End
from support.packaged import haproxy, nginx  # noqa: F401 - fixtures
from support.servers import echo, serve

from wsfast import InvalidStatus

every_face = pytest.mark.parametrize("face", FACES)
either = pytest.mark.parametrize("front", ["nginx", "haproxy"])


@pytest.fixture
def certificate(tmp_path):
    """A file with the key and the certificate of this machine."""
    path = tmp_path / "server.pem"
    certificates.authority().issue_cert(
        "localhost", "127.0.0.1"
    ).private_key_and_cert_chain_pem.write_to_path(path)
    return path


@every_face
@either
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
async def test_messages_of_all_sizes_and_the_close_pass(face, front, secure, request, certificate):
    start = request.getfixturevalue(front)
    async with serve(echo) as server:
        port = start(server.port, certificate if secure else None)
        url = f"ws{'s' if secure else ''}://127.0.0.1:{port}/"
        context = certificates.client_settings() if secure else None
        async with FACES[face](url, context=context) as client:
            for message in "text", b"", bytes(300_000):
                await client.send(message)
                assert await client.recv() == message
            await client.close()
            with pytest.raises(End) as end:
                await client.recv()
            assert (end.value.received, end.value.sent) == (1000, 1000)


@every_face
@either
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
async def test_a_front_without_a_server_refuses(face, front, secure, request, certificate):
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    port = request.getfixturevalue(front)(nobody, certificate if secure else None)
    context = certificates.client_settings() if secure else None
    with pytest.raises(InvalidStatus) as refused:
        async with FACES[face](f"ws{'s' if secure else ''}://127.0.0.1:{port}/", context=context):
            pass
    assert refused.value.response.status_code in (502, 503)
    assert b"</html>" in refused.value.response.body

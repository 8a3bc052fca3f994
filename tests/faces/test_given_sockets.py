"""`sock=`: a refused argument leaves it to the caller; once connecting has begun, it is the connection's."""

from __future__ import annotations

import asyncio
import socket

import pytest
from support.faces import FACES
from support.servers import echo, serve

from wsfast import Tuning
from wsfast.exceptions import InvalidStatus

FACES_WITH_SOCK = pytest.mark.parametrize("face", ["awaitable", "blocking"])


async def refused(face, sock, error, **options):
    with pytest.raises(error):
        async with FACES[face]("ws://elsewhere/", sock=sock, **options):
            pass


@FACES_WITH_SOCK
@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"max_size": -1}),
        (TypeError, {"nonsense": 1}),
        (TypeError, {"tuning": 1}),
        (ValueError, {"subprotocols": ["a b"]}),
    ],
)
async def test_an_argument_that_is_refused_leaves_the_socket_to_the_caller(face, error, options):
    async with serve(echo) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            await refused(face, sock, error, **options)
            assert sock.fileno() >= 0
            async with FACES[face]("ws://elsewhere/", sock=sock) as client:
                await client.send("x")
                assert await client.recv() == "x"


@FACES_WITH_SOCK
async def test_a_socket_whose_option_the_kernel_refuses_is_closed(face):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sock,
    ):
        await refused(face, sock, OSError, tuning=Tuning(sockopts=[(socket.SOL_SOCKET, 9999, 1)]))
        assert sock.fileno() == -1


@FACES_WITH_SOCK
async def test_a_socket_whose_server_refuses_is_closed(face):
    async def refuse(peer):
        await peer.read_request()
        peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with serve(refuse) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            await refused(face, sock, InvalidStatus)
            for _ in range(3):  # iterations, in which the transport closes it
                await asyncio.sleep(0)
            assert sock.fileno() == -1

"""Sessions of TLS: resumed by the next connection to the same name with equal settings, and by no other."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import os
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
import trustme
from support import frames
from support.blocking import echo, in_thread, scripted
from support.certificates import authority, client_settings, server_context
from support.faces import FACES
from support.servers import echo as asyncio_echo
from support.servers import serve, websockets_echo

import wsfast.asyncio.client
import wsfast.sync.client
from wsfast import TLS
from wsfast._engine.sockets.tls_transport import TLSSession
from wsfast._opening.tls import rustls
from wsfast.sync.client import connect

NAME, OTHER = "one.example", "two.example"


@pytest.fixture(autouse=True)
def _no_sessions() -> None:
    rustls._configs.clear()


def resumed(url: str, settings: TLS, name: str = NAME) -> bool:
    with connect(url, ssl=settings, server_hostname=name) as ws:
        ws.send("x")
        assert ws.recv() == "x"  # TLS 1.3: the tickets come before it
        assert ws.tls is not None
        return ws.tls.resumed


def base() -> dict:
    return {"cadata": authority().cert_pem.bytes().decode(), "alpn": ["http/1.1"]}


@contextlib.contextmanager
def two_authorities() -> Iterator[dict]:
    yield {"cadata": base()["cadata"] + trustme.CA().cert_pem.bytes().decode()}


@contextlib.contextmanager
def client_certificate() -> Iterator[dict]:
    with authority().issue_cert("client").private_key_and_cert_chain_pem.tempfile() as pem:
        yield {"client_cert": pem}


# The settings that differ.
OTHERS: dict[str, Callable[[], contextlib.AbstractContextManager[dict]]] = {
    "authorities": two_authorities,
    "client certificate": client_certificate,
    "ALPN": lambda: contextlib.nullcontext({"alpn": []}),
    "order of ALPN": lambda: contextlib.nullcontext({"alpn": ["other", "http/1.1"]}),
    "check_hostname": lambda: contextlib.nullcontext({"check_hostname": False}),
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_other_settings_do_not_resume(version):
    """Otherwise a connection would trust what only another one has verified."""
    context = server_context.__wrapped__(NAME, OTHER)
    context.maximum_version = version
    context.set_alpn_protocols(["http/1.1"])
    only = {"minimum_version": version, "maximum_version": version}
    with contextlib.ExitStack() as stack:
        rows = {what: base() | stack.enter_context(make()) for what, make in OTHERS.items()}
        rows["versions"] = base() | only
        server = stack.enter_context(scripted(echo, ssl_context=context, connections=4 + 2 * len(rows)))
        assert not resumed(server.url, TLS(**base()))
        assert resumed(server.url, TLS(**base()))
        for what, settings in rows.items():
            assert not resumed(server.url, TLS(**settings)), what
            assert resumed(server.url, TLS(**settings)), what
        assert not resumed(server.url, TLS(**base()), OTHER)
        assert resumed(server.url, TLS(**base()))


def test_a_forked_child_makes_sessions_of_its_own():
    """Its parent uses the tickets, and each may be used once (RFC 8446 appendix C.4). And a thread of the parent's may
    have held the lock of the tickets."""
    with scripted(echo, ssl_context=server_context(NAME), connections=4) as server:
        settings = client_settings()
        assert [resumed(server.url, settings) for _ in range(2)] == [False, True]
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, b"yes" if resumed(server.url, settings) else b"no")
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as told:
            assert told.read() == b"no"
        os.waitpid(child, 0)
        assert resumed(server.url, settings)


def test_threads_share_sessions():
    settings = client_settings()
    faults: list[BaseException] = []
    told: list[bool] = []

    def run() -> None:
        try:
            for _ in range(10):
                with connect(url, ssl=settings) as ws:
                    ws.send("x")
                    assert ws.recv() == "x"
                    told.append(ws.tls.resumed)
        except BaseException as exc:
            faults.append(exc)

    with in_thread(lambda: websockets_echo(server_context())) as url:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not faults
    assert sum(told) > len(told) // 2  # not the first ones, which began at once


def shake_hands(name: str, settings: TLS, context: ssl.SSLContext, port: int = 1) -> bool:
    """A handshake without a network. Was a session resumed?"""
    assert rustls.load_openssl() is None
    session = TLSSession(rustls.config(settings), name.encode(), port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    done = False
    while not done:
        incoming.write(session.take())
        try:
            server.do_handshake()
            done = not session.is_handshaking
        except ssl.SSLWantReadError:
            pass
        session.feed(bytearray(outgoing.read()))
        if session.has_failed:
            raise session.failure()
    return session.describe().resumed


def test_tickets_of_32_servers_are_kept():
    names = [f"{number}.example" for number in range(32)]
    settings, context = TLS(**base(), check_hostname=False), server_context()
    for name in names:
        assert not shake_hands(name, settings, context)
    for name in names:
        assert shake_hands(name, settings, context)
    others = [f"other-{number}.example" for number in range(64)]
    for name in others:
        assert not shake_hands(name, settings, context)
    assert not shake_hands(names[0], settings, context), "the first are forgotten"
    assert shake_hands(others[-1], settings, context)


def test_many_tickets_of_one_server_leave_those_of_others():
    context = server_context()
    chatty = server_context.__wrapped__()
    chatty.num_tickets = 50
    settings = client_settings()
    assert not shake_hands("localhost", settings, context, 1)
    for _ in range(3):
        shake_hands("localhost", settings, chatty, 2)
    assert shake_hands("localhost", settings, context, 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_tickets_are_of_a_port(version):
    context = server_context.__wrapped__()
    context.maximum_version = version
    settings = client_settings()
    handshakes = [(1, False), (1, True), (2, False), (2, True), (1, True), (0, False), (0, False)]
    for port, expected in handshakes:
        assert shake_hands("localhost", settings, context, port) is expected, port


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("face", FACES)
async def test_each_face_resumes_by_port(face):
    """Two servers have the same keys for their tickets."""
    context, settings = server_context.__wrapped__(), client_settings()

    async def resumes(served) -> bool:
        async with FACES[face](served.url, context=settings) as client:
            await client.send("x")
            assert await client.recv() == "x"
            await client.close()
            return client.tls.resumed

    async with (
        serve(asyncio_echo, ssl_context=context) as one,
        serve(asyncio_echo, ssl_context=context) as other,
    ):
        assert [await resumes(served) for served in (one, one, other, one, other)] == [
            False, True, False, True, True
        ]  # fmt: skip


def shakes_hands_until_refused(resume_for: float, version: ssl.TLSVersion) -> tuple[int, int]:
    """Handshakes with a server that has kept the keys of its tickets, and then has a certificate of an unknown
    authority: how many resumed a session before, and after."""
    context, settings = server_context.__wrapped__(), TLS(**base(), resume_for=resume_for)
    context.maximum_version = version
    assert not shake_hands("localhost", settings, context)
    before = sum(shake_hands("localhost", settings, context) for _ in range(5))
    trustme.CA().issue_cert("localhost").configure_cert(context)
    after = 0
    while True:
        try:
            assert shake_hands("localhost", settings, context), "a full handshake was accepted"
        except ssl.SSLCertVerificationError:
            return before, after
        after += 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_a_chain_of_sessions_ends(version):
    """However fast one session follows on another, each with new tickets."""
    before, after = shakes_hands_until_refused(1.5, version)
    assert before == 5
    assert after > 0
    assert shakes_hands_until_refused(0, version) == (0, 0)
    assert shakes_hands_until_refused(1e-9, version) == (0, 0)


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("face", FACES)
async def test_each_face_verifies_anew(face):
    context, settings = server_context.__wrapped__(), TLS(**base(), resume_for=2)

    async def resumes() -> bool:
        async with FACES[face](served.url, context=settings) as client:
            await client.send("x")
            assert await client.recv() == "x"
            await client.close()
            return client.tls.resumed

    async with serve(asyncio_echo, ssl_context=context) as served:
        assert not await resumes()
        assert await resumes()
        trustme.CA().issue_cert("localhost", "127.0.0.1").configure_cert(context)
        refused = False
        while not refused:
            try:
                assert await resumes(), "a full handshake was accepted"
            except ssl.SSLCertVerificationError:
                refused = True


def test_a_ticket_that_makes_a_long_client_hello_is_not_offered(tmp_path):
    """OpenSSL puts the client's certificate into the ticket."""
    names = [f"a-rather-long-name-{number}.example" for number in range(600)]
    pem = tmp_path / "client.pem"
    authority().issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(pem))
    settings = dataclasses.replace(client_settings(), client_cert=pem)
    context = server_context.__wrapped__()
    authority().configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    for _ in range(3):
        hello = len(TLSSession(rustls.config(settings), b"localhost", 1).take())
        assert hello < 16384
        assert not shake_hands("localhost", settings, context)
    for blocking in range(2):
        with in_thread(lambda: websockets_echo(context)) as url, connect(url, ssl=settings) as ws:
            ws.send("x")
            assert ws.recv() == "x"
            assert not ws.tls.resumed, blocking


# Short-lived certificates, of SPIFFE or cert-manager for instance, are replaced every hour.


async def listen_again(url, settings):
    while True:
        async with FACES["listener"](url, context=settings) as client:
            yield client.recv, client.close


async def reconnect_awaitable(url, settings):
    async for ws in wsfast.asyncio.client.connect(
        url, ssl=settings, reconnect_delays=lambda: itertools.repeat(0)
    ):
        yield ws.recv, ws.wait_closed


async def reconnect_blocking(url, settings):
    connections = iter(
        wsfast.sync.client.reconnect(url, ssl=settings, reconnect_delays=lambda: itertools.repeat(0))
    )
    while True:
        ws = await asyncio.to_thread(next, connections)
        yield (
            functools.partial(asyncio.to_thread, ws.recv),
            functools.partial(asyncio.to_thread, ws.wait_closed),
        )


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("loop", [listen_again, reconnect_awaitable, reconnect_blocking])
async def test_a_client_certificate_is_rotated_without_a_restart(tmp_path, loop):
    """The same settings, and the loop that goes on, present the certificate that is there when they connect."""
    context = server_context.__wrapped__()
    authority().configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def tell_name(peer) -> None:
        await peer.accept()
        certificate = peer.writer.get_extra_info("peercert")
        peer.send(frames.text(certificate["subjectAltName"][0][1]) + frames.close(1000))
        await peer.frames_until_close()

    def rotate(name: str) -> None:
        fresh = authority().issue_cert(f"{name}.example")
        for path, pem in (("client.pem", fresh.cert_chain_pems[0]), ("client.key", fresh.private_key_pem)):
            pem.write_to_path(str(tmp_path / f"{name}.{path}"))
            # Kubernetes does so: the path is a link to another file.
            (tmp_path / "link").symlink_to(f"{name}.{path}")
            (tmp_path / "link").replace(tmp_path / path)

    names = ["one", "two", "three"]
    got = []
    settings = dataclasses.replace(
        client_settings(), client_cert=(tmp_path / "client.pem", tmp_path / "client.key")
    )
    async with serve(tell_name, ssl_context=context) as served:
        rotate(names[0])
        async with contextlib.aclosing(loop(served.url, settings)) as connections:
            async for recv, closed in connections:
                got.append(await recv())
                await closed()
                if len(got) == len(names):
                    break
                rotate(names[len(got)])
    assert got == [f"{name}.example" for name in names]

"""Sessions of TLS: resumed by the next connection to the same name with equal settings, and by no other."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
import trustme
from support.certificates import authority, client_settings, server_context
from support.servers import websockets_echo
from sync_support.servers import echo, in_thread, scripted

from wsfast import TLS
from wsfast._engine.tls import TLSSession
from wsfast._opening import rustls
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


# What of the settings differs.
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
        assert not session.has_failed, session.failure()
    return session.describe().resumed


def test_tickets_of_32_servers_are_kept():
    names = [f"{number}.example" for number in range(32)]
    settings, context = TLS(**base(), check_hostname=False), server_context()
    for name in names:
        assert not shake_hands(name, settings, context)
    for name in names:
        assert shake_hands(name, settings, context)
    assert not shake_hands("one-more.example", settings, context)
    assert not shake_hands(names[0], settings, context), "the first is forgotten"
    assert shake_hands(names[-1], settings, context)

"""Every face through every kind of proxy to a WebSocket server, and what it raises when that fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket

import pytest
from support import all_at_once, certificates, frames, proxies
from support.faces import FACES, End
from support.proxies import haproxy, microsocks, nginx, tinyproxy  # noqa: F401 - fixtures
from support.servers import Peer, serve
from support.servers import echo as plain_echo

from wsfast import TLS, InvalidStatus, Network
from wsfast._opening.reconnecting import process_exception
from wsfast.exceptions import (
    InvalidMessage,
    InvalidProxy,
    InvalidProxyMessage,
    InvalidProxyStatus,
    ProxyError,
)

NAME = "exchange.test"  # which only the proxies know
SCHEMES = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"]
BIG = "x" * 300_000

faces = pytest.mark.parametrize("face", FACES)


async def echo(peer: Peer) -> None:
    """Speaks first, and then sends everything back."""
    with contextlib.suppress(EOFError, ConnectionError):
        await peer.accept(glued=frames.frame(frames.TEXT, b"first"))
        while (sent := await peer.frame()).opcode != frames.CLOSE:
            peer.send(frames.frame(sent.opcode, sent.payload))
            await peer.writer.drain()
        peer.send(frames.frame(frames.CLOSE, sent.payload))


def server_tls(secure):
    return certificates.server_context("127.0.0.1", NAME) if secure else None


def proxy(scheme, **behaviour):
    if scheme == "http":
        return proxies.http(**behaviour)
    if scheme == "https":
        return proxies.http(certificates.server_context(), **behaviour)
    return proxies.socks(scheme, **behaviour)


def options(face, scheme, url, **more):
    """The arguments of `face` for a proxy."""
    given = {"proxy": url, **more}
    if scheme == "https":
        name = "proxy_ssl_context" if face == "listener" else "proxy_ssl"
        given.setdefault(name, certificates.client_settings())
    return given


def connect(face, url, secure=False, settings=certificates.client_settings, **given):
    return FACES[face](url, context=settings() if secure else None, **given)


async def talk(client):
    assert await client.recv() == "first"
    await client.send(BIG)
    assert await client.recv() == BIG


# Success.


@faces
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
@pytest.mark.parametrize("piece", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_connects(face, scheme, secure, piece):
    async with serve(echo, ssl_context=server_tls(secure)) as server:
        resolves = scheme not in ("socks4", "socks5")
        host = NAME if resolves else "127.0.0.1"
        auth = None if scheme.startswith("socks4") else ("user", "pa:ss" if scheme == "http" else "word")
        names = {NAME: ("127.0.0.1", server.port)}
        with proxy(scheme, piece=piece, auth=auth, names=names) as served:
            url = f"{'wss' if secure else 'ws'}://{host}:{server.port}/"
            async with connect(face, url, secure, **options(face, scheme, served.url)) as client:
                await talk(client)
            assert served.asked == [f"{host}:{server.port}"]
            assert served.up > len(BIG)


@faces
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_headers_of_the_user_s(face, scheme):
    async with serve(echo) as server:
        with proxy(scheme) as served:
            given = options(
                face, scheme, served.url, network=Network(proxy_headers={"X-Key": "a", "User-Agent": "b"})
            )
            async with connect(face, server.url, **given) as client:
                await talk(client)
            (request,) = served.requests
    assert b"\r\nX-Key: a\r\n" in request
    assert b"\r\nUser-Agent: b\r\n" in request


@faces
@pytest.mark.parametrize("outer", ["settings", "context"])
@pytest.mark.parametrize("inner", ["settings", "context"])
async def test_tls_in_tls_by_settings_and_by_contexts(face, outer, inner):
    how = {"settings": certificates.client_settings, "context": certificates.client_context}
    name = "proxy_ssl_context" if face == "listener" else "proxy_ssl"
    async with serve(echo, ssl_context=server_tls(secure=True)) as server:
        with proxy("https") as served:
            given = {"proxy": served.url, name: how[outer]()}
            async with connect(face, server.url, True, how[inner], **given) as client:
                await talk(client)
                rustls = inner == "settings" and (outer == "settings" or face == "blocking")
                assert client.tls.layer == ("rustls" if rustls else "OpenSSL")
                assert client.tls.version == "TLSv1.3"
                assert len(client.tls.certificates[0]) > 100


@faces
async def test_the_name_in_the_certificate_of_the_proxy(face):
    async with serve(echo) as server:
        context = certificates.server_context("proxy.test")
        with proxies.http(context) as served:
            given = options(face, "https", served.url)
            with pytest.raises(ProxyError, match="not valid for '127.0.0.1'"):
                async with connect(face, server.url, **given):
                    pass
            async with connect(face, server.url, **given, proxy_server_hostname="proxy.test") as client:
                await talk(client)


@faces
async def test_host_and_port_override_where_the_proxy_connects_to(face):
    """SNI, Host and the certificate remain those of the URL."""
    async with serve(echo, ssl_context=certificates.server_context(NAME)) as server:
        with proxy("http") as served:
            where = {"host": "127.0.0.1", "port": server.port}
            if face == "blocking":
                where = {"address": ("127.0.0.1", server.port)}
            async with connect(face, f"wss://{NAME}/", True, proxy=served.url, **where) as client:
                await talk(client)
            assert served.asked == [f"127.0.0.1:{server.port}"]


# The environment.


@faces
@pytest.mark.parametrize("given", [{}, {"proxy": True}], ids=["default", "True"])
async def test_the_environment_names_a_proxy(face, given, monkeypatch, caplog):
    async with serve(echo) as server:
        with proxy("http", auth=("user", "hunter2")) as served:
            monkeypatch.setenv("HTTP_PROXY", served.url)
            with caplog.at_level(logging.INFO, "wsfast.client"):
                async with connect(face, server.url, **given) as client:
                    await talk(client)
            assert served.asked == [f"127.0.0.1:{server.port}"]
            said = (
                f"through the proxy http://127.0.0.1:{served.port}, which the environment or the system names"
            )
            assert said in caplog.text
            assert "hunter2" not in caplog.text
            monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
            async with connect(face, server.url, **given) as client:
                await talk(client)
            monkeypatch.delenv("NO_PROXY")
            async with connect(face, server.url, proxy=None) as client:
                await talk(client)
            assert served.accepted == 1


@faces
async def test_the_environment_names_rubbish(face, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "ftp://user:hunter2@proxy/")
    with pytest.raises(InvalidProxy, match="all_proxy") as caught:
        async with connect(face, "ws://127.0.0.1:9/"):
            pass
    assert "hunter2" not in str(caught.value)


# Failures.

REFUSAL = b"HTTP/1.1 503 Full\r\nContent-Length: 6\r\nRetry-After: 7\r\n\r\ndenied"


@faces
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_refused(face, scheme):
    with proxy(scheme, refusal=REFUSAL, piece=1) as served, pytest.raises(InvalidProxyStatus) as caught:
        async with connect(face, "ws://127.0.0.1:9/", **options(face, scheme, served.url)):
            pass
    response = caught.value.response
    assert (response.status_code, response.body) == (503, b"denied")
    assert response.headers["Retry-After"] == "7"


async def test_a_refusal_whose_body_does_not_end():
    refusal = b"HTTP/1.1 503 Full\r\nContent-Length: 400\r\n\r\n" + 400 * b"x"

    async def refuses(face, scheme):
        with proxy(scheme, refusal=refusal, stall="body") as served:
            given = options(face, scheme, served.url)
            with pytest.raises(InvalidProxyStatus, match="503"):
                async with connect(face, "ws://127.0.0.1:9/", open_timeout=2, **given):
                    pass
            assert served.stalled.is_set()

    await all_at_once(refuses, itertools.product(FACES, ["http", "https"]))


@faces
@pytest.mark.parametrize("scheme", SCHEMES[2:])
async def test_socks_refuses(face, scheme):
    refused = pytest.raises(ProxyError, match="SOCKS proxy did not connect")
    with proxy(scheme, code=0x5B if scheme.startswith("socks4") else 5) as served, refused:
        async with connect(face, "ws://127.0.0.1:9/", proxy=served.url):
            pass


PHASES = [(scheme, phase) for scheme in ("http", "https", "socks5h") for phase in ("request", "header")]


@faces
@pytest.mark.parametrize(("scheme", "phase"), PHASES)
@pytest.mark.parametrize("how", ["drop", "reset", "rubbish"])
async def test_misbehaves(face, scheme, phase, how):
    if (scheme, phase, how) == ("socks5h", "header", "rubbish"):
        pytest.skip("the second half of its reply means nothing")
    misbehaving = proxy(scheme, **{how: phase})
    with proxies.echo() as origin, misbehaving as served, pytest.raises(ProxyError):
        async with connect(face, origin.url, **options(face, scheme, served.url)):
            pass


@faces
async def test_stalls(face):
    async def stalls(scheme, phase):
        with proxies.echo() as origin, proxy(scheme, stall=phase) as served:
            given = options(face, scheme, served.url)
            text = f"the negotiation with the proxy {scheme}://127.0.0.1:{served.port} took too long"
            with pytest.raises(TimeoutError, match=f"{text}: open_timeout is 2 seconds$"):
                async with connect(face, origin.url, open_timeout=2, **given):
                    pass
            assert served.stalled.is_set()

    await all_at_once(stalls, PHASES)


@faces
async def test_nobody_listens(face):
    with proxies.http() as served:
        url = served.url
    with pytest.raises(ProxyError, match="cannot connect to the proxy") as caught:
        async with connect(face, "ws://127.0.0.1:9/", proxy=url.replace("//", "//user:hunter2@")):
            pass
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert "hunter2" not in str(caught.value)


@faces
@pytest.mark.parametrize("whose", ["proxy", "server"])
async def test_a_certificate_that_is_not_trusted(face, whose):
    async with serve(echo, ssl_context=server_tls(secure=True)) as server:
        with proxies.http(certificates.server_context()) as served:
            given = {"proxy": served.url} if whose == "proxy" else options(face, "https", served.url)
            settings = TLS if whose == "server" else certificates.client_settings
            error = ProxyError if whose == "proxy" else OSError
            with pytest.raises(error, match="certificate verify failed"):
                async with connect(face, server.url, True, settings, **given):
                    pass
            assert len(served.asked) == (whose == "server")


@pytest.mark.parametrize("face", ["listener", "awaitable"])
async def test_what_a_server_without_tls_says_at_once_through_an_https_proxy(face):
    """It comes in one record with the reply of the proxy."""
    with proxy("https", extra=frames.frame(frames.TEXT, b"early")) as served:
        async with serve(echo) as server:
            given = options(face, "https", served.url)
            with pytest.raises(InvalidMessage):  # it is no reply to the upgrade
                async with connect(face, server.url, **given):
                    pass


@faces
async def test_bytes_between_the_reply_of_an_https_proxy_and_tls(face):
    async with serve(echo, ssl_context=server_tls(secure=True)) as server:
        with (
            proxy("https", extra=b"early") as served,
            pytest.raises(InvalidProxyMessage, match="5 bytes follow"),
        ):
            async with connect(face, server.url, True, **options(face, "https", served.url)):
                pass


@faces
async def test_an_http_proxy_that_is_asked_in_tls_and_the_other_way_round(face):
    with proxies.http(rubbish="request") as served, pytest.raises(ProxyError, match="no TLS with the proxy"):
        async with connect(
            face, "ws://127.0.0.1:9/", **options(face, "https", served.url.replace("http", "https"))
        ):
            pass
    with proxy("https") as served, pytest.raises(ProxyError):
        async with connect(face, "ws://127.0.0.1:9/", proxy=served.url.replace("https", "http")):
            pass


@faces
@pytest.mark.parametrize("scheme", ["socks4", "socks5"])
async def test_the_client_looks_up_the_name(face, scheme, monkeypatch):
    with proxy(scheme) as served, pytest.raises(OSError, match="."):
        async with connect(face, "ws://exchange.invalid:9/", proxy=served.url):
            pass
    assert not served.asked


# After which a loop connects again.

DENIED = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"


@faces
@pytest.mark.parametrize(
    ("scheme", "behaviour", "again"),
    [
        ("http", {"refusal": REFUSAL}, True),
        ("http", {"refusal": DENIED}, False),
        ("http", {"drop": "header"}, True),
        ("http", {"reset": "header"}, True),
        ("http", {"rubbish": "request"}, False),
        ("https", {"drop": "header"}, True),
        ("socks5h", {"code": 5}, True),
        ("socks5h", {"code": 2}, False),
        ("socks5h", {"drop": "header"}, True),
        ("socks5h", {"auth": ("user", "word")}, False),
        ("socks4a", {"drop": "header"}, True),
    ],
)
async def test_trying_again(face, scheme, behaviour, again):
    with proxies.echo() as origin, proxy(scheme, **behaviour) as served:
        url = f"{scheme}://127.0.0.1:{served.port}"
        with pytest.raises(ProxyError) as caught:
            async with connect(face, origin.url, **options(face, scheme, url)):
                pass
    assert process_exception(caught.value) is (None if again else caught.value)
    assert getattr(caught.value, "retry_after", None) == (7 if behaviour.get("refusal") == REFUSAL else None)


# Arguments that contradict each other.


@faces
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"proxy": "http://proxy", "proxy_server_hostname": "x"}, "proxy_server_hostname"),
        ({"proxy": "http://proxy", "tls": TLS()}, "proxy_ssl"),
        ({"proxy": "http://proxy", "tls": True}, "proxy_ssl"),
        ({"proxy": "socks5://proxy", "tls": True}, "proxy_ssl"),
        ({"proxy": "https://proxy", "tls": None}, "proxy_ssl.*=None is incompatible with an https:// proxy"),
        ({"proxy": "socks5://proxy", "network": Network(proxy_headers={"a": "b"})}, "proxy_headers"),
    ],
)
@pytest.mark.parametrize("by", ["argument", "environment"])
async def test_contradictions(face, given, match, by, monkeypatch):
    """Nothing is dialled: neither the name of the proxy nor that of the server has an address."""
    given = dict(given)
    if "tls" in given:
        given["proxy_ssl_context" if face == "listener" else "proxy_ssl"] = given.pop("tls")
    if by == "environment" and "network" not in given:
        monkeypatch.setenv("all_proxy", given.pop("proxy"))
    with pytest.raises(ValueError, match=match):
        async with connect(face, "ws://exchange.invalid/", **given):
            pass


@faces
@pytest.mark.parametrize(("scheme", "tls"), [("http", None), ("socks5h", None), ("https", True)])
async def test_what_is_no_contradiction(face, scheme, tls, monkeypatch):
    name = "proxy_ssl_context" if face == "listener" else "proxy_ssl"
    async with serve(echo) as server:
        with certificates.authority().cert_pem.tempfile() as trusted, proxy(scheme) as served:
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            async with connect(face, server.url, proxy=served.url, **{name: tls}) as client:
                await talk(client)


@faces
async def test_a_host_that_cannot_be_sent(face):
    host = "a\r\nX-Smuggled: b"
    where = {"address": (host, 80)} if face == "blocking" else {"host": host, "port": 80}
    with proxies.http() as served, pytest.raises(ValueError, match="host: 'a"):
        async with connect(face, "ws://exchange.test/", proxy=served.url, **where):
            pass
    assert not served.requests


@pytest.mark.parametrize("face", ["awaitable", "blocking"])
async def test_a_socket_of_the_user_s_is_used_without_a_proxy(face, monkeypatch):
    async with serve(echo) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            with pytest.raises(ValueError, match="proxy is incompatible with sock"):
                async with connect(face, server.url, sock=sock, proxy="http://127.0.0.1:9"):
                    pass
            monkeypatch.setenv("all_proxy", "nonsense://127.0.0.1:9")  # whoever looks at it raises
            async with connect(face, server.url, sock=sock) as client:
                await talk(client)


# The listener's socket factory gets the proxy, as picows' does.


async def test_a_socket_factory_connects_to_the_proxy(monkeypatch):
    asked = []

    def factory(where):
        asked.append((where.host, where.port))

    async with serve(echo) as server:
        with proxy("http") as served:
            async with connect("listener", server.url, proxy=served.url, socket_factory=factory) as client:
                await talk(client)
    assert asked == [("127.0.0.1", served.port)]


# Cancelled wherever it waits.


@pytest.mark.parametrize("face", ["listener", "awaitable"])
@pytest.mark.parametrize(("scheme", "phase"), PHASES)
async def test_cancelled(face, scheme, phase):
    async def connecting():
        async with connect(face, origin.url, **options(face, scheme, served.url)):
            pass

    with proxies.echo() as origin, proxy(scheme, stall=phase) as served:
        task = asyncio.ensure_future(connecting())
        while not served.stalled.is_set():  # noqa: ASYNC110 - it is another thread's
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# Packaged proxies.


@faces
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
async def test_tinyproxy(face, secure, tinyproxy):  # noqa: F811
    async with serve(echo, ssl_context=server_tls(secure)) as server:
        url = f"http://user:word@127.0.0.1:{tinyproxy}"
        async with connect(face, server.url, secure, proxy=url) as client:
            await talk(client)
        with pytest.raises(InvalidProxyStatus, match="40[17]"):
            async with connect(face, server.url, secure, proxy=url.replace("word", "other")):
                pass


@faces
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
async def test_microsocks(face, secure, microsocks):  # noqa: F811
    async with serve(echo, ssl_context=server_tls(secure)) as server:
        for scheme in "socks5", "socks5h":
            url = f"{scheme}://user:word@127.0.0.1:{microsocks}"
            async with connect(face, server.url, secure, proxy=url) as client:
                await talk(client)
        with pytest.raises(ProxyError):
            async with connect(face, server.url, secure, proxy=url.replace("word", "other")):
                pass


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
    async with serve(plain_echo) as server:
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

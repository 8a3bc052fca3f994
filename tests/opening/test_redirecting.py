"""Every face, redirected by real servers: where it goes, and what it takes along."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl

import pytest
from support import all_at_once, certificates, frames, proxies
from support.faces import FACES
from support.servers import Peer, serve

import wsfast.asyncio.client
import wsfast.sync.client
from wsfast._opening import redirects
from wsfast.exceptions import InvalidHandshake, InvalidHeader, InvalidStatus, SecurityError

faces = pytest.mark.parametrize("face", FACES)


class Site:
    """A server that redirects: from each path to where the text says, and to a greeting where there is none."""

    def __init__(self) -> None:
        self.to: dict[str, str] = {}
        self.status = 302
        self.requests: list[str] = []
        self.certificates: list[object] = []

    async def __call__(self, peer: Peer) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            request = (await peer.read_request()).decode()
            self.requests.append(request)
            self.certificates.append(peer.writer.get_extra_info("peercert"))
            location = self.to.get(request.split(" ")[1])
            if location is not None:
                head = f"HTTP/1.1 {self.status} Go\r\nLocation: {location}\r\nContent-Length: 2\r\n\r\nhi"
                peer.send(head.encode())
                return
            peer.send(peer.reply() + frames.frame(frames.TEXT, b"arrived"))
            await peer.answer_close()

    def headers(self, at: int = -1) -> dict[str, str]:
        lines = self.requests[at].split("\r\n")[1:-2]
        return dict(line.split(": ", 1) for line in lines)


@contextlib.asynccontextmanager
async def sites(*contexts):
    """A server for each context, on a port of its own."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for context in contexts or (None, None):
            site = Site()
            served = await stack.enter_async_context(serve(site, ssl_context=context))
            site.url, site.port = served.url, served.port
            made.append(site)
        yield made


def headers_of(face, headers):
    return {"extra_headers" if face == "listener" else "additional_headers": headers}


async def arrive(face, url, context=None, **options):
    async with FACES[face](url, context=context, **options) as client:
        assert await client.recv() == "arrived"


# ---- where


@faces
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_statuses(face, status, caplog):
    async with sites() as (first, second):
        first.status = status
        first.to = {"/": "next?x=1", "/next?x=1": second.url + "end"}
        with caplog.at_level(logging.INFO, "wsfast.client"):
            await arrive(face, first.url)
        assert [request.split(" ")[1] for request in first.requests] == ["/", "/next?x=1"]
        assert [request.split(" ")[1] for request in second.requests] == ["/end"]
        assert second.headers()["Host"] == f"127.0.0.1:{second.port}"
        assert f"redirected to ws://127.0.0.1:{second.port}\n" in caplog.text  # a path may be a secret
        assert "end" not in caplog.text


@faces
async def test_http_urls_lead_to_web_sockets(face):
    async with sites() as (first, second):
        first.to = {"/": second.url.replace("ws:", "http:")}
        await arrive(face, first.url)


@faces
async def test_from_ws_to_wss(face, monkeypatch):
    """By the defaults: an argument about TLS there is none."""
    with certificates.authority().cert_pem.tempfile() as trusted:
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        async with sites(None, certificates.server_context()) as (first, second):
            first.to = {"/": second.url}
            await arrive(face, first.url)


@faces
async def test_never_from_wss_to_ws(face):
    async with sites(certificates.server_context(), None) as (first, second):
        first.to = {"/": second.url}
        with pytest.raises(SecurityError, match="from wss to ws"):
            await arrive(face, first.url, certificates.client_settings())
        assert not second.requests


@faces
@pytest.mark.parametrize("location", ["/", "?", "http://127.0.0.1:{port}/"])
async def test_loops(face, location):
    async with sites() as (first, _):
        first.to = {"/": "/a", "/a": location.format(port=first.port)}
        with pytest.raises(SecurityError, match="loop") as caught:
            await arrive(face, first.url)
        assert caught.value.response.status_code == 302


@faces
async def test_too_many(face):
    limit = 5 if face == "listener" else 10
    async with sites() as (first, _):
        first.to = {f"/{'a' * i}": f"/{'a' * (i + 1)}" for i in range(limit)}
        await arrive(face, first.url)
        first.to[f"/{'a' * limit}"] = "/b"
        with pytest.raises(SecurityError, match=f"more than {limit} redirects"):
            await arrive(face, first.url)


@faces
@pytest.mark.parametrize("location", ["", "ftp://127.0.0.1/", "//[::1", "ws://user name@x/", "http://a\\b/"])
async def test_locations_that_lead_nowhere(face, location):
    async with sites() as (first, _):
        first.to = {"/": location}
        with pytest.raises(InvalidHeader, match="Location"):
            await arrive(face, first.url)


@faces
async def test_a_public_server_leads_into_no_private_network(face, monkeypatch):
    """127.0.0.2 passes for a public address here, and localhost for the name of one, which it turns out not to be."""
    monkeypatch.setattr(redirects, "is_public", lambda host: host in ("127.0.0.2", "localhost"))
    public = Site()
    async with sites() as (private, _), serve(public, host="127.0.0.2") as served:
        for host in "127.0.0.1", "localhost":
            public.to = {"/": f"ws://{host}:{private.port}/end"}
            with pytest.raises(SecurityError, match="public server to (127.0.0.1|::1), which is private"):
                await arrive(face, served.url)
        # The other way round, and among its own, it is none of our business.
        private.to = {"/": served.url, "/end": "/arrived"}
        public.to = {}
        await arrive(face, private.url)
        await arrive(face, private.url + "end")
        assert len(private.requests) == 3


# ---- what goes along


@faces
@pytest.mark.parametrize("cross", [False, True])
async def test_credentials_stay_with_their_origin(face, cross):
    async with sites() as (first, second):
        other = second if cross else first
        first.to = {"/": f"ws://eve:evil@127.0.0.1:{other.port}/end"}
        url = first.url.replace("//", "//user:word@")
        secrets = {"Cookie": "a=b", "X-Unknown": "k", "Accept-Language": "x"}
        await arrive(face, url, **headers_of(face, secrets))
        sent = other.headers()
        kept = {"Authorization", "Cookie", "X-Unknown"} & set(sent)
        assert kept == (set() if cross else {"Authorization", "Cookie", "X-Unknown"})
        assert sent["Accept-Language"] == "x"
        if not cross:
            assert sent["Authorization"] == first.headers(0)["Authorization"]


@faces
async def test_what_was_dropped_stays_dropped_on_the_way_back(face):
    async with sites() as (first, second):
        first.to = {"/": second.url}
        second.to = {"/": first.url + "end"}
        await arrive(face, first.url, **headers_of(face, [("Authorization", "secret")]))
        assert "Authorization" in first.headers(0)
        assert "Authorization" not in first.headers(1)


@faces
@pytest.mark.parametrize("cross", [False, True])
async def test_a_client_s_certificate_stays_with_its_origin(face, cross, tmp_path):
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    issued = certificates.authority().issue_cert("client@example")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    context = certificates.server_context.__wrapped__()
    context.verify_mode = ssl.CERT_OPTIONAL
    certificates.authority().configure_trust(context)
    settings = certificates.client_settings((certificate, key))
    own = certificates.client_context()
    own.load_cert_chain(certificate, key)
    async with sites(context, context) as (first, second):
        other = second if cross else first
        first.to = {"/": other.url + "end"}
        await arrive(face, first.url, settings)
        assert first.certificates[0]
        assert bool(other.certificates[-1]) is not cross
        first.requests.clear()
        # Of a context of the user's nothing can be taken away.
        if cross:
            with pytest.raises(SecurityError, match="client's certificate"):
                await arrive(face, first.url, own)
            await arrive(face, first.url, certificates.client_context())
        else:
            await arrive(face, first.url, own)


@faces
async def test_the_name_of_one_origin_is_not_that_of_another(face):
    first_context = certificates.server_context("exchange.test")
    async with sites(first_context, certificates.server_context()) as (first, second):
        first.to = {"/": second.url}
        await arrive(face, first.url, certificates.client_settings(), server_hostname="exchange.test")


# ---- bound to a place


@faces
async def test_an_argument_says_where_to_connect_to(face):
    async with sites() as (first, second):
        where = {"host": "127.0.0.1", "port": first.port}
        if face == "blocking":
            where = {"address": ("127.0.0.1", first.port)}
        first.to = {"/": "/end"}
        await arrive(face, "ws://exchange.test/", **where)
        first.to = {"/": second.url}
        with pytest.raises(SecurityError, match="host says where to connect to"):
            await arrive(face, "ws://exchange.test/", **where)


@pytest.mark.parametrize("face", ["awaitable", "blocking"])
async def test_a_socket_of_the_user_s_is_used_up(face):
    async with sites() as (first, _):
        first.to = {"/": "/end"}
        refused = pytest.raises(SecurityError, match="sock says where to connect to")
        with socket.create_connection(("127.0.0.1", first.port)) as sock, refused:
            await arrive(face, first.url, sock=sock)


# ---- through a proxy


@faces
async def test_through_a_proxy(face):
    async with sites() as (first, second):
        first.to = {"/": second.url}
        with proxies.http() as served:
            await arrive(face, first.url, proxy=served.url)
            assert served.asked == [f"127.0.0.1:{site.port}" for site in (first, second)]


@faces
async def test_each_server_has_the_proxy_that_the_environment_says(face, monkeypatch):
    async with sites() as (first, second):
        first.to = {"/": second.url}
        with proxies.http() as served:
            monkeypatch.setenv("http_proxy", served.url)
            monkeypatch.setenv("no_proxy", f"127.0.0.1:{first.port}")
            await arrive(face, first.url)
            assert served.asked == [f"127.0.0.1:{second.port}"]


# ---- the deadline


async def test_all_servers_together_have_one_deadline():
    async def silent(peer: Peer) -> None:
        await peer.reader.read(-1)

    async def is_too_late(face):
        async with sites() as (first, _), serve(silent) as second:
            first.to = {"/": second.url}
            text = f"handshake with .*{second.port} took too long: open_timeout"
            with pytest.raises(TimeoutError, match=text):
                await arrive(face, first.url, open_timeout=2)

    await all_at_once(is_too_late, zip(FACES))


@faces
async def test_the_deadline_does_not_begin_anew_with_each_server(face):
    """Each takes less than the deadline, and all together take more."""

    async def slow(peer: Peer) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            request = await peer.read_request()
            await asyncio.sleep(0.3)
            if request.startswith(b"GET /end "):
                peer.send(peer.reply() + frames.frame(frames.TEXT, b"arrived"))
            else:
                peer.send(b"HTTP/1.1 302 Go\r\nLocation: /end\r\nContent-Length: 0\r\n\r\n")

    async with serve(slow) as server:
        with pytest.raises(TimeoutError, match="open_timeout"):
            await arrive(face, server.url, open_timeout=0.5)


def endless(where: str, piece: bytes):
    """A server that redirects, and whose explanation has no end."""

    async def serving(peer: Peer) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            await peer.read_request()
            peer.send(f"HTTP/1.1 302 Go\r\nLocation: {where}\r\n\r\nbegin".encode())
            while piece:
                peer.send(piece)
                await peer.writer.drain()
            await peer.reader.read(-1)

    return serving


@faces
async def test_a_body_without_end_is_bounded(face):
    async with sites() as (_, second), serve(endless(second.url, b"x" * 65536)) as first:
        await arrive(face, first.url)


async def test_a_body_that_stalls_is_bounded_by_the_deadline():
    async def is_cut(face):
        async with sites() as (_, second), serve(endless(second.url, b"")) as first:
            with pytest.raises(InvalidStatus, match="302") as caught:
                await arrive(face, first.url, open_timeout=2)
            assert caught.value.response.body == b"begin"
            assert not second.requests

    await all_at_once(is_cut, zip(FACES))


# ---- process_redirect, as websockets has it


@pytest.mark.parametrize("face", ["awaitable", "blocking"])
async def test_a_subclass_decides(face):
    base = wsfast.asyncio.client.connect if face == "awaitable" else wsfast.sync.client.reconnect
    seen = []

    class Deciding(base):
        def process_redirect(self, exc):
            seen.append(super().process_redirect(exc))
            return decide(exc)

    async def run(url):
        if face == "awaitable":
            async with Deciding(url) as ws:
                return await ws.recv()

        def blocking():
            with Deciding(url) as ws:
                return ws.recv()

        return await asyncio.get_running_loop().run_in_executor(None, blocking)

    async with sites() as (first, second):
        first.to = {"/": "/a"}
        decide = lambda exc: second.url  # noqa: E731
        assert await run(first.url) == "arrived"
        assert seen == [first.url + "a"]
        decide = lambda exc: exc  # noqa: E731
        with pytest.raises(InvalidStatus, match="302"):
            await run(first.url)
        decide = lambda exc: InvalidHandshake("no")  # noqa: E731
        with pytest.raises(InvalidHandshake, match="no"):
            await run(first.url)


async def test_none_are_followed():
    async with sites() as (first, _):
        first.to = {"/": "/a"}
        with pytest.raises(InvalidStatus) as caught:
            await arrive("listener", first.url, max_redirects=0)
    assert caught.value.response.body == b"hi"

"""Real proxies that behave, refuse, stall, hang up and talk rubbish, by each way that a face may take."""

import asyncio
import socket
import ssl

import pytest
import trustme
from support import proxies, through
from support.proxies import microsocks, tinyproxy  # noqa: F401 - fixtures
from support.through import PING

from wsfast._opening.net.blocking import BlockingNet, Deadline, DeadlinePassed, run
from wsfast._opening.net.loop import LoopNet
from wsfast._opening.proxy import socks
from wsfast._opening.proxy.settings import parse_proxy
from wsfast.exceptions import InvalidProxyMessage, InvalidProxyStatus, ProxyError

NAME = "exchange.test"  # which only the proxies know
SOCKS = ["socks4", "socks4a", "socks5", "socks5h"]

ways = pytest.mark.parametrize("way", through.WAYS.values(), ids=through.WAYS)
tls_ways = pytest.mark.parametrize("way", through.TLS_WAYS.values(), ids=through.TLS_WAYS)


def proxy(scheme, **behaviour):
    return proxies.http(**behaviour) if scheme == "http" else proxies.socks(scheme, **behaviour)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def server_context(authority):
    """For proxies, and for servers behind them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", NAME).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def client_context(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


# Success.


@ways
@pytest.mark.parametrize("piece", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize("scheme", ["http", *SOCKS])
def test_connects(way, scheme, piece):
    with proxies.echo() as origin, proxy(scheme, piece=piece) as served:
        assert way(served, proxies.HOST, origin.port) == PING
        assert served.asked == [f"{proxies.HOST}:{origin.port}"]
        assert (served.up, served.down, origin.accepted) == (len(PING), len(PING), 1)


@ways
@pytest.mark.parametrize("scheme", ["http", "socks4a", "socks5h"])
def test_the_proxy_looks_up_the_name(way, scheme):
    with proxies.echo() as origin, proxy(scheme, names={NAME: (proxies.HOST, origin.port)}) as served:
        assert way(served, NAME, 443) == PING
        assert served.asked == [f"{NAME}:443"]


@ways
@pytest.mark.parametrize("scheme", ["socks4", "socks5"])
def test_the_client_looks_up_the_name(way, scheme):
    with proxy(scheme) as served, pytest.raises(ValueError, match=NAME):
        way(served, NAME, 443)


@ways
@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_ipv6(way, scheme):
    with proxies.echo(host="::1") as origin, proxy(scheme) as served:
        assert way(served, "::1", origin.port) == PING
        assert served.asked == [f"::1:{origin.port}"]


@ways
def test_socks4_knows_no_ipv6(way):
    with proxy("socks4") as served, pytest.raises(ProxyError, match="IPv6"):
        way(served, "::1", 443)


@ways
@pytest.mark.parametrize("piece", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize("scheme", ["http", *SOCKS])
def test_bytes_behind_the_reply_are_kept(way, scheme, piece):
    extra = bytes(range(128)) * 300  # more than one read
    with (
        proxies.echo(greeting=b"hello") as origin,
        proxy(scheme, piece=piece, extra=extra) as served,
    ):
        got = way(served, proxies.HOST, origin.port)
    assert got.startswith(extra)
    assert sorted(got.removeprefix(extra)) == sorted(b"hello" + PING)


@ways
@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_authentication(way, scheme):
    with proxies.echo() as origin, proxy(scheme, auth=("user", "word"), piece=1) as served:
        assert way(served, proxies.HOST, origin.port) == PING
        served.behaviour.auth = (
            "user",
            "hunter2",
        )  # the URL follows, so it is the proxy that is asked for more
        with pytest.raises(ProxyError) as caught:
            way(
                _with_url(served, f"{scheme}://user:wrong@{proxies.HOST}:{served.port}"),
                proxies.HOST,
                origin.port,
            )
        assert "wrong" not in str(caught.value)
        with pytest.raises(ProxyError):
            way(_with_url(served, f"{scheme}://{proxies.HOST}:{served.port}"), proxies.HOST, origin.port)
        assert origin.accepted == 1


@ways
@pytest.mark.parametrize("scheme", ["socks4", "socks4a"])
def test_user_of_socks4(way, scheme):
    with proxies.echo() as origin, proxy(scheme, auth=("user", "")) as served:
        assert way(served, proxies.HOST, origin.port) == PING
        with pytest.raises(ProxyError):
            way(
                _with_url(served, f"{scheme}://other@{proxies.HOST}:{served.port}"), proxies.HOST, origin.port
            )


class _with_url:  # noqa: N801
    """The same proxy with other credentials."""

    def __init__(self, served, url):
        self.port = served.port
        self.url = url


# Refusals.


@ways
@pytest.mark.parametrize("piece", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\ndenied", 403),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\ndenied", 502),
        (b"HTTP/1.1 503 Full\r\nContent-Length: 600\r\nRetry-After: 7\r\n\r\ndenied", 503),
    ],
)
def test_refused(way, refusal, status, piece):
    with proxies.http(refusal=refusal, piece=piece) as served, pytest.raises(InvalidProxyStatus) as caught:
        way(served, proxies.HOST, 9)
    response = caught.value.response
    assert (response.status_code, response.body) == (status, b"denied")
    assert response.headers.get("retry-after") == ("7" if status == 503 else None)


@ways
def test_authentication_required(way):
    with (
        proxies.http(auth=("user", "word")) as served,
        pytest.raises(InvalidProxyStatus, match="407") as caught,
    ):
        way(_with_url(served, f"http://{proxies.HOST}:{served.port}"), proxies.HOST, 9)
    assert caught.value.response.headers["Proxy-Authenticate"] == "Basic realm=x"
    assert caught.value.response.body == b"denied"


@ways
def test_a_large_refusal(way):
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 5000000\r\n\r\n" + 2_000_000 * b"x"
    with proxies.http(refusal=refusal) as served, pytest.raises(InvalidProxyStatus) as caught:
        way(served, proxies.HOST, 9)
    assert caught.value.response.body == (1 << 20) * b"x"


@ways
def test_a_refusal_that_stalls(way):
    """The part of the body that came before the deadline is reported."""
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 400\r\n\r\n" + 400 * b"x"
    with proxies.http(refusal=refusal, stall="body") as served:
        with pytest.raises(InvalidProxyStatus) as caught:
            way(served, proxies.HOST, 9, timeout=2)
        assert set(caught.value.response.body) == set(b"x")
        assert served.stalled.is_set()


@ways
def test_a_refusal_that_is_cut_by_a_reset(way):
    """It says more than the reset."""
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 400\r\n\r\n" + 400 * b"x"
    with proxies.http(refusal=refusal, reset="body") as served, pytest.raises(InvalidProxyStatus):
        way(served, proxies.HOST, 9)


@ways
@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 7, 8, 9, 255])
def test_socks5_refuses(way, code):
    with proxy("socks5h", code=code, piece=1) as served, pytest.raises(ProxyError):
        way(served, NAME, 443)


@ways
@pytest.mark.parametrize("code", [0x5B, 0x5C, 0x5D, 1])
def test_socks4_refuses(way, code):
    with proxy("socks4a", code=code, piece=1) as served, pytest.raises(ProxyError):
        way(served, NAME, 443)


@ways
def test_a_name_that_socks_cannot_send(way):
    with proxy("socks5h") as served, pytest.raises(ProxyError):
        way(served, ".".join(5 * [60 * "x"]), 443)


# Proxies that fail. Phases of each protocol:

PHASES = [("http", name) for name in ("request", "header")]
PHASES += [("socks4a", name) for name in ("request", "header")]
PHASES += [("socks5h", name) for name in ("greeting", "auth", "request", "header")]
phases = pytest.mark.parametrize(("scheme", "phase"), PHASES, ids=[" ".join(phase) for phase in PHASES])


def credentials(scheme):
    return None if scheme == "socks4a" else ("user", "word")


@ways
@phases
def test_stalls(way, scheme, phase):
    with proxies.echo() as origin, proxy(scheme, stall=phase, auth=credentials(scheme)) as served:
        timeout = 0.1
        while not served.stalled.is_set():  # a busy machine may need longer to reach that phase
            with pytest.raises((TimeoutError, asyncio.TimeoutError)):
                way(served, proxies.HOST, origin.port, timeout=timeout)
            timeout *= 2


@ways
@phases
@pytest.mark.parametrize("how", ["drop", "reset"])
def test_hangs_up(way, scheme, phase, how):
    with proxies.echo() as origin, proxy(scheme, auth=credentials(scheme), **{how: phase}) as served:
        with pytest.raises(ProxyError) as caught:
            way(served, proxies.HOST, origin.port)
        assert caught.value.__cause__ is not None


# A name that is no UTF-8, once the proxy has authenticated.
NO_NAME = b"\x05\x02\x01\x00\x05\x00\x00\x03\x04\xff\xff\xff\xff\0\0"


@ways
@pytest.mark.parametrize(("scheme", "phase"), PHASES[:-1], ids=[" ".join(phase) for phase in PHASES[:-1]])
@pytest.mark.parametrize("garbage", [b"\x00\xff rubbish \r\n\r\n" * 4, NO_NAME], ids=["text", "SOCKS5"])
def test_talks_rubbish(way, scheme, phase, garbage):
    if (scheme, phase) == ("socks4a", "header"):
        pytest.skip("the second half of its reply means nothing")
    misbehaving = proxy(scheme, auth=credentials(scheme), rubbish=phase, garbage=garbage)
    with proxies.echo() as origin, misbehaving as served, pytest.raises(ProxyError):
        way(served, proxies.HOST, origin.port)


@ways
def test_an_https_proxy_is_asked_in_plain(way, server_context):
    with proxies.http(server_context) as served, pytest.raises(ProxyError):
        way(_with_url(served, f"http://{proxies.HOST}:{served.port}"), proxies.HOST, 443)


def test_a_byte_at_a_time_does_not_move_the_deadline():
    """Blocking: the time is for all calls together."""
    listening = socket.create_server((proxies.HOST, 0))
    sock = socket.create_connection(listening.getsockname())
    sent = []

    class Counted(Deadline):
        @property
        def is_over(self):
            """After four bytes; before it are the request and the first of them."""
            if len(sent) < 4:
                sent.append(peer.send(b"HTTP/1.1 200 OK"[len(sent) :][:1]))
                return False
            return True

    with listening, sock:
        sock.setblocking(False)
        peer, _ = listening.accept()
        made = parse_proxy("http://proxy")
        handshake = through.TunnelHandshake(made, NAME, 443)
        network = BlockingNet(Counted(5))
        with peer, pytest.raises(DeadlinePassed):
            run(through.negotiation.negotiate(network, sock, made, NAME, 443, handshake))
        assert sock.fileno() == -1
    assert len(sent) == 4


@pytest.mark.parametrize("loop", through.LOOPS.values(), ids=through.LOOPS)
@phases
def test_cancelled(loop, scheme, phase):
    """Wherever it waits, nothing is left: the fixture of all tests counts descriptors, tasks and threads."""

    async def cancel():
        sock = socket.create_connection((proxies.HOST, served.port))
        sock.setblocking(False)
        made = parse_proxy(served.url)
        handshake = None if made.is_socks else through.TunnelHandshake(made, proxies.HOST, origin.port)
        connecting = asyncio.ensure_future(
            through.negotiation.negotiate(
                LoopNet(asyncio.get_running_loop()), sock, made, proxies.HOST, origin.port, handshake
            )
        )
        await asyncio.sleep(0)  # it begins; CPython 3.14 may not suspend in the next line
        await asyncio.get_running_loop().run_in_executor(None, served.stalled.wait, 5)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert sock.fileno() == -1
        await asyncio.get_running_loop().shutdown_default_executor()

    with proxies.echo() as origin, proxy(scheme, stall=phase, auth=credentials(scheme)) as served:
        through._run(loop, cancel)


# Proxies with TLS, and TLS within.


@tls_ways
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
@pytest.mark.parametrize("piece", [0, 1], ids=["whole", "bytes"])
def test_connects_by_tls(way, secure, piece, server_context, client_context):
    with proxies.echo(server_context if secure else None) as origin:
        names = {NAME: (proxies.HOST, origin.port)}
        with proxies.http(server_context, auth=("user", "word"), piece=piece, names=names) as served:
            assert way(served, NAME, 443, client_context, client_context if secure else None) == PING
            assert served.asked == [f"{NAME}:443"]
            assert origin.accepted == 1


@tls_ways
def test_bytes_behind_the_reply_are_kept_in_tls(way, server_context, client_context):
    extra = bytes(range(128)) * 300
    with (
        proxies.echo(greeting=b"hello") as origin,
        proxies.http(server_context, extra=extra) as served,
    ):
        got = way(served, proxies.HOST, origin.port, client_context, None)
    assert got.startswith(extra)
    assert sorted(got.removeprefix(extra)) == sorted(b"hello" + PING)


@tls_ways
def test_a_server_that_speaks_with_its_tls_handshake(way, server_context, client_context):
    with (
        proxies.echo(server_context, greeting=b"hello") as origin,
        proxies.http(server_context, names={NAME: (proxies.HOST, origin.port)}) as served,
    ):
        assert way(served, NAME, 443, client_context, client_context) == b"hello" + PING


@pytest.mark.parametrize("way", through.TLS_WAYS.values(), ids=through.TLS_WAYS)
def test_bytes_before_the_inner_tls(way, server_context, client_context):
    with (
        proxies.echo(server_context) as origin,
        proxies.http(server_context, extra=b"early") as served,
        pytest.raises(InvalidProxyMessage, match="5 bytes follow"),
    ):
        way(served, proxies.HOST, origin.port, client_context, client_context)


@tls_ways
def test_refused_in_tls(way, server_context, client_context):
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\ndenied"
    with proxies.http(server_context, refusal=refusal) as served, pytest.raises(InvalidProxyStatus) as caught:
        way(served, proxies.HOST, 9, client_context, None)
    assert caught.value.response.body == b"denied"


@tls_ways
def test_a_refusal_that_stalls_in_tls(way, server_context, client_context):
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 400\r\n\r\n" + 400 * b"x"
    with (
        proxies.http(server_context, refusal=refusal, stall="body") as served,
        pytest.raises(InvalidProxyStatus),
    ):
        way(served, proxies.HOST, 9, client_context, None, timeout=2)


@tls_ways
@pytest.mark.parametrize("phase", ["request", "header"])
@pytest.mark.parametrize("how", ["drop", "reset"])
def test_hangs_up_in_tls(request, way, phase, how, server_context, client_context):
    if how == "reset" and "uvloop, aiofastnet" in request.node.callspec.id:
        pytest.skip(
            "aiofastnet 1.2 on uvloop misses a reset behind data: uvloop polls no more, and it reads once"
        )
    misbehaving = proxies.http(server_context, **{how: phase})
    with proxies.echo() as origin, misbehaving as served, pytest.raises((ProxyError, OSError)):
        way(served, proxies.HOST, origin.port, client_context, None)


@tls_ways
@pytest.mark.parametrize("phase", ["request", "header"])
def test_talks_rubbish_in_tls(way, phase, server_context, client_context):
    misbehaving = proxies.http(server_context, rubbish=phase)
    with proxies.echo() as origin, misbehaving as served, pytest.raises(InvalidProxyMessage):
        way(served, proxies.HOST, origin.port, client_context, None)


@tls_ways
@pytest.mark.parametrize("phase", ["TLS with the proxy", "request", "header", "TLS with the server"])
def test_stalls_in_tls(way, phase, server_context, client_context):
    secure = client_context if phase == "TLS with the server" else None
    with proxies.silent() as silent, proxies.http(server_context, stall=phase) as served:
        asked = silent if phase == "TLS with the proxy" else served
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            way(asked, proxies.HOST, silent.port, client_context, secure, timeout=0.3)


@tls_ways
@pytest.mark.parametrize("who", ["proxy", "server"])
def test_a_certificate_that_is_not_trusted(way, who, server_context, client_context):
    stranger = ssl.create_default_context()
    contexts = (stranger, client_context) if who == "proxy" else (client_context, stranger)
    with proxies.echo(server_context) as origin, proxies.http(server_context) as served:
        expected = ProxyError if who == "proxy" else OSError
        with pytest.raises(expected, match="CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            way(served, proxies.HOST, origin.port, *contexts)
        assert served.asked == ([] if who == "proxy" else [f"{proxies.HOST}:{origin.port}"])


# Packaged proxies.


class _packaged:  # noqa: N801
    def __init__(self, scheme, userinfo, port):
        self.port = port
        self.url = f"{scheme}://{userinfo}{proxies.HOST}:{port}"


@ways
def test_tinyproxy(way, tinyproxy):  # noqa: F811
    with proxies.echo() as origin:
        assert way(_packaged("http", "user:word@", tinyproxy), "localhost", origin.port) == PING
        for wrong in ("", "user:other@"):
            with pytest.raises(InvalidProxyStatus, match="40[17]"):
                way(_packaged("http", wrong, tinyproxy), proxies.HOST, origin.port)


@ways
def test_microsocks(way, microsocks):  # noqa: F811
    with proxies.echo() as origin:
        assert way(_packaged("socks5h", "user:word@", microsocks), "localhost", origin.port) == PING
        assert way(_packaged("socks5", "user:word@", microsocks), proxies.HOST, origin.port) == PING
        for wrong in ("", "user:other@"):
            with pytest.raises(ProxyError):
                way(_packaged("socks5h", wrong, microsocks), proxies.HOST, origin.port)


def test_what_the_handler_of_a_signal_raises_is_not_the_proxy_s_fault():
    class StoppedError(Exception):
        pass

    stop = StoppedError()
    assert socks._translated(stop) is stop

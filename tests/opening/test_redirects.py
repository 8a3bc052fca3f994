"""The target of a redirect, and the headers that are sent there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsfast._common.upgrade import UpgradeResponse
from wsfast._opening.http.handshake import ClientHandshake
from wsfast._opening.redirects import MAX_REDIRECTS, Redirects, is_public, is_redirect
from wsfast._opening.uri import parse_uri
from wsfast.exceptions import (
    InvalidHandshake,
    InvalidHeader,
    InvalidHeaderValue,
    InvalidStatus,
    InvalidURI,
    SecurityError,
)

PUBLIC, PRIVATE = "93.184.216.34", "10.0.0.1"
START = "ws://user:hunter2@exchange.example/a/b?x=1"


def rejection(location=None, status=302, *more):
    lines = [f"Location: {text}".encode("latin-1") for text in (location, *more) if text is not None]
    return InvalidStatus(UpgradeResponse(b"HTTP/1.1", status, "", b"\r\n".join(lines)))


def redirected(location, start=START, peer=PUBLIC, **options):
    redirects = Redirects(parse_uri(start), **options)
    redirects.follow(rejection(location), peer)
    return redirects


def text(uri):
    return f"{uri.scheme}://{uri.netloc}{uri.resource_name}"


# Locations.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_statuses(status):
    redirects = Redirects(parse_uri(START))
    failed = rejection("/other", status)
    assert is_redirect(failed.response)
    redirects.follow(failed, PUBLIC)
    assert text(redirects.uri) == "ws://exchange.example/other"


@pytest.mark.parametrize("status", [200, 300, 304, 305, 306, 400, 404, 503])
def test_no_redirect(status):
    failed = rejection("/other", status)
    assert not is_redirect(failed.response)
    with pytest.raises(InvalidStatus) as caught:
        Redirects(parse_uri(START)).follow(failed, PUBLIC)
    assert caught.value is failed


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/c", "ws://exchange.example/c"),
        ("c?y=2", "ws://exchange.example/a/c?y=2"),
        ("../c", "ws://exchange.example/c"),
        ("?y=2", "ws://exchange.example/a/b?y=2"),
        ("//other.example/c", "ws://other.example/c"),
        ("ws://other.example:8080", "ws://other.example:8080/"),
        ("wss://other.example", "wss://other.example/"),
        ("http://other.example/c", "ws://other.example/c"),
        ("HTTPS://Other.example:444/c?d", "wss://other.example:444/c?d"),
        ("https://other.example/c#part", "wss://other.example/c"),
        ("/c%20d", "ws://exchange.example/c%20d"),
        ("https://[2606:4700::1]/", "wss://[2606:4700::1]/"),
        ("/\xe9", "ws://exchange.example/%C3%A9"),
    ],
)
def test_locations(location, target):
    redirects = redirected(location)
    assert text(redirects.uri) == target
    assert redirects.crossed is not target.startswith("ws://exchange.example/")
    ClientHandshake(redirects.uri)  # it can be asked


def test_the_zone_of_a_host_stays():
    redirects = redirected("/c", "ws://[fe80::1%25eth0]/", "fe80::1%eth0")
    assert redirects.uri.host == "fe80::1%eth0"
    assert not redirects.crossed


@pytest.mark.parametrize("location", [None, ""])
def test_no_location(location):
    with pytest.raises(InvalidHeader, match="Location") as caught:
        redirected(location)
    assert caught.value.response.status_code == 302


def test_two_locations():
    redirects = Redirects(parse_uri(START))
    with pytest.raises(InvalidHeader, match="2 different"):
        redirects.follow(rejection("/a", 302, "/b"), PUBLIC)
    redirects.follow(rejection("/a", 302, "/a"), PUBLIC)
    assert redirects.uri.path == "/a"


@pytest.mark.parametrize(
    "location",
    [
        "ftp://user:hunter2@other.example/",
        "file:///etc/passwd",
        "unix:///run/docker.sock",
        "ws+unix://%2Frun%2Fdocker.sock",
        "http://",
        "http:other.example",
        "http://[::1",
        "http://user:hunter2@[::1",
        "http://user:hunter2@other.example:99999",
        "http://a b/",
        "/a b",
        "/a\tb",
        "http://other.example\\@exchange.example/",
        "\x85/a",
        "javascript:alert(1)",
    ],
)
def test_malformed_locations(location):
    with pytest.raises(InvalidHeaderValue, match="Location") as caught:
        redirected(location)
    error = caught.value
    assert error.response.status_code == 302
    assert "hunter2" not in str(error) + repr(error) + repr(error.__context__)


# Redirects that are followed.


def test_limit():
    redirects = Redirects(parse_uri(START))
    for count in range(MAX_REDIRECTS):
        redirects.follow(rejection(f"/{count}"), PUBLIC)
    with pytest.raises(SecurityError, match="more than 10 redirects"):
        redirects.follow(rejection("/more"), PUBLIC)
    assert redirects.uri.path == "/9"


def test_a_limit_of_none():
    failed = rejection("/other")
    with pytest.raises(InvalidStatus):
        Redirects(parse_uri(START), limit=0).follow(failed, PUBLIC)


@pytest.mark.parametrize("way", [["/a/b?x=1"], ["/1", "/2", "/1"], ["//other.example/", START]])
def test_loops(way):
    redirects = Redirects(parse_uri(START))
    for location in way[:-1]:
        redirects.follow(rejection(location), PUBLIC)
    with pytest.raises(SecurityError, match="loop") as caught:
        redirects.follow(rejection(way[-1]), PUBLIC)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "location", ["ws://exchange.example/", "http://exchange.example/", "http://other.example"]
)
def test_no_downgrade(location):
    with pytest.raises(SecurityError, match="from wss"):
        redirected(location, "wss://exchange.example/")
    with pytest.raises(SecurityError, match="from wss"):
        redirected(
            "/", "wss://exchange.example/", process_redirect=lambda exc, uri: location.replace("http", "ws")
        )


def test_no_downgrade_later():
    redirects = redirected("https://exchange.example/")
    with pytest.raises(SecurityError, match="from wss"):
        redirects.follow(rejection("http://exchange.example/again"), PUBLIC)


@pytest.mark.parametrize("bound", ["path", "host", "port"])
def test_bound_to_a_place(bound):
    redirected("/c", bound=bound)
    with pytest.raises(SecurityError, match=f"{bound} says where"):
        redirected("ws://exchange.example:81/", bound=bound)


def test_bound_to_a_socket():
    with pytest.raises(SecurityError, match="sock says where"):
        redirected("/c", bound="sock")


# Credentials.


@pytest.mark.parametrize("location", ["/c", "ws://exchange.example:80/c", "http://EXCHANGE.example/c", "?y"])
def test_the_origin_keeps_its_credentials(location):
    redirects = redirected(location)
    assert redirects.uri.user_info == ("user", "hunter2")
    headers = [("Authorization", "a"), ("X", "y")]
    assert redirects.headers(headers) is headers
    assert not redirects.crossed


@pytest.mark.parametrize(
    "location",
    [
        "wss://exchange.example/",
        "//other.example/a",
        "ws://exchange.example:81/",
        "//exchange.example./",
        "//sub.exchange.example",
    ],
)
def test_other_origins_get_none(location):
    redirects = redirected(location)
    assert redirects.crossed
    assert redirects.uri.user_info is None
    assert b"uthorization" not in ClientHandshake(redirects.uri).request_bytes
    assert "hunter2" not in redirects.uri.uri


def test_none_come_back():
    """Another origin chose where the chain goes on."""
    redirects = redirected("//other.example/")
    redirects.follow(rejection("ws://exchange.example/back"), PUBLIC)
    redirects.follow(rejection("/further"), PUBLIC)
    assert redirects.crossed
    assert redirects.uri.user_info is None
    assert redirects.headers({"Cookie": "c"}) == []


@pytest.mark.parametrize("location", ["//admin:root@other.example/", "//admin:root@exchange.example/"])
def test_credentials_of_a_server_are_not_used(location):
    assert redirected(location).uri.user_info in (None, ("user", "hunter2"))


def test_subprotocols_that_carry_a_token_stay_with_their_origin():
    offered = ["base64url.bearer.authorization.k8s.io.hunter2", "chat"]
    assert redirected("//other.example/").subprotocols(offered) == ["chat"]
    assert redirected("/same").subprotocols(offered) is offered
    header = "Sec-WebSocket-Protocol"
    assert redirected("//other.example/").headers([(header, offered[0])]) == []
    assert redirected("//other.example/").headers({header: ", ".join(offered)}) == [(header, "chat")]


@pytest.mark.parametrize("token", ["x.S3CR3T", "x.s3cr3t", "ticket.a", "v1.eyJhbGciOi", "a" * 21, "x.SECRET"])
@pytest.mark.parametrize(
    "name", ["graphql-transport-ws", "wamp.2.json", "MBWS.huawei.com", "ocpp1.6", "v12.stomp"]
)
def test_what_is_no_mere_name_stays_with_its_origin(name, token):
    assert redirected("//other.example/").subprotocols([name, token]) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "COOKIE", "Proxy-Authorization", "Host", "X-MBX-APIKEY", "X-Api-Key", "X-Auth-Token",
        "OK-ACCESS-SIGN", "OK-ACCESS-PASSPHRASE", "X-Secret",
        "X-Session-Id", "X-JWT", "X-CSRF", "X-Region", "X-Ticket", "DPoP", "X-SAML", "X-PIN", "Api_Hash", "Referer",
    ],
)  # fmt: skip
def test_headers_of_one_origin(name):
    redirects = redirected("//other.example/")
    given = [
        (name, "hunter2"),
        ("Accept-Language", "eu"),
        ("Sec-WebSocket-Protocol", "chat"),
        ("Origin", "https://o"),
    ]
    assert redirects.headers(given) == given[1:]
    assert redirects.headers(dict(given)) == given[1:]
    assert redirects.headers(None) is None


# Private networks.

PRIVATE_HOSTS = [
    "fec0::2", "64:ff9b:1::7f00:1", "::7f00:1", "::ffff:0:7f00:1",
    "localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "10.1.2.3",
    "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0",
    "fd00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
]  # fmt: skip
PUBLIC_HOSTS = [
    "exchange.example",
    "localhost.example",
    "8.8.8.8",
    "2606:4700::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]


def test_addresses():
    assert [host for host in PRIVATE_HOSTS if is_public(host)] == []
    assert [host for host in PUBLIC_HOSTS if not is_public(host)] == []


@pytest.mark.parametrize("host", PRIVATE_HOSTS)
@pytest.mark.parametrize("peer", [PUBLIC, None])
def test_a_public_server_leads_into_no_private_network(host, peer):
    location = f"wss://[{host}]/" if ":" in host else f"wss://{host}/"
    with pytest.raises(SecurityError, match="private") as caught:
        redirected(location, peer=peer)
    assert caught.value.response.status_code == 302


def test_nor_by_a_name():
    redirects = redirected("wss://rebound.example/")
    redirects.check_address("8.8.8.8")
    with pytest.raises(SecurityError, match="private"):
        redirects.check_address(PRIVATE)


def test_nor_by_a_detour():
    """A private server that a public one may not lead to is not reached by way of another, either."""
    redirects = redirected("//other.example/")
    with pytest.raises(SecurityError, match="private"):
        redirects.follow(rejection("//192.168.0.1/"), PRIVATE)


def test_private_servers_may():
    redirects = redirected("//192.168.0.1/", "ws://router.example/", PRIVATE)
    redirects.check_address("192.168.0.1")
    redirects.follow(rejection("//localhost/"), "192.168.0.1")
    redirected("//127.0.0.1:2/", "ws://127.0.0.1:1/", None)


def test_no_redirect_is_no_matter():
    Redirects(parse_uri(START)).check_address(PRIVATE)


# process_redirect, as websockets has it.


def test_the_user_decides():
    asked = []

    def process_redirect(exc, uri):
        asked.append(exc)
        return "ws://10.1.2.3/inside"

    redirects = redirected("//other.example/", process_redirect=process_redirect)
    assert text(redirects.uri) == "ws://10.1.2.3/inside"
    assert redirects.crossed
    assert redirects.uri.user_info is None
    redirects.check_address("10.1.2.3")
    assert isinstance(asked[0], InvalidStatus)


def test_the_user_refuses():
    with pytest.raises(ZeroDivisionError):
        redirected("/c", process_redirect=lambda exc, uri: ZeroDivisionError())
    with pytest.raises(InvalidStatus):
        redirected("/c", process_redirect=lambda exc, uri: exc)
    with pytest.raises(InvalidURI):
        redirected("/c", process_redirect=lambda exc, uri: "https://other.example/")


def test_all_errors_are_in_the_tree():
    for location in (None, "ftp://x", "ws://127.0.0.1"):
        with pytest.raises(InvalidHandshake):
            redirected(location)


PARTS = st.sampled_from(
    ["http:", "wss:", "//", "/", ":", "@", "[", "]", "?", "#", "%", "..", "::1", "exchange.example", "\\"]
)


@given(
    st.lists(
        PARTS | st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=5), max_size=8
    )
)
def test_any_location(parts):
    redirects = Redirects(parse_uri("wss://user:hunter2@exchange.example/a"))
    try:
        redirects.follow(rejection("".join(parts)), PUBLIC)
    except InvalidHandshake as exc:
        shown = str(exc)
        assert "hunter2" not in shown
    else:
        assert redirects.uri.secure
        assert is_public(redirects.uri.host)
        same = (redirects.uri.host, redirects.uri.port) == ("exchange.example", 443)
        assert redirects.uri.user_info == (("user", "hunter2") if same else None)
        assert redirects.crossed is not same

"""Valid and invalid WebSocket URIs, the Host header of each, and no text that shows a password."""

from __future__ import annotations

import dataclasses
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsfast._opening.uri import WebSocketURI, WSParsedURL, parse_uri
from wsfast.exceptions import InvalidURI

# (uri, secure, host, port, path, query, user_info, resource_name, netloc)
VALID = [
    ("ws://localhost", False, "localhost", 80, "/", "", None, "/", "localhost"),
    ("wss://localhost", True, "localhost", 443, "/", "", None, "/", "localhost"),
    ("WSS://LocalHost/Path", True, "localhost", 443, "/Path", "", None, "/Path", "localhost"),
    ("ws://host:80/", False, "host", 80, "/", "", None, "/", "host"),
    ("wss://host:80/", True, "host", 80, "/", "", None, "/", "host:80"),
    ("wss://host:0443/", True, "host", 443, "/", "", None, "/", "host"),
    ("ws://host:/", False, "host", 80, "/", "", None, "/", "host"),
    ("ws://host:0/", False, "host", 0, "/", "", None, "/", "host:0"),
    ("ws://host:65535/", False, "host", 65535, "/", "", None, "/", "host:65535"),
    ("ws://host?a=b", False, "host", 80, "/", "a=b", None, "/?a=b", "host"),
    ("ws://host/p?a=b?c/d", False, "host", 80, "/p", "a=b?c/d", None, "/p?a=b?c/d", "host"),
    ("ws://host/p;v=1?", False, "host", 80, "/p;v=1", "", None, "/p;v=1", "host"),
    ("ws://host//double/../x", False, "host", 80, "//double/../x", "", None, "//double/../x", "host"),
    ("ws://host/a%20b?q=%23", False, "host", 80, "/a%20b", "q=%23", None, "/a%20b?q=%23", "host"),
    ("ws://host/@me?x=a@b:c", False, "host", 80, "/@me", "x=a@b:c", None, "/@me?x=a@b:c", "host"),
    (
        "ws://my_service.example.:9/",
        False,
        "my_service.example.",
        9,
        "/",
        "",
        None,
        "/",
        "my_service.example.:9",
    ),
    ("ws://127.0.0.1:8080/", False, "127.0.0.1", 8080, "/", "", None, "/", "127.0.0.1:8080"),
    ("ws://[::1]/", False, "::1", 80, "/", "", None, "/", "[::1]"),
    ("wss://[2001:DB8::A]:8443/", True, "2001:db8::a", 8443, "/", "", None, "/", "[2001:db8::a]:8443"),
    ("ws://[::ffff:1.2.3.4]/", False, "::ffff:1.2.3.4", 80, "/", "", None, "/", "[::ffff:1.2.3.4]"),
    ("ws://[fe80::1%25eth0]:81/", False, "fe80::1%eth0", 81, "/", "", None, "/", "[fe80::1]:81"),
    ("ws://[FE80::1%Eth0]/", False, "fe80::1%Eth0", 80, "/", "", None, "/", "[fe80::1]"),
    ("ws://[fe80::1%25]/", False, "fe80::1%25", 80, "/", "", None, "/", "[fe80::1]"),
    ("ws://u:p@host/", False, "host", 80, "/", "", ("u", "p"), "/", "host"),
    ("ws://u:@host:81/", False, "host", 81, "/", "", ("u", ""), "/", "host:81"),
    ("ws://u%40x:p%2F%3a%C3%A9@host/", False, "host", 80, "/", "", ("u@x", "p/:é"), "/", "host"),
    ("ws://u:a:b@host/", False, "host", 80, "/", "", ("u", "a:b"), "/", "host"),
    ("ws://u:é@[::1]/", False, "::1", 80, "/", "", ("u", "é"), "/", "[::1]"),
    (
        "wss://Bücher.example/",
        True,
        "xn--bcher-kva.example",
        443,
        "/",
        "",
        None,
        "/",
        "xn--bcher-kva.example",
    ),
    ("ws://h/é%20?q=ü%C3%BC", False, "h", 80, "/%C3%A9%20", "q=%C3%BC%C3%BC", None, None, "h"),
]


@pytest.mark.parametrize("case", VALID, ids=[case[0] for case in VALID])
def test_valid(case: tuple) -> None:
    text, secure, host, port, path, query, user_info, resource_name, netloc = case
    uri = parse_uri(text)
    assert (uri.secure, uri.host, uri.port, uri.path, uri.query) == (secure, host, port, path, query)
    assert uri.user_info == user_info
    assert (uri.username, uri.password) == (user_info or (None, None))
    assert uri.resource_name == (resource_name or f"{path}?{query}")
    assert uri.netloc == netloc
    assert uri.scheme == ("wss" if secure else "ws")
    assert uri.uri == text


def test_picows_names() -> None:
    uri = parse_uri("wss://host/")
    assert WSParsedURL is WebSocketURI
    assert uri.url == "wss://host/"
    assert uri.is_secure is True


def test_made_by_hand_like_websockets() -> None:
    uri = WebSocketURI(False, "host", 80, "", "")
    assert uri.resource_name == "/"
    assert uri.user_info is None
    assert uri.uri == ""
    assert WebSocketURI(False, "host", 80, "", "", "user").user_info is None
    assert WebSocketURI(False, "host", 80, "", "", None, "password").user_info is None


def test_it_is_a_frozen_value() -> None:
    uri = parse_uri("ws://host/")
    assert uri == parse_uri("ws://HOST:80")
    assert hash(uri) == hash(parse_uri("ws://HOST:80"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        uri.host = "other"  # type: ignore[misc]


INVALID = [
    ("", "scheme isn't ws or wss"),
    ("host/", "scheme isn't ws or wss"),
    ("//host/", "scheme isn't ws or wss"),
    ("http://host/", "scheme isn't ws or wss"),
    ("wsss://host/", "scheme isn't ws or wss"),
    ("ws:host", "hostname isn't provided"),
    ("ws:///path", "hostname isn't provided"),
    ("ws://", "hostname isn't provided"),
    ("ws://:80/", "hostname isn't provided"),
    ("ws://u:p@/", "hostname isn't provided"),
    ("ws://host/#fragment", "fragment identifier is meaningless"),
    ("ws://host/#", "fragment identifier is meaningless"),
    ("ws://host#", "fragment identifier is meaningless"),
    ("ws://host:65536/", "port isn't in range 0-65535"),
    ("ws://host:99999999999/", "port isn't in range 0-65535"),
    ("ws://host:" + "9" * 5000 + "/", "port isn't in range 0-65535"),
    ("ws://host:-1/", "port isn't a number"),
    ("ws://host:+80/", "port isn't a number"),
    ("ws://host:8_0/", "port isn't a number"),
    ("ws://host:http/", "port isn't a number"),
    ("ws://host:\u0668\u0660/", "port isn't a number"),
    ("ws://a:b:80/", "host and port aren't valid"),
    ("ws://::1/", "host and port aren't valid"),
    ("ws://u:p@a@host/", "host and port aren't valid"),
    ("ws://x[::1]/", "valid"),
    ("ws://[::1]x/", "valid"),
    ("ws://[::1/", "user information or host isn't valid"),
    ("ws://::1]/", "user information or host isn't valid"),
    ("ws://a\u2100b/", "user information or host isn't valid"),
    ("ws://[]/", "valid"),
    ("ws://[::1::2]/", "valid"),
    ("ws://[127.0.0.1]/", "valid"),
    ("ws://[fe80::1%]/", "valid"),
    ("ws://[fe80::1%25a%b]/", "valid"),
    ("ws://[v1.x]/", "IPv6 address isn't valid"),
    ("ws://[fe80::1%25a!b]/", "IPv6 zone isn't valid"),
    ("ws://a..b/", "host isn't a valid domain name"),
    ("ws://./", "host isn't a valid domain name"),
    ("ws://" + "a" * 64 + ".com/", "host isn't a valid domain name"),
    ("ws://\u00fc\ue000.com/", "host isn't a valid domain name"),
    ("ws://host\\x/", "backslash"),
    ("ws://trusted.example:443\\@evil.example/", "backslash"),
    ("ws://a:b\\@evil/", "backslash"),
    ("ws://host/a\\b", "backslash"),
    ("ws://ho%73t/", "host contains an invalid character"),
    ("ws://ho<st/", "host contains an invalid character"),
    ("ws://user@host/", "username provided without password"),
    ("ws://@host/", "username provided without password"),
    ("ws://u:%FF@host/", "isn't UTF-8 when percent-decoded"),
    ("ws://%FF:p@host/", "isn't UTF-8 when percent-decoded"),
    ("ws://a%3Ab:p@host/", "username contains a colon"),
    ("ws://u:a%0D%0Ab@host/", "username or password contains a control character"),
    ("ws://u%00:p@host/", "username or password contains a control character"),
]


@pytest.mark.parametrize(("text", "reason"), INVALID, ids=[repr(case[0])[:40] for case in INVALID])
def test_invalid(text: str, reason: str) -> None:
    with pytest.raises(InvalidURI) as caught:
        parse_uri(text)
    assert reason in caught.value.msg
    assert caught.value.msg in str(caught.value)


FORBIDDEN = [*map(chr, range(0x21)), "\x7f", "\x80", "\x85", "\x9f", "\xa0", "\u2028", "\u3000", "\ud800"]
PLACES = ["{}ws://host/", "w{}s://host/", "ws:/{}/host/", "ws://ho{}st/", "ws://host:8{}0/", "ws://host/a{}b",
          "ws://host/?a{}b", "ws://u:p{}@host/", "ws://host/{}"]  # fmt: skip


@pytest.mark.parametrize("character", FORBIDDEN, ids=ascii)
@pytest.mark.parametrize("place", PLACES)
def test_control_characters_are_refused_not_stripped(character: str, place: str) -> None:
    with pytest.raises(InvalidURI, match="space or a control character"):
        parse_uri(place.format(character))


@pytest.mark.parametrize("value", [None, b"ws://host/", 1])
def test_wrong_type(value: object) -> None:
    with pytest.raises(TypeError, match="uri must be str"):
        parse_uri(value)  # type: ignore[arg-type]


def test_the_password_is_not_in_repr() -> None:
    assert "secret" not in repr(parse_uri("ws://user:secret@host/"))


@pytest.mark.parametrize(
    "text",
    [
        "ws://user:secret@host:x/",
        "ws://user:secret@/",
        "ws://user:secret@host/#f",
        "ws://user:secret@[::1/",
        "ws://user:secret@\u2100/",
        "ws://user:\u2100secret@host/",
        "ws://user:secret@a..b/",
        "ws://user:secret@b\u00fc\ue000.com/",
        "ws://user:secret%FF@host/",
        "ws://user:secret%00@host/",
        "ws://user:secret @host/",
        "ws://user:secret/x@host/",
        "ws://user:[secret@host/",
        "http://user:secret@host/",
        "user:secret@host/",
    ],
)
def test_the_password_is_in_no_error(text: str) -> None:
    with pytest.raises(InvalidURI) as caught:
        parse_uri(text)
    error = caught.value
    assert "secret" not in "".join([str(error), repr(error), repr(vars(error))])
    assert "secret" not in "".join(traceback.format_exception(type(error), error, error.__traceback__))
    assert error.__cause__ is None
    assert error.__context__ is None


@given(st.text(max_size=40))
def test_any_text_is_a_uri_or_invalid(text: str) -> None:
    for candidate in (text, "ws://" + text, "ws://host" + text):
        try:
            uri = parse_uri(candidate)
        except InvalidURI:
            continue
        assert f"{uri.netloc}{uri.resource_name}".isascii()
        assert not any(character.isspace() for character in uri.netloc + uri.resource_name)
        assert uri.path.startswith("/")
        assert 0 <= uri.port <= 65535


@given(
    st.booleans(),
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
    st.integers(0, 65535),
    st.from_regex(r"(/[A-Za-z0-9%._~-]{0,8}){1,4}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9&=%]{0,20}", fullmatch=True),
)
def test_parse_is_the_inverse_of_writing(secure: bool, host: str, port: int, path: str, query: str) -> None:
    uri = WebSocketURI(secure, host, port, path, query)
    assert parse_uri(f"{uri.scheme}://{uri.netloc}{uri.resource_name}") == uri


# ---- names that are not ASCII: IDNA 2008


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("faß.example", "xn--fa-hia.example"),  # another name than fass.example
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("\uff45xample.com", "example.com"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
        ("bücher.example.", "xn--bcher-kva.example."),
    ],
)
def test_names_in_unicode(name, host):
    assert parse_uri(f"ws://{name}/").host == host


@pytest.mark.parametrize(
    "name", ["i❤.ws", "a\u200d.example", "\u0301a.example", "ü" * 64, "ü." * 200 + "x", "a℀b.example"]
)
def test_what_is_no_name(name):
    with pytest.raises(InvalidURI):
        parse_uri(f"ws://{name}/")

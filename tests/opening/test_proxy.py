"""The choice of the proxy for a server."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsfast._opening.proxy.settings import Proxy, _is_exempt, parse_proxy
from wsfast._opening.route import Route, Routing, may_name_a_proxy
from wsfast._opening.uri import parse_uri
from wsfast.exceptions import InvalidProxy

WS = parse_uri("ws://exchange.example/")
WSS = parse_uri("wss://exchange.example/")


def find_proxy(uri, proxy):
    return Route(Routing(uri, None, proxy)).proxy


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://proxy.example", Proxy("http", "proxy.example", 80)),
        ("HTTP://Proxy.Example:3128/", Proxy("http", "proxy.example", 3128)),
        ("https://proxy.example", Proxy("https", "proxy.example", 443)),
        ("https://proxy.example:80", Proxy("https", "proxy.example", 80)),
        ("http://proxy.example:", Proxy("http", "proxy.example", 80)),
        ("socks4://10.0.0.1", Proxy("socks4", "10.0.0.1", 1080)),
        ("socks4a://user@10.0.0.1", Proxy("socks4a", "10.0.0.1", 1080, "user", "")),
        ("socks5://[::1]", Proxy("socks5", "::1", 1080)),
        ("socks5h://u:p%40%3a@[fe80::1%25eth0]:9050", Proxy("socks5h", "fe80::1%eth0", 9050, "u", "p@:")),
        ("http://token@proxy.example", Proxy("http", "proxy.example", 80, "token", "")),
        ("http://k%C3%B6nig:p@b%C3%BCcher.example".replace("b%C3%BCcher", "bücher"),
         Proxy("http", "xn--bcher-kva.example", 80, "könig", "p")),
    ],
)  # fmt: skip
def test_urls(url, proxy):
    assert parse_proxy(url) == proxy
    assert find_proxy(WS, url) == proxy


@pytest.mark.parametrize(
    "url",
    [
        "",
        "proxy.example:3128",
        "ftp://user:hunter2@proxy.example",
        "http://",
        "http://user:hunter2@",
        "http://user:hunter2@proxy.example/path",
        "http://user:hunter2@proxy.example?query",
        "http://user:hunter2@proxy.example?",
        "http://user:hunter2@proxy.example#fragment",
        "http://user:hunter2@proxy.example:65536",
        "http://user:hunter2@proxy.example:a",
        "http://user:hunter2@[::1",
        "http://user:hunter2@two words",
        "http://user:hunter2@line\nbreak",
        "http://us%0Aer:hunter2@proxy.example",
        "http://user:%ffhunter2@proxy.example",
        "socks5://user:@proxy.example",
        "socks5h://:hunter2@proxy.example",
        "socks5://k%C3%B6nig:hunter2@proxy.example",
        f"socks5://user:hunter2{249 * 'x'}@proxy.example",
        "socks4://user:hunter2@proxy.example",
    ],
)
def test_invalid_urls(url):
    with pytest.raises(InvalidProxy) as caught:
        parse_proxy(url)
    assert "hunter2" not in str(caught.value) + repr(caught.value)
    if caught.value.__context__ is not None:
        assert "hunter2" not in repr(caught.value.__context__)


def test_the_password_is_hidden():
    proxy = parse_proxy("http://user:hunter2@proxy.example")
    assert "hunter2" not in repr(proxy) + str(proxy)
    assert proxy.user_info == ("user", "hunter2")


def test_text():
    assert str(parse_proxy("socks5h://u:p@[::1]:9050")) == "socks5h://[::1]:9050"


def test_who_resolves():
    schemes = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"]
    assert [parse_proxy(f"{name}://p").resolves for name in schemes] == [True, True, False, True, False, True]
    assert [parse_proxy(f"{name}://p").is_socks for name in schemes] == [False, False, True, True, True, True]
    assert [parse_proxy(f"{name}://p").secure for name in schemes] == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("proxy", [False, 0, b"http://proxy.example", ["http://proxy.example"]])
def test_other_arguments(proxy):
    with pytest.raises(TypeError, match="proxy"):
        find_proxy(WS, proxy)


# The environment.


@pytest.fixture
def environment(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)

    def set_variables(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


def found(uri):
    proxy = find_proxy(uri, True)
    return None if proxy is None else proxy.host


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "Https_Proxy", "aLL_pROXY"])
def test_any_case_of_letters_names_a_proxy(environment, name):
    assert not may_name_a_proxy()
    environment(**{name: "http://proxy.example:1"})
    assert may_name_a_proxy()


def test_a_token_is_hidden():
    assert "hunter2" not in repr(parse_proxy("http://hunter2@proxy.example:1"))


def test_no_variable(environment):
    assert found(WS) is None


def test_none_asks_nobody(environment):
    environment(all_proxy="http://all")
    assert find_proxy(WS, None) is None


@pytest.mark.parametrize(
    ("uri", "names"),
    [(WSS, ["wss", "socks", "https", "all"]), (WS, ["ws", "socks", "https", "http", "all"])],
    ids=["wss", "ws"],
)
def test_which_variable(environment, uri, names):
    for name in reversed(names):
        environment(**{f"{name}_proxy": f"http://{name}.example"})
        assert found(uri) == f"{name}.example"


def test_wss_does_not_use_http_proxy(environment):
    environment(http_proxy="http://http", ws_proxy="http://ws")
    assert found(WSS) is None


def test_upper_case(environment):
    environment(HTTPS_PROXY="http://upper")
    assert found(WSS) == "upper"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("https", "proxy:3128", "http://proxy:3128"),
        ("socks", "proxy:9050", "socks5h://proxy:9050"),
        ("socks", "http://proxy:9050", "socks5h://proxy:9050"),  # as macOS says it
        ("socks", "socks4://proxy", "socks4://proxy:1080"),
        ("all", " socks5://proxy ", "socks5://proxy:1080"),
    ],
)
def test_values(environment, name, value, text):
    environment(**{f"{name}_proxy": value})
    assert str(find_proxy(WSS, True)) == text


def test_an_invalid_value_names_its_variable(environment):
    environment(https_proxy="ftp://user:hunter2@proxy")
    with pytest.raises(InvalidProxy, match="https_proxy") as caught:
        find_proxy(WSS, True)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("no_proxy", "uri"),
    [
        ("*", "ws://exchange.example"),
        ("exchange.example", "ws://exchange.example"),
        ("EXCHANGE.example", "ws://exchange.EXAMPLE."),
        ("other, example", "ws://exchange.example"),
        ("other .example", "ws://exchange.example"),
        (".example", "ws://example"),
        ("*.example", "ws://exchange.example"),
        ("exchange.example:8080", "ws://exchange.example:8080"),
        ("exchange.example:80", "ws://exchange.example"),
        ("exchange.example:443", "wss://exchange.example"),
        ("localhost", "ws://localhost"),
        ("10.1.2.3", "ws://10.1.2.3"),
        ("10.1.2.3:81", "ws://10.1.2.3:81"),
        ("10.0.0.0/8", "ws://10.1.2.3"),
        ("10.1.2.0/24,192.168.0.0/16", "ws://192.168.1.1"),
        ("10.1.2.3/8", "ws://10.9.9.9"),
        ("::1", "ws://[::1]"),
        ("[::1]", "ws://[::1]:1"),
        ("[::1]:81", "ws://[::1]:81"),
        ("2001:db8::/32", "ws://[2001:db8:1::2]"),
        ("fe80::/10", "ws://[fe80::1%25eth0]"),
        ("10.0.0.0/8", "ws://[::ffff:10.0.0.1]"),
    ],
)
def test_no_proxy(environment, no_proxy, uri):
    environment(all_proxy="http://all", no_proxy=no_proxy)
    assert found(parse_uri(uri)) is None


@pytest.mark.parametrize(
    ("no_proxy", "uri"),
    [
        ("", "ws://localhost"),
        (",", "ws://localhost"),
        (".", "ws://localhost."),
        ("ample", "ws://exchange.example"),
        ("exchange.example.org", "ws://exchange.example"),
        ("exchange", "ws://exchange.example"),
        ("exchange.example:81", "ws://exchange.example:8"),
        ("exchange.example:8", "ws://exchange.example:81"),
        ("[::1]:81", "ws://[::1]:82"),
        ("10.1.2.3", "ws://110.1.2.3"),
        ("10.0.0.0/8", "ws://11.0.0.0"),
        ("10.0.0.0/33", "ws://10.0.0.0"),
        ("0.0.0.0/0", "ws://[::1]"),
        ("0.0.0.0/0", "ws://exchange.example"),
        ("2.3", "ws://10.1.2.3"),
    ],
)
def test_not_exempt(environment, no_proxy, uri):
    environment(all_proxy="http://all", no_proxy=no_proxy)
    assert found(parse_uri(uri)) == "all"


PARTS = st.sampled_from(
    ["http", "socks5", "://", ":", "@", "[", "]", "/", "?", "#", "%", "::1", "10.0.0.0", "*", ".", ","]
)
TEXTS = st.lists(PARTS | st.text(max_size=5), max_size=10).map("".join)


@given(TEXTS)
def test_any_text(text):
    for url in (text, f"http://{text}", f"socks5://user:hunter2@{text}"):
        try:
            proxy = parse_proxy(url)
        except InvalidProxy as exc:
            shown = str(exc)
            assert "hunter2" not in shown
        else:
            assert parse_proxy(str(proxy)).host == proxy.host


@given(TEXTS, st.sampled_from(["exchange.example", "10.0.0.1", "::1", "fe80::1%eth0"]))
def test_any_no_proxy(text, host):
    assert _is_exempt(host, 80, text) in (True, False)
    assert _is_exempt(host, 80, f"{text},*")

"""What every client does when it opens a connection, and the tests that show it: a table of docs/features.md.

Options are in the tables that features.py reads from the code; what they do is here, by hand.
A test checks that the tests exist.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

EACH = "opening/test_every_face.py"
SURFACE = "faces/test_surface.py"
PROXIES = "opening/test_through_proxies.py"
REDIRECTS = "opening/test_redirecting.py"
TABLE = "opening/test_tls_table.py"

# What, and its tests: path and name. Where one test is not for all clients, there is one for each.
ROWS: list[tuple[str, list[tuple[str, str]]]] = [
    (
        "URLs: `ws`, `wss`, IRIs, userinfo, IPv6; `http(s)` and fragments are refused",
        [(EACH, "test_forms_of_urls"), (EACH, "test_ipv6"), (EACH, "test_urls_that_are_refused")],
    ),
    (
        "Unix sockets",
        [
            ("listener/test_opening.py", "test_a_unix_socket_pair_will_do"),
            ("awaitable/test_connecting.py", "test_unix_sockets"),
            ("blocking/test_opening.py", "test_unix_sockets"),
        ],
    ),
    (
        "headers of the program's, by a function for each attempt, too; by a coroutine function where there is a loop",
        [
            (SURFACE, "test_headers_by_either_name"),
            (SURFACE, "test_headers_are_made_for_each_attempt"),
            (SURFACE, "test_headers_are_made_by_a_coroutine_function"),
            (SURFACE, "test_a_blocking_client_cannot_await_headers"),
        ],
    ),
    (
        "the request and the reply in the log, without secrets",
        [(SURFACE, "test_the_opening_is_logged_without_secrets")],
    ),
    (
        "the reply that rejects: status, headers, body, `retry_after`",
        [
            (REDIRECTS, "test_a_body_that_stalls_is_bounded_by_the_deadline"),
            ("listener/test_opening_failures.py", "test_a_rejection_has_status_headers_and_body"),
            ("blocking/test_opening.py", "test_a_rejection_has_status_headers_and_body"),
        ],
    ),
    (
        "subprotocols",
        [
            ("listener/test_opening.py", "test_a_subprotocol_is_negotiated"),
            ("awaitable/test_differential.py", "test_subprotocols"),
            ("blocking/test_messages.py", "test_attributes"),
        ],
    ),
    (
        "Basic authentication by the URL and by `netrc=`",
        [(REDIRECTS, "test_credentials_stay_with_their_origin"), ("opening/test_netrc.py", "test_of_a_path")],
    ),
    ("cookies, as a header", [(EACH, "test_cookies_are_a_header")]),
    (
        "redirects, without credentials for another origin",
        [
            (REDIRECTS, "test_statuses"),
            (REDIRECTS, "test_credentials_stay_with_their_origin"),
            (REDIRECTS, "test_a_public_server_leads_into_no_private_network"),
        ],
    ),
    (
        "proxies: HTTP CONNECT, HTTP over TLS, SOCKS4, 4a, 5, 5h; `ws` and `wss`",
        [(PROXIES, "test_connects"), (PROXIES, "test_tls_in_tls_by_settings_and_by_contexts")],
    ),
    (
        "the proxy that the environment names, `no_proxy`",
        [
            (PROXIES, "test_the_environment_names_a_proxy"),
            (REDIRECTS, "test_each_server_has_the_proxy_that_the_environment_says"),
        ],
    ),
    ("the source address", [(SURFACE, "test_the_source_address_is_bound")]),
    ("happy eyeballs, on by default", [(SURFACE, "test_happy_eyeballs")]),
    (
        "a socket of the program's, connected or not",
        [
            ("opening/test_sockets.py", "test_an_unconnected_socket"),
            ("listener/test_tls.py", "test_a_socket_of_the_user_s_own_gets_tls_for_the_url_s_host"),
            ("awaitable/test_connecting.py", "test_a_socket_of_the_user"),
            ("blocking/test_opening.py", "test_a_socket_of_the_users"),
        ],
    ),
    (
        "another host and port; Host and SNI stay",
        [("opening/test_sockets.py", "test_host_and_port"), (EACH, "test_sni_and_alpn")],
    ),
    (
        "TLS by `ssl.SSLContext` or `wsfast.TLS`: trust, SNI, ALPN, client certificates",
        [
            (EACH, "test_sni_and_alpn"),
            (TABLE, "test_openssl_decides"),
            ("faces/test_security.py", "test_a_server_that_cannot_be_trusted_is_refused"),
            (REDIRECTS, "test_a_client_s_certificate_stays_with_its_origin"),
        ],
    ),
    (
        "TLS key log",
        [
            ("listener/test_tls.py", "test_key_logging_works_through_the_loop_s_own_tls"),
            ("blocking/test_tls.py", "test_key_log"),
        ],
    ),
    (
        "time-outs: names, TCP, TLS, proxy, upgrade, redirects under one deadline",
        [
            (PROXIES, "test_stalls"),
            ("faces/test_faults.py", "test_stalled_in_the_tls_handshake"),
            ("faces/test_faults.py", "test_stalled_before_the_reply"),
            (REDIRECTS, "test_the_deadline_does_not_begin_anew_with_each_server"),
        ],
    ),
    ("the time-out of closing", [("faces/test_faults.py", "test_stalled_in_the_closing_handshake")]),
    ("TCP_NODELAY, TCP_QUICKACK, `sockopts`", [(SURFACE, "test_options_of_the_socket_are_set")]),
    (
        "a resolver of the program's, and a cache of addresses",
        [
            ("opening/test_resolver.py", "test_a_resolver_of_the_users"),
            ("opening/test_resolver.py", "test_the_cache_knows_where_the_last_connection_went"),
        ],
    ),
]


def table() -> str:
    lines = ["| all three clients | test, in `tests/` |", "|---|---|"]
    for what, shown in ROWS:
        names = ", ".join(f"`{path}::{name}`" for path, name in shown)
        lines.append(f"| {what} | {names} |")
    return "\n".join(lines)


def missing() -> list[str]:
    """The tests that are named and do not exist."""
    return [
        f"{path}::{name}"
        for _, shown in ROWS
        for path, name in shown
        if not re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE)
    ]

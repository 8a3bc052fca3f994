"""Every client opens a connection alike, as far as no other module tests it: see docs/features.md."""

from __future__ import annotations

import dataclasses

import pytest
from support import certificates
from support.faces import FACES
from support.servers import serve

from opening.test_redirecting import arrive, headers_of, sites
from wsfast.exceptions import InvalidURI

faces = pytest.mark.parametrize("face", FACES)


@faces
async def test_forms_of_urls(face):
    async with sites() as (site, _):
        for host, target, sent in (
            ("127.0.0.1", "/a%20b?c=d", "/a%20b?c=d"),
            ("LOCALHOST", "?q", "/?q"),
            ("user:w%C3%B6rd@localhost", "/ü", "/%C3%BC"),
            ("localhost.", "", "/"),
        ):
            await arrive(face, f"ws://{host}:{site.port}{target}", host="127.0.0.1")
            assert site.requests[-1].split(" ")[1] == sent


@faces
async def test_ipv6(face):
    async with sites() as (site, _), serve(site, host="::1") as server:
        await arrive(face, f"ws://[::1]:{server.port}/")
        assert site.headers()["Host"] == f"[::1]:{server.port}"


@faces
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "https://127.0.0.1:9/", "ws://127.0.0.1:9/#fragment"])
async def test_urls_that_are_refused(face, url):
    """websockets refuses them, too; aiohttp takes http:// and https://."""
    with pytest.raises(InvalidURI, match="scheme|fragment"):
        await arrive(face, url)


@faces
async def test_cookies_are_a_header(face):
    async with sites() as (site, _):
        await arrive(face, site.url, **headers_of(face, {"Cookie": "a=b; c=d"}))
        assert site.headers()["Cookie"] == "a=b; c=d"


@faces
@pytest.mark.parametrize("form", ["settings", "context"])
async def test_sni_and_alpn(face, form):
    names, protocols = [], []

    async def note(peer):
        protocols.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await site(peer)

    there = certificates.server_context.__wrapped__()
    there.set_alpn_protocols(["http/1.1"])
    there.sni_callback = lambda _, name, __: names.append(name)
    async with sites() as (site, _), serve(note, ssl_context=there) as server:
        if form == "settings":
            tls = dataclasses.replace(certificates.client_settings(), alpn=["http/1.1"])
        else:
            tls = certificates.client_context()
            tls.set_alpn_protocols(["http/1.1"])
        await arrive(face, f"wss://localhost:{server.port}/", tls, host="127.0.0.1")
    assert (names, protocols) == (["localhost"], ["http/1.1"])


@faces
@pytest.mark.parametrize("form", ["true", "settings", "context"])
async def test_settings_of_tls_are_refused_where_there_is_no_tls(face, form):
    """Otherwise messages that the program believes to be encrypted would be sent in the clear."""
    tls = {
        "true": lambda: True,
        "settings": certificates.client_settings,
        "context": certificates.client_context,
    }
    async with sites() as (site, _):
        with pytest.raises(ValueError, match=r"ssl\w* argument is incompatible with a ws:// URI"):
            await arrive(face, site.url, tls[form]())
        assert not site.requests

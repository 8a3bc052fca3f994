"""Credentials of a .netrc file: for whom, and what goes before them."""

from __future__ import annotations

import base64

import pytest
from support.faces import FACES

from opening.test_redirecting import arrive, headers_of, sites
from wsfast import Network
from wsfast._opening.credentials import from_netrc

faces = pytest.mark.parametrize("face", FACES)


@pytest.fixture
def netrc(tmp_path):
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login me password hunter2\nmachine other login you password x\n")
    return path


def sent(site, at=-1):
    value = site.headers(at).get("Authorization")
    return None if value is None else base64.b64decode(value.removeprefix("Basic ")).decode()


@faces
async def test_of_a_path(face, netrc):
    async with sites() as (site, _):
        await arrive(face, site.url, network=Network(netrc=netrc))
        assert sent(site) == "me:hunter2"
        await arrive(face, site.url, network=Network(netrc=str(netrc)))
        assert sent(site) == "me:hunter2"


@faces
async def test_of_the_environment(face, netrc, monkeypatch):
    monkeypatch.setenv("NETRC", str(netrc))
    async with sites() as (site, _):
        for given, credentials in (True, "me:hunter2"), (False, None), (None, None):
            await arrive(face, site.url, network=Network(netrc=given))
            assert sent(site) == credentials
        monkeypatch.setenv("NETRC", str(netrc.parent / "missing"))
        await arrive(face, site.url, network=Network(netrc=True))
        assert sent(site) is None


@faces
async def test_credentials_of_the_program_come_first(face, netrc):
    async with sites() as (site, _):
        await arrive(face, site.url.replace("//", "//user:word@"), network=Network(netrc=netrc))
        assert sent(site) == "user:word"
        header = {"Authorization": "Basic " + base64.b64encode(b"a:b").decode()}
        await arrive(face, site.url, network=Network(netrc=netrc), **headers_of(face, header))
        assert sent(site) == "a:b"


@faces
async def test_they_stay_with_their_origin(face, netrc):
    """Not even of the same host, if the port is another one; and dropped stays dropped."""
    async with sites() as (first, second):
        first.to = {"/": "/a", "/a": second.url}
        second.to = {"/": first.url + "end"}
        await arrive(face, first.url, network=Network(netrc=netrc))
        assert [sent(first, at) for at in range(3)] == ["me:hunter2", "me:hunter2", None]
        assert sent(second) is None


@faces
async def test_a_file_that_cannot_be_read(face, tmp_path):
    path = tmp_path / "netrc"
    with pytest.raises(FileNotFoundError):
        await arrive(face, "ws://127.0.0.1:9/", network=Network(netrc=path))
    path.write_text("machine 127.0.0.1 login me password\nhunter2 hunter3\n")
    with pytest.raises(ValueError, match=r"netrc: .* line \d") as caught:
        await arrive(face, "ws://127.0.0.1:9/", network=Network(netrc=path))
    assert "hunter" not in str(caught.value)
    assert caught.value.__context__ is None
    path.write_bytes(b"machine \xff login me password hunter2")
    with pytest.raises(ValueError, match="netrc: ") as caught:
        await arrive(face, "ws://127.0.0.1:9/", network=Network(netrc=path))


def test_entries(tmp_path):
    path = tmp_path / "netrc"
    path.write_text("machine a login a:b password c\nmachine b password c\ndefault login me password d\n")
    with pytest.raises(ValueError, match="colon"):
        from_netrc(path, "a")
    assert from_netrc(path, "b") == ("", "c")
    assert from_netrc(path, "c") == ("me", "d")
    path.write_text("machine a login b password c\n")
    assert from_netrc(path, "c") is None


@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604])
def test_a_file_that_others_may_read(tmp_path, monkeypatch, mode):
    """Python's netrc does so, too: it checks a file that nobody named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    path = tmp_path / ".netrc"
    path.write_text("machine a login me password hunter2\n")
    path.chmod(mode)
    with pytest.raises(ValueError, match=f"chmod 600 {path}") as caught:
        from_netrc(True, "a")
    assert caught.value.__context__ is None
    assert from_netrc(path, "a") == ("me", "hunter2")
    path.chmod(0o600)
    assert from_netrc(True, "a") == ("me", "hunter2")
    path.write_text("machine a login me password\nhunter2 hunter3\n")
    with pytest.raises(ValueError, match="see line"):
        from_netrc(True, "a")
    monkeypatch.setenv("NETRC", str(tmp_path / "missing"))
    assert from_netrc(True, "a") is None

"""wsfast.TLS checks itself, makes the context that it says, and names are one thing for all faces."""

import gc
import os
import pickle
import ssl
import weakref
from dataclasses import FrozenInstanceError

import pytest
import trustme
from support.certificates import authority, client_context

from wsfast import TLS
from wsfast._opening.tls import rustls
from wsfast.tls import as_context, check_tls, server_name


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"cafile": 1}, TypeError, "PathLike"),
        ({"cafile": b"ca.pem"}, TypeError, "cafile must be a path of str"),
        ({"capath": b"certs"}, TypeError, "capath must be a path of str"),
        ({"cadata": 1}, TypeError, "cadata must be str or bytes"),
        ({"client_cert": ("a", "b", "c")}, ValueError, "client_cert"),
        ({"client_cert": (None, "key")}, ValueError, "client_cert"),
        ({"client_cert": 1}, TypeError, "PathLike"),
        ({"alpn": "h2"}, TypeError, "sequence of str"),
        ({"alpn": [b"h2"]}, TypeError, "sequence of str"),
        ({"alpn": [""]}, ValueError, "1 to 255"),
        ({"alpn": ["x" * 256]}, ValueError, "1 to 255"),
        ({"minimum_version": ssl.TLSVersion.TLSv1_1}, ValueError, "minimum_version"),
        ({"maximum_version": "TLSv1.3"}, ValueError, "maximum_version"),
        (
            {"minimum_version": ssl.TLSVersion.TLSv1_3, "maximum_version": ssl.TLSVersion.TLSv1_2},
            ValueError,
            "above",
        ),
        ({"check_hostname": 0}, TypeError, "check_hostname must be bool"),
        ({"resume_for": "1"}, TypeError, "resume_for must be a number of seconds"),
        ({"resume_for": None}, TypeError, "resume_for must be a number of seconds"),
        ({"resume_for": -1}, ValueError, "resume_for must not be negative"),
        ({"resume_for": float("nan")}, ValueError, "resume_for must not be negative"),
        ({"resume_for": 604801}, ValueError, "resume_for must be at most 604800, a week"),
        ({"ciphers": "x"}, TypeError, "ciphers"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(wrong, error, words):
    with pytest.raises(error, match=words):
        TLS(**wrong)


def test_settings_are_a_value(tmp_path):
    one, other = TLS(cafile=tmp_path / "ca", alpn=["a"]), TLS(cafile=str(tmp_path / "ca"), alpn=("a",))
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(FrozenInstanceError):
        one.alpn = ()


def test_equal_settings_share_a_context():
    pem = authority().cert_pem.bytes().decode()
    assert TLS(cadata=pem).context() is TLS(cadata=pem).context()
    assert TLS(cadata=pem).context() is not TLS(cadata=pem, check_hostname=False).context()


def replace(path, pem: bytes) -> None:
    """Certificates are rotated: a new file takes the place of the old one."""
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(pem)
    fresh.replace(path)


def subjects(settings: TLS) -> list[str]:
    return [str(found["serialNumber"]) for found in settings.context().get_ca_certs()]


def test_a_file_that_was_replaced_is_read_again(tmp_path):
    one, other, file = trustme.CA(), trustme.CA(), tmp_path / "ca.pem"
    replace(file, one.cert_pem.bytes())
    settings = TLS(cafile=file)
    first = settings.context()
    assert TLS(cafile=file).context() is first
    replace(file, other.cert_pem.bytes())
    second = settings.context()
    assert second is not first
    assert second is settings.context() is TLS(cafile=file).context()
    assert second.get_ca_certs() == TLS(cadata=other.cert_pem.bytes().decode()).context().get_ca_certs()
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None, "it is not kept"
    # In its place, and of the same size.
    os.utime(file, ns=(1, 1))
    assert settings.context() is not second
    file.unlink()
    with pytest.raises(FileNotFoundError):
        settings.context()


def test_a_relative_path_is_one_of_the_working_directory(tmp_path, monkeypatch):
    found = []
    settings = TLS(cafile="ca.pem", client_cert="client.pem", capath=os.pathsep.join((".", "certs")))
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        made = trustme.CA()
        replace(folder / "ca.pem", made.cert_pem.bytes())
        replace(folder / "client.pem", made.issue_cert("client").private_key_and_cert_chain_pem.bytes())
        monkeypatch.chdir(folder)
        found += subjects(settings)
        assert settings.context() is settings.context()
        rustls.config(settings)
        assert settings.located().capath == os.pathsep.join((str(folder), str(folder / "certs")))
    assert len(set(found)) == 2


def test_the_system_s_authorities_are_those_that_the_environment_names_now(tmp_path, monkeypatch):
    one, other = trustme.CA(), trustme.CA()
    file = tmp_path / "ca.pem"
    replace(file, one.cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nothing"))
    contexts = [TLS().context()]
    assert TLS().context() is contexts[0]
    found = subjects(TLS())
    replace(file, other.cert_pem.bytes())
    contexts.append(TLS().context())
    assert len(set(found + subjects(TLS()))) == 2
    # A list of directories, and a file that is added to one of them.
    for value in (f"{tmp_path}:/nothing", f"{tmp_path}:/nowhere"):
        monkeypatch.setenv("SSL_CERT_DIR", value)
        contexts.append(TLS().context())
    (tmp_path / "01234567.0").write_bytes(one.cert_pem.bytes())
    contexts.append(TLS().context())
    assert TLS().context() is contexts[-1]
    assert len({*map(id, contexts)}) == 5


def test_the_context_is_python_s_default_one_and_the_settings():
    pem = authority().cert_pem.bytes().decode()
    context, default = TLS(cadata=pem).context(), ssl.create_default_context(cadata=pem)
    for name in ("verify_flags", "verify_mode", "check_hostname", "options"):
        assert getattr(context, name) == getattr(default, name)
    assert context.get_ca_certs() == default.get_ca_certs()
    assert context.hostname_checks_common_name is False


def test_an_encrypted_key_is_refused_without_asking_for_a_password(tmp_path):
    from cryptography.hazmat.primitives import serialization

    issued = authority().issue_cert("client")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    (tmp_path / "client.pem").write_bytes(issued.cert_chain_pems[0].bytes() + pem)
    with pytest.raises(ValueError, match="client_cert: the key is encrypted"):
        TLS(client_cert=tmp_path / "client.pem").context()


def test_what_is_neither_a_context_nor_settings_is_refused():
    context = client_context()
    assert as_context(context) is context
    for wrong in (True, "ca.pem", 0):
        with pytest.raises(TypeError, match="ssl must be an ssl.SSLContext or a wsfast.TLS"):
            check_tls("ssl", wrong)


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("localhost", "localhost"),
        ("localhost.", "localhost"),
        ("Feed.Example", "feed.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("under_score.example", "under_score.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_names(name, becomes):
    assert server_name(name) == becomes


@pytest.mark.parametrize("name", ["", ".", ".example", "a..b", "a\0b", "x" * 64])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="server_hostname"):
        server_name(name)

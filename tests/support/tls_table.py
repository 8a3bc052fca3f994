"""The table of TLS servers and client contexts, and OpenSSL's verdict on each pair, computed in memory."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wsfast import TLS

NAME = "right.example"
_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, and the other certificates of its chain."""

    certificate: x509.Certificate
    key: Any
    chain: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def load_into(self, context: ssl.SSLContext) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.whole_pem())
            file.flush()
            context.load_cert_chain(file.name)

    def whole_pem(self) -> bytes:
        pem = [c.public_bytes(serialization.Encoding.PEM) for c in (self.certificate, *self.chain)]
        secret = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return b"".join(pem) + secret


def issue(
    common_name: str,
    issuer: Issued | None = None,
    *,
    names: tuple[str, ...] = (),
    authority: bool = False,
    years: tuple[int, int] = (2020, 2045),
    purpose: x509.ObjectIdentifier | None = _SERVER,
    path_length: int | None = None,
    permitted: str | None = None,
    identifiers: bool = True,
    sent: tuple[Issued, ...] = (),
    weak: bool = False,
) -> Issued:
    """Issue a certificate; a self-signed one if there is no issuer."""
    key: Any = rsa.generate_private_key(65537, 1024) if weak else ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    signer = issuer.key if issuer else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(years[0], 1, 1))
        .not_valid_after(datetime.datetime(years[1], 1, 1))
        .add_extension(x509.BasicConstraints(authority, path_length), critical=True)
    )
    if identifiers:
        theirs = signer.public_key()
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(theirs), False)
    if authority:
        usage = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        builder = builder.add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), True
        )
    elif purpose is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
    if permitted is not None:
        builder = builder.add_extension(x509.NameConstraints([x509.DNSName(permitted)], None), True)
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general(name) for name in names]), False
        )
    signed = builder.sign(signer, hashes.SHA256())
    return Issued(signed, key, tuple(other.certificate for other in sent))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


ROOT = issue("root", authority=True)
SYSTEM = issue("an authority of the system", authority=True)
UNKNOWN = issue("unknown", authority=True)
MIDDLE = issue("middle", ROOT, authority=True)
PLAIN_ROOT = issue("a root without identifiers", authority=True, identifiers=False)
OLD_ROOT = issue("an expired root", authority=True, years=(2010, 2015))
SHORT_ROOT = issue("a root for leaves alone", authority=True, path_length=0)
BENEATH_SHORT = issue("beneath", SHORT_ROOT, authority=True)
ELSEWHERE = issue("for another domain", ROOT, authority=True, permitted="other.example")
PINNED = issue(NAME, names=(NAME,))
CLIENT = issue("client", ROOT, purpose=_CLIENT)

TRUSTED = "".join(root.pem for root in (ROOT, PLAIN_ROOT, OLD_ROOT, SHORT_ROOT))

_leaf = functools.partial(issue, NAME, names=(NAME,))

# The certificates that servers present, each with the host of the URI.
CERTIFICATES: dict[str, tuple[Issued, str]] = {
    "right": (_leaf(ROOT), NAME),
    "by an authority of the system": (_leaf(SYSTEM), NAME),
    "by an unknown authority": (_leaf(UNKNOWN), NAME),
    "wrong host": (issue("x", ROOT, names=("wrong.example",)), NAME),
    "wildcard": (issue("x", ROOT, names=("*.example",)), NAME),
    "expired": (_leaf(ROOT, years=(2020, 2021)), NAME),
    "not yet valid": (_leaf(ROOT, years=(2044, 2045)), NAME),
    "self-signed, and pinned by some": (PINNED, NAME),
    "issued by a certificate that is no authority": (issue("x", PINNED, names=(NAME,)), NAME),
    "via an intermediate": (_leaf(MIDDLE, sent=(MIDDLE,)), NAME),
    "via an intermediate that is missing": (_leaf(MIDDLE), NAME),
    "an address": (issue("x", ROOT, names=("127.0.0.1",)), "127.0.0.1"),
    "an address, for a name": (issue("127.0.0.1", ROOT, names=("127.0.0.1.example",)), "127.0.0.1"),
    "a name in CN only": (issue(NAME, ROOT), NAME),
    "a dot at the end": (_leaf(ROOT), NAME + "."),
    "for clients": (_leaf(ROOT, purpose=_CLIENT), NAME),
    "by a root without identifiers": (_leaf(PLAIN_ROOT, identifiers=False), NAME),
    "by an expired root": (_leaf(OLD_ROOT), NAME),
    "deeper than its root allows": (_leaf(BENEATH_SHORT, sent=(BENEATH_SHORT,)), NAME),
    "outside of its authority's name constraints": (_leaf(ELSEWHERE, sent=(ELSEWHERE,)), NAME),
}


def serving(issued: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT@SECLEVEL=0")  # the table does not test the server's security level
    context.set_alpn_protocols(["http/1.1"])
    issued.load_into(context)
    return context


def _demanding() -> ssl.SSLContext:
    context = serving(CERTIFICATES["right"][0])
    context.load_verify_locations(cadata=ROOT.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _limited(**settings: Any) -> ssl.SSLContext:
    context = serving(CERTIFICATES["right"][0])
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def _one_cipher() -> ssl.SSLContext:
    context = _limited(maximum_version=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    return context


# The servers: context, and host of the URI.
SERVERS: dict[str, tuple[ssl.SSLContext, str]] = {
    **{name: (serving(issued), host) for name, (issued, host) in CERTIFICATES.items()},
    "demands a client certificate": (_demanding(), NAME),
    "TLS 1.2 only": (_limited(maximum_version=ssl.TLSVersion.TLSv1_2), NAME),
    "TLS 1.3 only": (_limited(minimum_version=ssl.TLSVersion.TLSv1_3), NAME),
    "one cipher of TLS 1.2": (_one_cipher(), NAME),
    "a weak key": (serving(_leaf(ROOT, weak=True)), NAME),
}


# The contexts of clients.


class Derived(ssl.SSLContext):
    """A context that verifies even though its user turned verification off."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self.verify_mode = ssl.CERT_REQUIRED
        self.check_hostname = True
        return super().wrap_bio(*arguments, **options)


def _trusting(*pems: str, flags: int = 0, off: int = 0, made: Any = ssl.SSLContext, **settings: Any) -> Any:
    context = made(ssl.PROTOCOL_TLS_CLIENT)
    for pem in pems:
        context.load_verify_locations(cadata=pem)
    context.verify_flags = (context.verify_flags | flags) & ~off
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def _with_client() -> ssl.SSLContext:
    context: ssl.SSLContext = _trusting(TRUSTED)
    CLIENT.load_into(context)
    return context


def _with_ciphers(ciphers: str) -> ssl.SSLContext:
    context: ssl.SSLContext = _trusting(TRUSTED, maximum_version=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(ciphers)
    return context


def _with_alpn(*protocols: str) -> ssl.SSLContext:
    context: ssl.SSLContext = _trusting(TRUSTED)
    context.set_alpn_protocols(list(protocols))
    return context


def _changed() -> ssl.SSLContext:
    """A context that was changed after its first use."""
    context: ssl.SSLContext = _trusting(SYSTEM.pem)
    use(context)
    context.load_verify_locations(cadata=ROOT.pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    CLIENT.load_into(context)
    return context


# The test sets this function: it connects the tested face with a context.
use: Callable[[ssl.SSLContext], None] = lambda context: None  # noqa: E731

_PARTIAL, _STRICT = ssl.VERIFY_X509_PARTIAL_CHAIN, ssl.VERIFY_X509_STRICT


Said = ssl.SSLContext | TLS | None


def write_files(folder: Path) -> None:
    """Write the files that the settings below name."""
    (folder / "client.pem").write_bytes(CLIENT.whole_pem())
    (folder / "ca.pem").write_text(TRUSTED)


# Makers of contexts and settings. The argument is the folder of the files.
CONTEXTS: dict[str, Callable[[Path], Said]] = {
    "none": lambda folder: None,
    "the default context": lambda folder: ssl.create_default_context(),
    "trusting": lambda folder: _trusting(TRUSTED),
    "trusting no authority": lambda folder: _trusting(),
    "pinning": lambda folder: _trusting(PINNED.pem),
    "pinning, by Python's default": lambda folder: ssl.create_default_context(cadata=PINNED.pem),
    "an intermediate": lambda folder: _trusting(MIDDLE.pem, off=_PARTIAL),
    "an intermediate, for partial chains": lambda folder: _trusting(MIDDLE.pem, flags=_PARTIAL),
    "a leaf, for partial chains": lambda folder: _trusting(CERTIFICATES["right"][0].pem, flags=_PARTIAL),
    "strict": lambda folder: _trusting(TRUSTED, flags=_STRICT),
    "with revocation": lambda folder: _trusting(TRUSTED, flags=ssl.VERIFY_CRL_CHECK_LEAF),
    "verifying nothing": lambda folder: _trusting(check_hostname=False, verify_mode=ssl.CERT_NONE),
    "optional": lambda folder: _trusting(TRUSTED, verify_mode=ssl.CERT_OPTIONAL),
    "any name": lambda folder: _trusting(TRUSTED, check_hostname=False),
    "no common name": lambda folder: _trusting(TRUSTED, hostname_checks_common_name=False),
    "TLS 1.2": lambda folder: _trusting(TRUSTED, maximum_version=ssl.TLSVersion.TLSv1_2),
    "TLS 1.3": lambda folder: _trusting(TRUSTED, minimum_version=ssl.TLSVersion.TLSv1_3),
    "another cipher": lambda folder: _with_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256"),
    "a low level": lambda folder: _with_ciphers("DEFAULT@SECLEVEL=0"),
    "with a client certificate": lambda folder: _with_client(),
    "changed after its first use": lambda folder: _changed(),
    "a derived class": lambda folder: _trusting(
        TRUSTED, made=Derived, check_hostname=False, verify_mode=ssl.CERT_NONE
    ),
    "offering protocols": lambda folder: _with_alpn("h2", "http/1.1"),
    "logging keys": lambda folder: _trusting(TRUSTED, keylog_filename=str(folder / "keys")),
    "settings": lambda folder: TLS(cafile=folder / "ca.pem"),
    "settings, data": lambda folder: TLS(cadata=TRUSTED),
    "settings, pinning": lambda folder: TLS(cadata=PINNED.pem),
    "settings, an intermediate": lambda folder: TLS(cadata=MIDDLE.pem),
    "settings, any name": lambda folder: TLS(cadata=TRUSTED, check_hostname=False),
    "settings, a client certificate": lambda folder: TLS(cadata=TRUSTED, client_cert=folder / "client.pem"),
    "settings, TLS 1.2": lambda folder: TLS(cadata=TRUSTED, maximum_version=ssl.TLSVersion.TLSv1_2),
    "settings, TLS 1.3": lambda folder: TLS(cadata=TRUSTED, minimum_version=ssl.TLSVersion.TLSv1_3),
    "settings, protocols": lambda folder: TLS(cadata=TRUSTED, alpn=["h2", "http/1.1"]),
}


# ---- the oracle


@dataclass(frozen=True)
class Seen:
    """The facts that a server sees about a client: version, protocol, name, client certificate."""

    version: str | None
    protocol: str | None
    name: str | None
    certificate: bytes | None

    @classmethod
    def of(cls, server: ssl.SSLObject | ssl.SSLSocket, name: str | None) -> Seen:
        return cls(server.version(), server.selected_alpn_protocol(), name, server.getpeercert(True))


@dataclass(frozen=True)
class Refusal:
    """The reason why a client does not connect. The fields are None if the certificate is not the reason."""

    code: int | None
    message: str | None
    reason: str | None
    library: str | None

    @classmethod
    def of(cls, exc: BaseException) -> Refusal:
        if isinstance(exc, ssl.SSLCertVerificationError):
            return cls(exc.verify_code, exc.verify_message, exc.reason, exc.library)
        return cls(None, None, None, None)


def verdict(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> Seen | Refusal:
    """OpenSSL's verdict: the result of a handshake of Python's ssl module with itself, in memory."""
    names: list[str | None] = [None]
    server.sni_callback = lambda _, asked, __: names.append(asked)
    upwards, downwards = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(downwards, upwards, server_hostname=name)
    theirs = server.wrap_bio(upwards, downwards, server_side=True)
    failure: ssl.SSLError | None = None
    waiting: list[Callable[[], Any]] = [ours.do_handshake, theirs.do_handshake]
    try:
        while waiting:
            for step in list(waiting):
                try:
                    step()
                    waiting.remove(step)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError as exc:
                    if step == ours.do_handshake:
                        return Refusal.of(exc)
                    failure = exc
                    waiting.remove(step)
        if failure is not None:
            return Refusal.of(failure)
        return Seen.of(theirs, names[-1])
    finally:
        server.sni_callback = None

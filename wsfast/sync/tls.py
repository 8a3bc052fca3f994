"""An ``ssl.SSLContext`` in the words of rustls.

What it says is honoured: its authorities, what it verifies, its versions, cipher suites and ALPN protocols. What
rustls cannot do, or what a context does not tell, is refused rather than ignored. A context does not tell its client
certificate, so whether it has one is found out (`_has_client_certificate`), and the certificate to use is a parameter
of its own. Nor does it tell its ALPN protocols, but its first message to a server does (`_alpn_protocols`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
import struct
import weakref
from pathlib import Path
from typing import Any, Union

from wsfast.sync._native import ffi, lib

__all__ = ["ClientCert", "config"]

StrPath = Union[str, "os.PathLike[str]"]
# Files in PEM: the certificate with its chain, and the key (in the same file, if None).
ClientCert = StrPath | tuple[StrPath, StrPath | None]

_CRL = ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF | ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN

# RFC 7301 section 3.1.
_ALPN = 16

# Configurations that are in use elsewhere are shared: the crate resumes sessions with them, and parsing the authorities
# takes milliseconds.
_configs: weakref.WeakKeyDictionary[ssl.SSLContext, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def config(context: ssl.SSLContext | None, client_cert: ClientCert | None) -> Any:
    """The configuration of the crate for `context`; by default one that verifies with the system's authorities.

    :raises ValueError: the context has something that cannot be carried over
    """
    if context is None:
        default = ssl.get_default_verify_paths()
        keylog = os.environ.get("SSLKEYLOGFILE")
        return _system_config(default.cafile, default.capath, keylog, client_cert)  # type: ignore[arg-type]
    facts = (_facts(context), client_cert)
    known = _configs.get(context)
    if known is None or known[0] != facts:
        known = facts, _from_context(context, client_cert)
        _configs[context] = known
    return known[1]


def _facts(context: ssl.SSLContext) -> Any:
    """What may be changed of a context after it was used."""
    return (
        context.verify_mode,
        context.check_hostname,
        context.verify_flags,
        context.minimum_version,
        context.maximum_version,
        context.options,
        context.keylog_filename,
        tuple(context.cert_store_stats().items()),
    )


@functools.lru_cache(maxsize=4)
def _system_config(
    cafile: str | None, capath: str | None, keylog: str | None, client_cert: ClientCert | None
) -> Any:
    return _make(_system_authorities(cafile, capath), [], 2, 3, b"", client_cert, keylog is not None)


def _from_context(context: ssl.SSLContext, client_cert: ClientCert | None) -> Any:
    if context.verify_flags & _CRL:
        raise ValueError(
            "ssl: revocation lists (VERIFY_CRL_CHECK_...) are not supported by the blocking client"
        )
    keylog = context.keylog_filename
    if keylog is not None and keylog != os.environ.get("SSLKEYLOGFILE"):
        raise ValueError("ssl: keylog_filename must be what SSLKEYLOGFILE says, for the blocking client")
    if _has_client_certificate(context):
        raise ValueError(
            "ssl: the context has a client certificate, which it does not give away; pass client_cert"
        )
    if context.verify_mode == ssl.CERT_NONE:
        verify, authorities = 0, []
    else:
        verify = 2 if context.check_hostname else 1
        authorities = context.get_ca_certs(binary_form=True)
        if not authorities:
            # OpenSSL looks into the system's directory when it needs to, and tells nothing of it before.
            default = ssl.get_default_verify_paths()
            authorities = _system_authorities(default.cafile, default.capath)
    suites = [cipher["id"] & 0xFFFF for cipher in context.get_ciphers()]
    versions, alpn = _versions(context), _alpn_protocols(context)
    return _make(authorities, suites, verify, versions, alpn, client_cert, keylog is not None)


def _versions(context: ssl.SSLContext) -> int:
    lowest, highest = context.minimum_version, context.maximum_version
    low = lowest in (ssl.TLSVersion.MINIMUM_SUPPORTED,) or lowest <= ssl.TLSVersion.TLSv1_2
    high = highest in (ssl.TLSVersion.MAXIMUM_SUPPORTED,) or highest >= ssl.TLSVersion.TLSv1_3
    reaches_12 = highest == ssl.TLSVersion.MAXIMUM_SUPPORTED or highest >= ssl.TLSVersion.TLSv1_2
    tls12 = low and reaches_12 and not context.options & ssl.OP_NO_TLSv1_2
    tls13 = high and not context.options & ssl.OP_NO_TLSv1_3
    if not (tls12 or tls13):
        raise ValueError("ssl: the context allows neither TLS 1.2 nor TLS 1.3, and rustls knows no other")
    return (1 if tls12 else 0) | (2 if tls13 else 0)


@functools.lru_cache(maxsize=4)
def _system_authorities(cafile: str | None, capath: str | None) -> list[bytes]:
    """The certificates of the places where OpenSSL looks, which SSL_CERT_FILE and SSL_CERT_DIR may change."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if cafile is not None:
        context.load_verify_locations(cafile)
    # Where both are there they are the same certificates, so those of the file will do.
    elif capath is not None:
        for file in sorted(Path(capath).glob("*.0")):
            try:
                context.load_verify_locations(file)
            except (OSError, ssl.SSLError):
                continue  # OpenSSL would not mind either, until it needs that one
    return context.get_ca_certs(binary_form=True)


def _make(
    authorities: list[bytes],
    suites: list[int],
    verify: int,
    versions: int,
    alpn: bytes,
    client_cert: ClientCert | None,
    keylog: bool,
) -> Any:
    certificate, key = _client_pem(client_cert)
    reason = ffi.new("char[256]")
    made = lib.wst_tls_config_new(
        b"".join(authorities),
        [len(der) for der in authorities],
        len(authorities),
        suites,
        len(suites),
        verify,
        versions,
        alpn,
        len(alpn),
        certificate,
        len(certificate),
        key,
        len(key),
        keylog,
        reason,
        len(reason),
    )
    if made == ffi.NULL:
        raise ValueError(f"ssl: {ffi.string(reason).decode(errors='replace')}")
    return ffi.gc(made, lib.wst_tls_config_free)


def _client_pem(client_cert: ClientCert | None) -> tuple[bytes, bytes]:
    if client_cert is None:
        return b"", b""
    certificate, key = client_cert if isinstance(client_cert, tuple) else (client_cert, None)
    pem = Path(certificate).read_bytes()
    return pem, pem if key is None else Path(key).read_bytes()


def _alpn_protocols(context: ssl.SSLContext) -> bytes:
    """The protocols that the context offers, as they stand in its ClientHello (RFC 7301 section 3.1)."""
    to_server = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), to_server, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = to_server.read()
    at = 5 + 4 + 2 + 32  # the headers of record and message, the version, the random (RFC 8446 section 4.1.2)
    at += 1 + hello[at]  # the session
    at += 2 + struct.unpack_from("!H", hello, at)[0]  # the cipher suites
    at += 1 + hello[at]  # the compression methods
    at += 2  # the size of all extensions
    while at < len(hello):
        extension, size = struct.unpack_from("!HH", hello, at)
        at += 4
        if extension == _ALPN:
            return hello[at + 2 : at + size]
        at += size
    return b""


def _has_client_certificate(context: ssl.SSLContext) -> bool:
    """Would the context show a certificate to a server that asks for one?

    Found out by a handshake in memory. The client starts with a context that verifies nothing, and then gets the
    certificate of `context`, but not what it verifies: so OpenSSL does when the context of a connection is replaced.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    client.context = context
    server = _asking_context().wrap_bio(to_server, to_client, server_side=True)
    ends = [client, server]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return True  # the server got a certificate, and trusts none
            except ssl.SSLError as exc:
                raise ValueError(
                    f"ssl: cannot tell whether the context has a client certificate: {exc}"
                ) from exc
    return False


@functools.lru_cache(maxsize=1)
def _asking_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).with_name("probe.pem"))
    context.verify_mode = ssl.CERT_OPTIONAL
    # Whose cipher suites cannot be restricted, so there is always one in common.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context

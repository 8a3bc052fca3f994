"""Certificates. A test makes them at their first use, because making one takes some milliseconds."""

from __future__ import annotations

import datetime
import functools
import ssl

import trustme

from wsfast import TLS
from wsfast.tls import ClientCert


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def server_context(*names: str, expired: bool = False, early: bool = False) -> ssl.SSLContext:
    """A server's context with a certificate for `names`; 127.0.0.1 and localhost by default. `early`: the certificate
    is not valid yet."""
    past, future = (datetime.datetime(year, 1, 1, tzinfo=datetime.timezone.utc) for year in (2020, 2100))
    certificate = authority().issue_cert(
        *(names or ("localhost", "127.0.0.1", "::1")),
        not_before=future if early else None,
        not_after=past if expired else future.replace(year=2101) if early else None,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@functools.cache
def self_signed_context() -> ssl.SSLContext:
    """A server's context with a self-signed certificate."""
    alone = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with alone.cert_pem.tempfile() as certificate, alone.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


def client_context() -> ssl.SSLContext:
    """A client's context that trusts only authority()."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


def client_settings(client_cert: ClientCert | None = None) -> TLS:
    """The same as wsfast's own settings: with them rustls encrypts, instead of OpenSSL."""
    return TLS(cadata=authority().cert_pem.bytes().decode(), client_cert=client_cert)


# What makes the value of `ssl=`; None is a connection without TLS.
WAYS = {"plain": None, "openssl": client_context, "rustls": client_settings}

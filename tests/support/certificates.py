"""Certificates that are made when first needed; making one takes some milliseconds."""

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
    """A server's context with a certificate for `names`; 127.0.0.1 and localhost by default. `early`: it is not valid
    yet."""
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
    """A server's context with a certificate that nobody but itself has signed."""
    alone = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with alone.cert_pem.tempfile() as certificate, alone.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


def client_context() -> ssl.SSLContext:
    """A client's context that trusts authority() alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


def client_settings(client_cert: ClientCert | None = None) -> TLS:
    """The same in wsfast's settings, with which the blocking client encrypts by rustls instead of OpenSSL."""
    return TLS(cadata=authority().cert_pem.bytes().decode(), client_cert=client_cert)


# How the blocking client is told to speak TLS; None: not at all.
WAYS = {"plain": None, "openssl": client_context, "rustls": client_settings}

"""Certificates that are made when first needed; making one takes some milliseconds."""

from __future__ import annotations

import datetime
import functools
import ssl

import trustme


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def server_context(*names: str, expired: bool = False) -> ssl.SSLContext:
    """A server's context with a certificate for `names`; 127.0.0.1 and localhost by default."""
    expiry = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc) if expired else None
    certificate = authority().issue_cert(*(names or ("localhost", "127.0.0.1", "::1")), not_after=expiry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    """A client's context that trusts authority() alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context

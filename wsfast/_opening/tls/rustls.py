"""TLS by rustls, for every client: its configurations, and the OpenSSL that verifies certificates for it."""

from __future__ import annotations

import _ssl
import functools
import os
import ssl
import weakref
from pathlib import Path
from typing import Any

from wsfast._engine.sockets.tls_transport import TLSSession
from wsfast._rust._native import ffi, lib
from wsfast.exceptions import TLSUnavailable
from wsfast.tls import TLS

__all__ = ["check_openssl", "config", "config_for", "connection_of", "field", "load_openssl"]

# The offset of an object's own fields, in words: they follow those that every object has.
_FIELDS = object.__basicsize__ // ffi.sizeof("void *")


def config(tls: TLS) -> Any:
    """The configuration of the crate for `tls`.

    :raises ValueError, OSError: the settings cannot be used, because of the client's certificate for instance
    """
    settings = tls.located()
    context = settings.context()
    built = _configs.get(context)
    if built is None:
        # Another thread may have made one meanwhile: all share the first.
        built = _configs.setdefault(context, _new_config(settings, context))
    return built


def config_for(tls: TLS, name: str) -> Any:
    """The configuration for a connection to the server `name`. None if rustls does not accept the name, or the kind of
    the client's key: then OpenSSL speaks TLS.

    :raises OSError: a file cannot be read
    """
    try:
        built = config(tls)
    except ValueError:
        return None
    return built if _takes_name(built, name) else None


# True for a name that rustls accepts; only a session can tell. The key is the name alone, because a configuration that
# is kept would keep its key log file open.
_names: dict[str, bool] = {}
_MOST_NAMES = 256


def _takes_name(config: Any, name: str) -> bool:
    taken = _names.get(name)
    if taken is None:
        try:
            TLSSession(config, name.encode(), 0)
            taken = True
        except ValueError:
            taken = False
        if len(_names) >= _MOST_NAMES:
            _names.clear()
        _names[name] = taken
    return taken


# Shared, because the crate resumes sessions with a configuration. A new context gets a new configuration; the old one
# and its sessions are freed with the old context.
_configs: weakref.WeakKeyDictionary[ssl.SSLContext, Any] = weakref.WeakKeyDictionary()


def _new_config(tls: TLS, context: ssl.SSLContext) -> Any:
    alpn = b"".join(bytes([len(protocol)]) + protocol.encode() for protocol in tls.alpn)
    versions = (tls.minimum_version == ssl.TLSVersion.TLSv1_2) | 2 * (
        tls.maximum_version == ssl.TLSVersion.TLSv1_3
    )
    certificate, key = _client_pem(tls.client_cert)
    wanted = ffi.new(
        "wst_tls_settings *",
        {
            "context": field(context, 0),
            "check_name": tls.check_hostname,
            "versions": versions,
            "keylog": context.keylog_filename is not None,
            "resume_for": tls.resume_for,
        },
    )
    texts = {"alpn": alpn, "chain": certificate, "key": key}
    borrowed = {name: ffi.from_buffer(text) for name, text in texts.items()}
    for name, text in borrowed.items():
        setattr(wanted, name, text)
        setattr(wanted, f"{name}_size", len(text))
    reason = ffi.new("char[256]")
    built = lib.wst_tls_config_new(wanted, reason, len(reason))
    if built == ffi.NULL:
        raise ValueError(f"ssl: {ffi.string(reason).decode(errors='replace')}")
    return ffi.gc(built, lib.wst_tls_config_free)


# A forked child makes its own configurations: each ticket may be used once (RFC 8446 appendix C.4), and a thread that
# does not exist in the child may have held the lock of the tickets.
os.register_at_fork(after_in_child=_configs.clear)


def _client_pem(client_cert: Any) -> tuple[bytes, bytes]:
    if client_cert is None:
        return b"", b""
    certificate, key = client_cert
    pem = Path(certificate).read_bytes()
    return pem, pem if key is None else Path(key).read_bytes()


# ---- where Python keeps the objects of OpenSSL


def check_openssl() -> None:
    """Find the OpenSSL that Python uses, before anything else is done.

    :raises TLSUnavailable: it cannot be found, as where Python was linked with it and hides its functions
    """
    why = load_openssl()
    if why is not None:
        raise TLSUnavailable(
            f"wss:// of the blocking client works with Python's own OpenSSL, and cannot here: {why}. Use "
            "wsfast.connect(), which can, or a Python whose ssl module is linked with a shared OpenSSL"
        )


@functools.lru_cache(maxsize=1)
def load_openssl() -> str | None:
    """Return None, or the reason why it cannot be found."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    session = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")._sslobj  # type: ignore[attr-defined]
    path = getattr(_ssl, "__file__", None)
    reason = ffi.new("char[256]")
    connection = connection_of(session)
    if connection is None:
        return "this Python keeps its SSL objects elsewhere"
    if lib.wst_openssl_load(
        ffi.NULL if path is None else path.encode(),
        connection,
        field(context, 0),
        reason,
        len(reason),
    ):
        return str(ffi.string(reason).decode(errors="replace"))
    return None


def field(owner: Any, index: int) -> Any:
    """A field of an object of C, if it is a pointer."""
    return ffi.cast("void **", id(owner))[_FIELDS + index]


def connection_of(session: Any) -> Any:
    """The SSL pointer of Python's object, if it lies between a socket, which is NULL, and the context; else None."""
    about = int(ffi.cast("uintptr_t", field(session, 2)))
    if field(session, 0) != ffi.NULL or about != id(session.context):
        return None
    return field(session, 1)

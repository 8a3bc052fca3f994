"""TLS of the blocking client: by rustls, or by OpenSSL with a context of the user's.

A context is not translated. Python's ssl module shakes hands with it, and then the crate goes on with the same
connection of OpenSSL, so whatever the context says is honoured. rustls is for ``wsfast.TLS``, and OpenSSL verifies for
it with the context that the same settings make.
"""

from __future__ import annotations

import _ssl
import contextlib
import functools
import ssl
from pathlib import Path
from typing import Any, Protocol

from wsfast.exceptions import TLSUnavailable
from wsfast._native import ffi, lib
from wsfast.tls import TLS, ClientCert

__all__ = ["ClientCert", "adopt", "check_openssl", "config", "settings", "shake_hands"]

_STEP = "the TLS handshake"

# The largest record, and more than one of most handshakes.
_READ = 32 * 1024

# Where an object of C has its own fields, in words: behind what every object has.
_FIELDS = object.__basicsize__ // ffi.sizeof("void *")


class Deadline(Protocol):
    def left(self, step: str) -> float | None:
        """The seconds that are left; raises TimeoutError if there are none."""


def settings(tls: ssl.SSLContext | TLS | None, client_cert: ClientCert | None) -> ssl.SSLContext | TLS:
    """What the arguments of ``connect`` say.

    :raises ValueError: they contradict each other
    """
    if isinstance(tls, ssl.SSLContext):
        if client_cert is not None:
            raise ValueError("client_cert: with an SSLContext use its load_cert_chain()")
        return tls
    if tls is None:
        return TLS(client_cert=client_cert)
    if client_cert is not None:
        raise ValueError("client_cert is given twice: ssl is a wsfast.TLS, which has one of its own")
    return tls


# ---- rustls


def config(tls: TLS) -> Any:
    """The configuration of the crate for `tls`.

    :raises ValueError, OSError: that cannot be done, because of the client's certificate for instance
    """
    return _config(tls, tls.context())


# Shared, for the crate resumes sessions with it. A context that is made anew means another configuration.
@functools.lru_cache(maxsize=16)
def _config(tls: TLS, context: ssl.SSLContext) -> Any:
    alpn = b"".join(bytes([len(protocol)]) + protocol.encode() for protocol in tls.alpn)
    versions = (tls.minimum_version == ssl.TLSVersion.TLSv1_2) | 2 * (
        tls.maximum_version == ssl.TLSVersion.TLSv1_3
    )
    certificate, key = _client_pem(tls.client_cert)
    wanted = ffi.new(
        "wst_tls_settings *",
        {
            "context": _field(context, 0),
            "check_name": tls.check_hostname,
            "versions": versions,
            "keylog": context.keylog_filename is not None,
        },
    )
    texts = {"alpn": alpn, "chain": certificate, "key": key}
    borrowed = {name: ffi.from_buffer(text) for name, text in texts.items()}
    for name, text in borrowed.items():
        setattr(wanted, name, text)
        setattr(wanted, f"{name}_size", len(text))
    reason = ffi.new("char[256]")
    made = lib.wst_tls_config_new(wanted, reason, len(reason))
    if made == ffi.NULL:
        raise ValueError(f"ssl: {ffi.string(reason).decode(errors='replace')}")
    return ffi.gc(made, lib.wst_tls_config_free)


def _client_pem(client_cert: Any) -> tuple[bytes, bytes]:
    if client_cert is None:
        return b"", b""
    certificate, key = client_cert
    pem = Path(certificate).read_bytes()
    return pem, pem if key is None else Path(key).read_bytes()


# ---- OpenSSL


def shake_hands(sock: Any, context: ssl.SSLContext, name: str, deadline: Deadline) -> Any:
    """The TLS handshake with `context`. Returns what :func:`adopt` wants.

    :raises ssl.SSLError, OSError: Python's own
    :raises ValueError: there is something about the context that cannot be honoured
    """
    if getattr(context, "_msg_callback", None) is not None:
        # Python would be run for every record, while the crate has its locks.
        raise ValueError("ssl: a context with a _msg_callback is not supported by the blocking client")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = context.wrap_bio(incoming, outgoing, server_hostname=name)
    session = getattr(wrapped, "_sslobj", None)
    if type(session) is not _ssl._SSLSocket:  # type: ignore[attr-defined]
        raise ValueError(
            f"ssl: {type(context).__name__}.wrap_bio() makes no connection of Python's ssl module"
        )
    done = False
    while not done:
        try:
            wrapped.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                _send(sock, outgoing, deadline)  # the alert
            raise
        _send(sock, outgoing, deadline)
        if not done and not incoming.eof:
            data = _receive(sock, deadline)
            if data:
                incoming.write(data)
            else:
                incoming.write_eof()
    sock.setblocking(True)
    return session


def _send(sock: Any, outgoing: ssl.MemoryBIO, deadline: Deadline) -> None:
    data = outgoing.read()
    if data:
        sock.settimeout(deadline.left(_STEP))
        try:
            sock.sendall(data)
        except TimeoutError as exc:
            raise TimeoutError(f"timed out during {_STEP}") from exc


def _receive(sock: Any, deadline: Deadline) -> bytes:
    sock.settimeout(deadline.left(_STEP))
    try:
        data: bytes = sock.recv(_READ)
    except TimeoutError as exc:
        raise TimeoutError(f"timed out during {_STEP}") from exc
    return data


def adopt(handle: Any, session: Any) -> int:
    """Let the crate go on with the connection of OpenSSL, which must live as long as `handle`."""
    connection = _connection_of(session)
    return int(
        lib.wst_tls_adopt(handle, ffi.NULL if connection is None else connection, _field(session.context, 0))
    )


# ---- where Python keeps the objects of OpenSSL


def check_openssl() -> None:
    """Find the OpenSSL that Python uses, before anything else is done.

    :raises TLSUnavailable: it cannot be found, as where Python was linked with it and hides its functions
    """
    why = _load_openssl()
    if why is not None:
        raise TLSUnavailable(
            f"wss:// of the blocking client works with Python's own OpenSSL, and cannot here: {why}. Use "
            "wsfast.connect(), which can, or a Python whose ssl module is linked with a shared OpenSSL"
        )


@functools.lru_cache(maxsize=1)
def _load_openssl() -> str | None:
    """None, or why it cannot be found."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    session = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")._sslobj  # type: ignore[attr-defined]
    path = getattr(_ssl, "__file__", None)
    reason = ffi.new("char[256]")
    connection = _connection_of(session)
    if connection is None:
        return "this Python keeps its SSL objects elsewhere"
    if lib.wst_openssl_load(
        ffi.NULL if path is None else path.encode(),
        connection,
        _field(context, 0),
        reason,
        len(reason),
    ):
        return str(ffi.string(reason).decode(errors="replace"))
    return None


def _field(owner: Any, index: int) -> Any:
    """A field of an object of C, if it is a pointer."""
    return ffi.cast("void **", id(owner))[_FIELDS + index]


def _connection_of(session: Any) -> Any:
    """The SSL of Python's object, behind the socket, which it has none of, and before its context; else None."""
    about = int(ffi.cast("uintptr_t", _field(session, 2)))
    if _field(session, 0) != ffi.NULL or about != id(session.context):
        return None
    return _field(session, 1)

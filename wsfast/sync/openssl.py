"""TLS of the blocking client: by rustls, or by OpenSSL with a context of the user's.

A context is not translated. Python's ssl module shakes hands with it, and then the crate goes on with the same
connection of OpenSSL, so whatever the context says is honoured. rustls is for ``wsfast.TLS``, and OpenSSL verifies for
it with the context that the same settings make.
"""

from __future__ import annotations

import _ssl
import contextlib
import ssl
from typing import Any, Protocol

from wsfast._opening.tls.rustls import connection_of, field
from wsfast._rust._native import ffi, lib
from wsfast.tls import TLS, ClientCert

__all__ = ["ClientCert", "adopt", "openssl_handshake", "settings"]

_STEP = "the TLS handshake"

# The largest record, and more than one of most handshakes.
_READ = 32 * 1024


class Deadline(Protocol):
    def left(self, step: str) -> float | None:
        """The seconds that are left; raises TimeoutError if there are none."""


def settings(tls: ssl.SSLContext | TLS | None, client_cert: ClientCert | None) -> ssl.SSLContext | TLS:
    """The TLS settings that the arguments of ``connect`` ask for.

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


# ---- OpenSSL


def openssl_handshake(sock: Any, context: ssl.SSLContext, name: str, deadline: Deadline) -> Any:
    """The TLS handshake with `context`. Returns an ``ssl.SSLObject``, which :func:`adopt` wants.

    :raises ssl.SSLError, OSError: Python's own
    :raises ValueError: there is something about the context that cannot be honoured
    """
    if getattr(context, "_msg_callback", None) is not None:
        # Python would be run for every record, while the crate has its locks.
        raise ValueError("ssl: a context with a _msg_callback is not supported by the blocking client")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = context.wrap_bio(incoming, outgoing, server_hostname=name)
    if type(getattr(wrapped, "_sslobj", None)) is not _ssl._SSLSocket:  # type: ignore[attr-defined]
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
    return wrapped


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


def adopt(handle: Any, wrapped: Any) -> int:
    """Let the crate go on with the connection of OpenSSL, and keep it alive."""
    session = wrapped._sslobj
    connection = connection_of(session)
    return int(
        lib.wst_tls_adopt(handle, ffi.NULL if connection is None else connection, field(session.context, 0))
    )

"""The TLS handshake by rustls over a connected socket, for the clients on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from typing import Any

from wsfast._common.options import in_words
from wsfast._engine.sockets.tls_transport import TLSSession

if sys.version_info >= (3, 11):
    from asyncio import timeout as deadline
else:
    from async_timeout import timeout as deadline

__all__ = ["ended_in_tls", "not_tls", "rustls_handshake"]

# The largest record, and more than one of most handshakes.
_READ = 32 * 1024

# Seconds, as asyncio's.
_TIMEOUT = 60.0


def not_tls() -> ssl.SSLError:
    """The server's answer is not TLS."""
    return ssl.SSLError(ssl.SSL_ERROR_SSL, "the server does not speak TLS: is it a ws:// server?")


def ended_in_tls() -> ssl.SSLError:
    """The server closed the connection before TLS was agreed."""
    return ssl.SSLEOFError(
        ssl.SSL_ERROR_EOF, "the server closed the connection during the TLS handshake: is it a ws:// server?"
    )


async def rustls_handshake(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    config: Any,
    name: str,
    port: int,
    timeout: float | None,
    outer: TLSSession | None = None,
) -> TLSSession:
    """Return the session. The last handshake bytes stay in it, and are sent with the first request.

    :param config: of the crate
    :param port: of the peer, of which sessions are kept
    :param timeout: seconds; None for 60
    :param outer: the TLS of an https proxy, which is to carry this one
    :raises ssl.SSLError: certificate, alert, or no TLS
    :raises OSError: of the socket; ConnectionAbortedError if it takes too long, as asyncio raises
    """
    session = TLSSession(config, name.encode(), port, outer)
    limit = _TIMEOUT if timeout is None else timeout
    try:
        async with deadline(limit):
            await _exchange(loop, sock, session)
    except asyncio.TimeoutError as exc:
        if not isinstance(exc.__context__, asyncio.CancelledError):
            raise  # ETIMEDOUT, of the socket
        raise ConnectionAbortedError(
            f"SSL handshake is taking longer than {in_words(limit)}: aborting the connection"
        ) from None
    return session


async def _exchange(loop: asyncio.AbstractEventLoop, sock: socket.socket, session: TLSSession) -> None:
    while session.is_handshaking:
        await loop.sock_sendall(sock, session.take())
        received = await loop.sock_recv(sock, _READ)
        if not received:
            raise ended_in_tls()
        session.feed(bytearray(received))
        if session.has_failed:
            with contextlib.suppress(OSError):  # the alert, without waiting for the server to take it
                sock.send(session.take())
            failure = session.failure() or ended_in_tls()
            if "InvalidContentType" in str(failure):  # rustls' word for it
                raise not_tls() from failure
            raise failure
        if session.has_ended:
            raise ended_in_tls()
        if session.is_handshaking:
            # sock_recv() returns at once if bytes have arrived, so a server that keeps sending would block the loop.
            await asyncio.sleep(0)

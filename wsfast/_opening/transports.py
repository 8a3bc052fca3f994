"""What carries a connection, TCP or TLS: aiofastnet's transports, or the event loop's own."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

import aiofastnet

from wsfast._engine.socket import SocketTransport
from wsfast._engine.transport import WSTransport
from wsfast._engine.tuning import Tuning
from wsfast._opening import addresses
from wsfast._opening.addresses import SocketFactory
from wsfast._opening.resets import LoopProxy, of_transports
from wsfast._opening.uri import WebSocketURI
from wsfast.tls import put_in_python_s_words, server_name


async def connect(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    uri: WebSocketURI,
    context: ssl.SSLContext | None,
    socket_factory: SocketFactory | None,
    use_aiofastnet: bool | None,
    tuning: Tuning,
    kwargs: dict[str, Any],
) -> None:
    """Connect TCP and TLS, and make `transport` the protocol of the connection."""
    target = {"host": uri.host, "port": uri.port, "sockopts": tuning.sockopts}
    target.update((name, kwargs.pop(name)) for name in addresses.ARGUMENTS if name in kwargs)
    sock = (
        None if socket_factory is None else await addresses.from_factory(uri, socket_factory, tuning.sockopts)
    )
    if sock is None:
        sock = await addresses.connect(**target)  # type: ignore[arg-type]
    try:
        fast = _can_use_aiofastnet(loop, sock, context, use_aiofastnet)
        if tuning.timestamps == "kernel" and not (fast and sock.family in addresses.FAMILIES):
            raise ValueError("timestamps='kernel' needs a TCP socket that wsfast itself reads")
        if fast and context is None:
            SocketTransport(of_transports(loop), sock, transport, tuning.timestamps == "kernel")
            return
        if context is not None:
            kwargs["server_hostname"] = server_name(kwargs.get("server_hostname") or uri.host)
        connect = (
            functools.partial(aiofastnet.create_connection, _quiet(loop)) if fast else loop.create_connection
        )
        try:
            await connect(lambda: transport, sock=sock, ssl=context, **kwargs)
        except ssl.SSLCertVerificationError as exc:
            put_in_python_s_words(exc, kwargs["server_hostname"])
            raise
    except BaseException as exc:
        sock.close()
        explained = None if context is None else _explained(exc)
        if explained is not None:
            raise explained from exc
        raise


class _LoopOfTLS(LoopProxy):
    """An event loop as aiofastnet's TLS gets it.

    aiofastnet 1.2 reports a connection that ends during the handshake to the loop, too, and the exception as a class,
    at which handlers stumble. Whoever connects is told anyway.

    When reading resumes, it waits for the socket, whatever it has read and not decrypted: a server that has no more to
    say would be waited for without end.
    """

    _reads = False

    def add_reader(self, fd: int, read: Callable[[], object]) -> None:
        self._loop.add_reader(fd, read)
        if self._reads:  # again
            self._loop.call_soon(read.__self__._retry_ssl_read)  # type: ignore[attr-defined]
        self._reads = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), type):
            self._loop.call_exception_handler(context)


def _quiet(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    return cast("asyncio.AbstractEventLoop", _LoopOfTLS(of_transports(loop)))


# What OpenSSL calls a first record that is none of TLS.
_NO_RECORD = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
)


def _explained(exc: BaseException) -> ssl.SSLError | None:
    """What the TLS handshake ended with, in words, if that has none."""
    reason = getattr(exc, "reason", None)
    if isinstance(exc, ssl.SSLError) and reason in _NO_RECORD:
        return not_tls()
    if isinstance(exc, ssl.SSLError) and not str(exc):
        return type(exc)(ssl.SSL_ERROR_SSL, f"[SSL: {reason}]")
    if isinstance(exc, ConnectionResetError) and exc.errno is None:
        return ended_in_tls()
    return None


def not_tls() -> ssl.SSLError:
    """The server answered in something else than TLS."""
    return ssl.SSLError(ssl.SSL_ERROR_SSL, "the server does not speak TLS: is it a ws:// server?")


def ended_in_tls() -> ssl.SSLError:
    """The server closed the connection before TLS was agreed."""
    return ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the server closed the connection during the TLS handshake")


def _can_use_aiofastnet(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, context: ssl.SSLContext | None, wanted: bool | None
) -> bool:
    """False if the loop's own transports must do: they copy what they receive, and call no C.

    A loop without add_reader (asyncio's Proactor on Windows, say) cannot tell aiofastnet when a socket is readable. And
    aiofastnet 1.2 crashes the process when OpenSSL is to log its keys or to call back, and passes by the methods of a
    class that is derived from SSLContext.
    """
    if context is not None and not _is_plain(context):
        return False
    if wanted is not None:
        return wanted
    try:
        # Nobody reads it yet, so this only asks whether the loop knows how. What loops say of a number that is no
        # descriptor differs.
        loop.remove_reader(sock.fileno())
    except (NotImplementedError, AttributeError):
        return False
    return True


def _is_plain(context: ssl.SSLContext) -> bool:
    """Is it all in the SSL_CTX, and does that call no Python?"""
    calls = getattr(context, "_msg_callback", None)
    return type(context) is ssl.SSLContext and context.keylog_filename is None and calls is None

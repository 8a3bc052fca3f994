"""From a route to a connected socket, for every client: look-ups, TCP, and proxies that have no TLS."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from wsfast._engine.tuning import SocketOption
from wsfast._opening.net.blocking import BlockingNet, Deadline, DeadlinePassed, run
from wsfast._opening.net.interface import Net
from wsfast._opening.net.sockets import connect_socket, connect_to_first, is_connected, prepare
from wsfast._opening.route import Route

__all__ = ["reach", "reach_blocking"]


async def reach(net: Net, route: Route, sock: socket.socket | None, options: dict[str, Any]) -> socket.socket:
    """Connect to the server; behind an https proxy, to the proxy.

    :param sock: of the user's, connected or not, to use instead of a new one; closed if this fails
    :param options: for `sockets.connect_socket`
    :raises ProxyError: the proxy was not reached, refused, sent an invalid reply, or hung up
    :raises OSError: the server was not reached
    """
    try:
        if route.proxy is not None:
            from wsfast._opening.proxy import negotiation  # python-socks takes longer to import than wsfast

            return await negotiation.connect_through(net, route, sock, options)
        if sock is not None and is_connected(sock):
            route.connected_by_user(sock)
            return sock
        host = route.host
        route.phase = ("the look-up of", host, ())
        return await connect_socket(
            net, host, route.port, sock=sock, look_up=route.look_up, resolved=route.resolved, **options
        )
    except BaseException:
        if sock is not None:
            sock.close()
        raise


def reach_blocking(
    route: Route,
    deadline: Deadline,
    sock: socket.socket | None = None,
    path: str | None = None,
    sockopts: Sequence[SocketOption] = (),
    **options: Any,
) -> socket.socket:
    """Do what `reach` does, by calls that block. The returned socket blocks, too.

    :param path: of a Unix socket, to connect to instead
    :raises TimeoutError: the deadline passed
    """
    net = BlockingNet(deadline)
    if sock is not None:
        prepare(sock, sockopts)
    try:
        if path is not None:
            route.phase = f"the connection to {path}"
            info = (socket.AF_UNIX, socket.SOCK_STREAM, 0, "", path)
            sock = run(connect_to_first(net, [info], sockopts=sockopts))
        sock = run(reach(net, route, sock, {**options, "sockopts": sockopts}))
    except DeadlinePassed:
        raise route.refusal() or deadline.passed(route.phase_text()) from None
    sock.setblocking(True)
    return sock

"""Errors for environments in which the blocking client cannot work."""

from __future__ import annotations

import sys

__all__ = ["refuse_gevent", "why_no_tls"]


def refuse_gevent() -> None:
    """Raise RuntimeError if gevent has patched sockets.

    The client waits in system calls of its own, which gevent does not see: a call that waits would stop every
    greenlet of the thread.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("socket"):
        raise RuntimeError(
            "wsfast.sync does not work with gevent's monkey patching: it waits in system calls of its own, so all "
            "greenlets would stop. Use websockets.sync, or wsfast in a native thread of a process that is not patched"
        )


def why_no_tls() -> str | None:
    """Why the blocking client cannot open ``wss://`` connections with this Python, in words; None if it can."""
    from wsfast._opening.tls.rustls import load_openssl

    return load_openssl()

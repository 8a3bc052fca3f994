"""The blocking client: websockets' sync client, name for name, on Rust."""

from __future__ import annotations

__all__ = ["why_no_tls"]


def why_no_tls() -> str | None:
    """Why the blocking client cannot open ``wss://`` connections with this Python, in words; None if it can."""
    from wsfast._opening.rustls import load_openssl

    return load_openssl()

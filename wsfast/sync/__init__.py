"""The blocking client: websockets' sync client, name for name, on Rust; and :func:`supervise`, which runs
the asyncio supervisor in a thread."""

from typing import TYPE_CHECKING, Any

__all__ = ["supervise"]

if TYPE_CHECKING:
    from wsfast.supervisor.blocking import supervise
else:

    def __getattr__(name: str) -> Any:
        """Import the names that need asyncio with their first use."""
        if name != "supervise":
            hint = f": it is in {__name__}.client" if name in ("connect", "unix_connect") else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        from wsfast.supervisor.blocking import supervise

        globals()[name] = supervise
        return supervise

"""wsfast's awaitable face: websockets' asyncio client, name for name."""

from wsfast._common.connection import State
from wsfast.asyncio.client import connect, unix_connect
from wsfast.asyncio.connection import ClientConnection

__all__ = ["ClientConnection", "State", "connect", "unix_connect"]

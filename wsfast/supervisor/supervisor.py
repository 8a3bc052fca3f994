"""The supervisor: what a program has in its hands, whichever connection is open, and if none is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any

from wsfast._engine.transport import WSTransport
from wsfast.asyncio.connection import ClientConnection
from wsfast.supervisor.states import State
from wsfast.supervisor.stats import RTT, SupervisorStats
from wsfast.supervisor.subscriptions import Message, Subscription

__all__ = ["Supervisor"]


class Supervisor:
    """A feed that goes on. Made by :func:`wsfast.supervise`, not by hand."""

    rtt: RTT

    async def __aenter__(self) -> Supervisor:
        """Begin to connect. It does not wait until a connection is open; :meth:`ready` does."""
        raise NotImplementedError

    async def __aexit__(self, *exc_info: object) -> None:
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[Any]:
        """The messages of each connection in turn, until the supervisor is closed or gives up."""
        raise NotImplementedError

    def recv(self, decode: Any = None) -> Any:
        """Receive the next message, of whichever connection."""
        raise NotImplementedError

    async def send(self, message: str | bytes, *, text: bool | None = None) -> None:
        """Send a message, ahead of all subscriptions that are not sent yet; waits for an open connection."""
        raise NotImplementedError

    def subscribe(
        self,
        message: Message,
        *,
        key: Hashable = None,
        ack: Callable[[Any], object] | None = None,
        ack_timeout: float = 10.0,
        retries: int = 3,
        max_silence: float | None = None,
    ) -> Subscription:
        """Send a message now and after each connect. `key`: the message itself by default."""
        raise NotImplementedError

    def unsubscribe(self, key: Hashable, message: Message | None = None) -> bool:
        """Forget a subscription. `message` is sent if the subscription was. False if there is none."""
        raise NotImplementedError

    async def ready(self) -> None:
        """Wait until a connection is open and all subscriptions are in."""
        raise NotImplementedError

    async def roll_over(self) -> bool:
        """Replace the connection now. True if it was; False if the new one failed, and the old one stays."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection, and make no other one."""
        raise NotImplementedError

    def abort(self) -> None:
        """Drop the connection at once, and make no other one."""
        raise NotImplementedError

    @property
    def state(self) -> State:
        raise NotImplementedError

    @property
    def cause(self) -> BaseException | None:
        """What ended the last connection or attempt; None if nothing has failed since."""
        raise NotImplementedError

    @property
    def next_attempt(self) -> float | None:
        """When the next attempt is due, by ``loop.time()``; None unless the state is WAITING."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        """Which connection the last received message came from, counted from 1; 0 before the first message."""
        raise NotImplementedError

    @property
    def transport(self) -> WSTransport | None:
        """The current connection's transport; None if nothing is open."""
        raise NotImplementedError

    @property
    def connection(self) -> ClientConnection | None:
        """The current connection, if there is no listener factory; None if nothing is open."""
        raise NotImplementedError

    @property
    def stats(self) -> SupervisorStats:
        raise NotImplementedError

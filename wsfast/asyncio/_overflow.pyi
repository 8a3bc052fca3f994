"""Types of the policies for messages that arrive faster than the program receives them. The methods are C's."""

from collections.abc import Callable, Hashable
from typing import Any, final

from wsfast._common.options import Overflow
from wsfast.asyncio._inbox import Inbox, Policy

def policy_for(overflow: Overflow, logger: Any) -> Policy | None: ...
def backlog(inbox: Inbox) -> tuple[int, int, float | None, int, int, bool]: ...

@final
class Dropping(Policy):
    """overflow="drop_oldest" and "drop_newest"."""

    def __new__(cls, newest: bool) -> Dropping: ...

@final
class Failing(Policy):
    """overflow="fail"."""

@final
class Newest:
    """The newest queued message of a key."""

@final
class Conflating(Policy):
    """overflow="conflate"."""

    def __new__(cls, key: Callable[[bytes], Hashable], logger: Any) -> Conflating: ...

"""The plan of a run of the load tool, as its worker processes receive it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from wsfast.cli.load.workload import Workload
from wsfast.cli.target import Target

__all__ = ["Plan"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One run. Times are in seconds."""

    target: Target
    workload: Workload
    connections: int
    rate: float | None
    """Messages per second over all connections; None is the closed loop."""
    duration: float | None
    messages: int | None
    """How many messages are measured; either this or `duration` is None."""
    warmup: float
    drain: float
    """How long to wait for the last answers."""
    window: int
    """Unanswered messages of a connection in the closed loop."""
    verify: bool
    compression: bool
    """Offer permessage-deflate."""
    reconnect: bool
    """Reopen lost connections."""
    awake: bool
    """The open loop does not sleep when the next message is due within milliseconds."""
    processes: int
    loop: str

    def share(self, total: int, number: int) -> int:
        """The share of process `number` in `total`."""
        return total // self.processes + (number < total % self.processes)

    def dumps(self) -> str:
        """The plan as a line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def loads(cls, line: str | bytes) -> Plan:
        """The plan of such a line."""
        fields: dict[str, Any] = json.loads(line)
        target, workload = Target(**fields.pop("target")), Workload(**fields.pop("workload"))
        return cls(target=target, workload=workload, **fields)

"""Types of the receiving half of WSTransport; what each member means is in the docstrings of reader.pyx."""

from typing import final

from typing_extensions import disjoint_base

from wsfast._engine.frames.writer import FrameWriter
from wsfast._engine.message_info import WSMessageInfo

@final
class Lent:
    """Memory for one read of a transport that is not wsfast's own."""

@disjoint_base
class FrameReader(FrameWriter):
    @property
    def last_received(self) -> float: ...
    @property
    def last_message(self) -> WSMessageInfo | None: ...
    @property
    def _data_received(self) -> int: ...

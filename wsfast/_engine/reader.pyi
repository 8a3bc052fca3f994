"""Types of the receiving half of WSTransport; what each member means is in the docstrings of reader.pyx."""

from typing_extensions import disjoint_base

from wsfast._engine.writer import FrameWriter

@disjoint_base
class FrameReader(FrameWriter):
    @property
    def last_received(self) -> float: ...
    @property
    def _data_received(self) -> int: ...

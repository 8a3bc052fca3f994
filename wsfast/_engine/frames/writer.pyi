"""Types of the sending half of WSTransport; what each member means is in the docstrings of writer.pyx."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

from typing_extensions import Buffer, disjoint_base

from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.frames.link import Link

mask_kernel: str

@disjoint_base
class FrameWriter(Link):
    @property
    def write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def send(
        self,
        msg_type: WSMsgType | int,
        message: str | Buffer | None,
        fin: bool = True,
        rsv1: bool = False,
        rsv2: bool = False,
        rsv3: bool = False,
        compress: bool | None = None,
    ) -> None: ...
    def send_many(
        self,
        msg_type: WSMsgType | int,
        messages: Iterable[str | Buffer | None],
        compress: bool | None = None,
    ) -> None: ...
    def cork(self) -> AbstractContextManager[None]: ...
    def send_reuse_external_bytearray(
        self,
        msg_type: WSMsgType | int,
        buffer: bytearray,
        msg_offset: int,
        fin: bool = True,
        rsv1: bool = False,
        rsv2: bool = False,
        rsv3: bool = False,
    ) -> None: ...
    def send_ping(self, message: str | Buffer | None = None) -> None: ...
    def send_pong(self, message: str | Buffer | None = None) -> None: ...

"""A message as its fragments arrive, for recv_streaming()."""

from __future__ import annotations

import codecs
from typing import Any

from wsfast.exceptions import ConnectionClosed
from wsfast.sync._native import lib

__all__ = ["Fragments"]


class Fragments:
    """An iterator, not a generator: one that raised can go on."""

    def __init__(self, connection: Any, decode: bool | None) -> None:
        self._connection = connection
        self._decode = decode
        self._flags = lib.WST_VALIDATE if decode is False else 0
        self._begun = self._done = False
        # A fragment that is not given to the user yet.
        self._held: tuple[bool, bytes, bool] | None = None
        self._decoder: codecs.IncrementalDecoder | None = None

    def __iter__(self) -> Fragments:
        return self

    def __next__(self) -> str | bytes:
        if self._done:
            raise StopIteration
        if self._begun:
            return self._next()
        self._connection._begin_receiving("recv_streaming")
        try:
            return self._next()
        finally:
            if not self._begun:  # nothing was taken
                self._connection._receiving = False

    def _next(self) -> str | bytes:
        connection = self._connection
        if self._held is None:
            try:
                self._held = connection._receive_fragment(self._flags)
            except ConnectionClosed:
                self._end()
                raise
        text, data, fin = self._held
        if not self._begun:
            self._begun = True
            if text if self._decode is None else self._decode:
                self._decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            fragment: str | bytes = data if self._decoder is None else self._decoder.decode(data, fin)
        except UnicodeDecodeError as exc:
            self._end()
            connection._text_is_invalid(exc, text)
            raise  # never: that raises ConnectionClosed
        self._held = None
        if fin:
            # Before the user has the last fragment: who has got it need not ask for another.
            self._end()
        return fragment

    def _end(self) -> None:
        self._done = True
        self._connection._receiving = False

"""Fuzzing. frame.c and utf8.c are for libFuzzer (see Makefile); the modules here are for atheris.

A module is a target: ``check(data)`` raises if an invariant is broken by what `data` makes the server say. ``python -m
fuzz NAME`` runs it under atheris, and tests/project/test_fuzz.py replays the kept corpus and runs hypothesis on it.
"""

from __future__ import annotations

from collections.abc import Iterator


def cut(data: bytes, seed: int) -> Iterator[bytes]:
    """`data` in pieces: for seed 0 whole, for seed 1 byte by byte, else of 1 to 32 bytes."""
    if seed == 0:
        yield data
        return
    at = 0
    while at < len(data):
        size = 1
        if seed > 1:
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            size += seed >> 16 & 31
        yield data[at : at + size]
        at += size

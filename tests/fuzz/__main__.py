"""``python -m fuzz handshake [options of libFuzzer] [corpora]``, with tests/ on the path."""

from __future__ import annotations

import importlib
import sys

import atheris

TARGETS = ("connection", "handshake", "location", "negotiation", "tunnel")

if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
    sys.exit(f"usage: python -m fuzz {{{','.join(TARGETS)}}} [options of libFuzzer] [corpora]")
name = sys.argv.pop(1)
with atheris.instrument_imports(include=["wsfast", "fuzz", "websockets.headers", "websockets.extensions"]):
    target = importlib.import_module(f"fuzz.{name}")
atheris.Setup(sys.argv, target.check)
atheris.Fuzz()

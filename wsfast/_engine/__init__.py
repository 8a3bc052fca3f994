"""The engine: the code that runs once per frame, compiled. transport.pyx is its head, and says who owns what."""

from wsfast._engine import binding as binding  # first: it says clearly why the compiled modules do not load
from wsfast._engine.transport import WSListener as WSListener
from wsfast._engine.transport import WSTransport as WSTransport

"""The public names, for Cython programs: ``from wsfast cimport WSListener, WSTransport, WSFrame, WSMsgType``.

Subclass WSListener and override its cpdef methods: they are then called without Python in between, and so is
WSTransport.send_ptr(). Fields and methods that start with an underscore are the engine's own.
"""

from wsfast._engine.frames.frame cimport WSCloseCode, WSFrame, WSMsgType
from wsfast._engine.transport cimport WSListener, WSTransport

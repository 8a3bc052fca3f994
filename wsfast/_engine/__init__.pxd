# For programs that said `from wsfast._engine cimport ...` before `from wsfast cimport ...` was there.
from wsfast._engine.frames.frame cimport WSCloseCode, WSFrame, WSMsgType
from wsfast._engine.transport cimport WSListener, WSTransport

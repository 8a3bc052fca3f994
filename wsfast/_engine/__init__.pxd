# Programs of version 0.1 say `from wsfast._engine cimport ...`; `from wsfast cimport ...` is what the documentation says.
from wsfast._engine.frame cimport WSCloseCode, WSFrame, WSMsgType
from wsfast._engine.transport cimport WSListener, WSTransport

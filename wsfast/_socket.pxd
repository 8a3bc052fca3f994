from aiofastnet.transport cimport WritableTransport

from wsfast._reader cimport FrameReader


cdef class SocketTransport(WritableTransport):
    cdef:
        FrameReader _reader
        bytearray _unsent           # what the kernel did not take yet
        bint _write_eof

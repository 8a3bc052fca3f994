from libc.stdint cimport int64_t, uint8_t

from wsfast._engine.frames.memory cimport ReadBuffer


# The bits above the opcode in the first byte of a frame (RFC 6455 section 5.2).
cdef extern from "frame.h":
    enum:
        FIN "WSF_FIN_BIT"
        RSV1 "WSF_RSV1_BIT"
        RSV2 "WSF_RSV2_BIT"
        RSV3 "WSF_RSV3_BIT"

    ctypedef enum WSMsgType "int":
        CONTINUATION "WSF_CONTINUATION"
        TEXT "WSF_TEXT"
        BINARY "WSF_BINARY"
        CLOSE "WSF_CLOSE"
        PING "WSF_PING"
        PONG "WSF_PONG"


cdef enum WSCloseCode:
    NO_INFO = 0
    OK = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    ABNORMAL_CLOSURE = 1006
    INVALID_TEXT = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    MANDATORY_EXTENSION = 1010
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013
    BAD_GATEWAY = 1014


# A received frame as C sees it. Cython code reads these fields; Python code sees them through WSFrame's properties.
cdef class FrameFields:
    cdef:
        # Keeps payload_ptr valid for as long as the frame lives.
        ReadBuffer buffer
        char *payload_ptr
        Py_ssize_t payload_size
        # Bytes that were already received behind this frame.
        Py_ssize_t tail_size
        WSMsgType msg_type
        uint8_t fin
        uint8_t rsv1
        uint8_t rsv2
        uint8_t rsv3
        # When the read that completed the frame returned, and when the kernel had received its bytes, in nanoseconds of
        # CLOCK_MONOTONIC; 0 unless stamps were asked for.
        int64_t recv_time_ns
        int64_t kernel_time_ns


cdef class WSFrame(FrameFields):
    cpdef bytes get_payload_as_bytes(self)
    cpdef str get_payload_as_utf8_text(self)
    cpdef str get_payload_as_ascii_text(self)
    cpdef object get_payload_as_memoryview(self)

    cpdef object get_close_code(self)
    cpdef bytes get_close_message(self)
    cpdef str get_close_reason(self)


# A read-only view of bytes in a read buffer, which it keeps.
cdef object view_of(ReadBuffer buffer, const char *data, Py_ssize_t size)
# The opcode that Python code gave as a WSMsgType; TypeError or ValueError if it is none.
cdef int opcode_of(msg_type) except -1

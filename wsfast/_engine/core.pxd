"""The C core as Cython sees it. This file only mirrors wsfast/core/*.h; the contracts are written there."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "frame.h" nogil:
    enum:
        WSF_CONTINUATION
        WSF_TEXT
        WSF_BINARY
        WSF_CLOSE
        WSF_PING
        WSF_PONG
        WSF_FIN_BIT
        WSF_RSV1_BIT
        WSF_RSV_BITS
        WSF_OPCODE_BITS
        WSF_CONTROL_BIT
        WSF_MAX_CONTROL
        WSF_MAX_HEADER

    ctypedef enum wsf_status:
        WSF_INCOMPLETE
        WSF_FRAME
        WSF_PART
        WSF_OVER
        WSF_ERR_TOO_BIG
        WSF_ERR_CLOSE_CODE
        WSF_ERR_CLOSE_TEXT
        WSF_ERR_TEXT

    ctypedef struct wsf_decoder:
        uint64_t max_payload
        uint8_t rsv_allowed
        uint8_t in_message
        uint8_t encoded

    ctypedef struct wsf_header:
        uint64_t payload_len
        uint8_t header_len
        uint8_t opcode
        uint8_t fin
        uint8_t rsv

    wsf_status wsf_peek_header(const uint8_t *p, size_t n, wsf_header *h)
    uint16_t wsf_status_close_code(wsf_status s)
    size_t wsf_header_size(uint64_t n)
    size_t wsf_encode_header(uint8_t *dst, uint8_t first_byte, uint64_t n, uint32_t key)
    bint wsf_close_code_valid(unsigned code)


cdef extern from "mask.h" nogil:
    ctypedef void (*wsf_mask_fn)(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key)
    ctypedef struct wsf_mask_kernel:
        const char *name
        wsf_mask_fn fn
    const wsf_mask_kernel *wsf_mask_best()
    size_t wsf_encode_frame(
        wsf_mask_fn mask, uint8_t *dst, uint8_t first_byte, const uint8_t *payload, size_t n, uint32_t key)


cdef extern from "utf8.h" nogil:
    ctypedef struct wsf_utf8:
        uint32_t state
    bint wsf_is_text(const uint8_t *p, size_t n)
    bint wsf_is_ascii(const uint8_t *p, size_t n)


cdef extern from "message.h" nogil:
    enum:
        WSF_CLOSING_SLACK
        WSF_CLOSING_PATIENCE

    ctypedef struct wsf_message:
        wsf_decoder decoder
        uint64_t max_message
        uint64_t max_frame
        uint64_t size
        wsf_utf8 text
        uint8_t opcode
        uint8_t whole
        uint8_t inflates
        uint8_t over

    ctypedef struct wsf_close:
        uint16_t code
        uint8_t reason_size
        const uint8_t *reason

    void wsf_message_limit(wsf_message *m, uint64_t max_message, uint64_t max_frame)
    wsf_status wsf_message_next(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h)
    wsf_status wsf_message_receive(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h)
    wsf_status wsf_message_content(wsf_message *m, const uint8_t *p, size_t n, bint fin)
    void wsf_message_forget(wsf_message *m)
    wsf_status wsf_read_close(const uint8_t *payload, size_t n, wsf_close *c)
    size_t wsf_violation_reason(char *to, wsf_status s, unsigned code)


cdef extern from "entropy.h" nogil:
    int wsf_mask_key(uint32_t *key)


cdef extern from "clock.h" nogil:
    int64_t wsf_monotonic_ns()
    int64_t wsf_realtime_ns()

"""The rules that the core finds broken, as exceptions."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from wsfast._engine.core cimport (
    WSF_ERR_CLOSE_CODE,
    WSF_ERR_CLOSE_TEXT,
    WSF_ERR_TEXT,
    WSF_ERR_TOO_BIG,
    WSF_FRAME,
    WSF_MAX_CONTROL,
    wsf_close,
    wsf_header,
    wsf_message,
    wsf_message_content,
    wsf_peek_header,
    wsf_read_close,
    wsf_status,
    wsf_status_close_code,
    wsf_violation_reason,
)

from wsfast.exceptions import InvalidText, PayloadTooBig, ProtocolError


cdef enum:
    CONTROL_HEADER = 2  # its length is never extended

cdef str violation_reason(wsf_status status, const uint8_t *frame, Py_ssize_t size):
    cdef:
        char reason[WSF_MAX_CONTROL]
        wsf_close close
    close.code = 0
    if status == WSF_ERR_CLOSE_CODE:
        wsf_read_close(frame + CONTROL_HEADER, frame[1], &close)  # all of it is there
    return reason[:wsf_violation_reason(reason, status, close.code)].decode()


cdef object violation(const wsf_message *message, wsf_status status, const uint8_t *frame, Py_ssize_t size):
    cdef:
        wsf_header header
        bint has_header = wsf_peek_header(frame, size, &header) == WSF_FRAME  # or the verdict fell before
        const uint8_t *payload = frame + header.header_len if has_header else frame
    if status == WSF_ERR_TOO_BIG:
        return PayloadTooBig(
            header.payload_len if has_header else None, message.decoder.max_payload, message.size or None)
    size = min(size - header.header_len, <Py_ssize_t>header.payload_len) if has_header else 0  # of the payload
    if status == WSF_ERR_TEXT:
        return InvalidText.of_part(payload[:size], message.text.state != 0)
    if status == WSF_ERR_CLOSE_TEXT:
        return InvalidText.of_part(payload[2:size], False)
    return ProtocolError(violation_reason(status, frame, size), wsf_status_close_code(status))


cdef int add_content(wsf_message *message, bytes data, bint fin) except -1:
    cdef wsf_status status = wsf_message_content(
        message, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), fin)
    if status == WSF_ERR_TEXT:
        raise InvalidText.of_part(data, message.text.state != 0)
    if status != WSF_FRAME:
        raise PayloadTooBig(PyBytes_GET_SIZE(data), message.decoder.max_payload, message.size or None)
    return 0

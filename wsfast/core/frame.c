/*
 * The rules of a frame header, one after the other in the order of its bytes.
 *
 * A rule is broken once no continuation of the bytes could keep it. For the extended length that
 * means bounds: with some of its bytes missing it lies between the value with zeros in their place
 * and the value with ones. It is too big when the lower bound is, and too small for its form when
 * the upper bound is. So the verdict falls on the first byte that settles it, and no later byte
 * changes it.
 */
#include "frame.h"

/* The rule that the first byte alone breaks, or WSF_FRAME. */
static wsf_status check_first_byte(const wsf_decoder *d, uint8_t byte) {
    unsigned opcode = byte & WSF_OPCODE_BITS;
    unsigned rsv = byte & WSF_RSV_BITS;
    int fin = (byte & WSF_FIN_BIT) != 0;
    int starts_message = opcode == WSF_TEXT || opcode == WSF_BINARY;

    /* 5.2: RSV bits are 0 unless negotiated. RFC 7692 section 6: only on a message's first frame */
    if (rsv & ~(starts_message ? (unsigned)d->rsv_allowed : 0U))
        return WSF_ERR_RSV;

    /* 5.2: opcodes 3-7 and B-F are reserved */
    if ((opcode > WSF_BINARY && opcode < WSF_CLOSE) || opcode > WSF_PONG)
        return WSF_ERR_OPCODE;

    /* 5.5: control frames are never fragmented */
    if ((opcode & WSF_CONTROL_BIT) && !fin)
        return WSF_ERR_CONTROL_FRAGMENTED;

    /* 5.4: a message ends before the next begins; only it can be continued */
    if (opcode == WSF_CONTINUATION && !d->in_message)
        return WSF_ERR_CONTINUATION;
    if (starts_message && d->in_message)
        return WSF_ERR_INTERLEAVED;

    return WSF_FRAME;
}

/* The rule that the 7-bit length of a control frame breaks, or WSF_FRAME. */
static wsf_status check_control(unsigned opcode, unsigned length) {
    /* 5.5: at most 125 bytes, hence never an extended length */
    if (length > WSF_MAX_CONTROL)
        return WSF_ERR_CONTROL_LENGTH;

    /* 5.5.1: the body of a CLOSE, if any, starts with a code of two bytes */
    if (opcode == WSF_CLOSE && length == 1)
        return WSF_ERR_CLOSE_LENGTH;

    return WSF_FRAME;
}

/*
 * Reads the extended length of `size` bytes at p, of which `have` have arrived, into *length. It
 * must be at least `minimum`, or a shorter form would have done (5.2: "the minimal number of bytes
 * MUST be used").
 */
static wsf_status read_extended(const uint8_t *p, size_t size, size_t have, uint64_t minimum,
                                uint64_t maximum, uint64_t *length) {
    uint64_t low = 0;
    uint64_t high = 0;
    for (size_t i = 0; i < size; i++) {
        low = low << 8 | (i < have ? p[i] : 0x00);
        high = high << 8 | (i < have ? p[i] : 0xFF);
    }

    /* 5.2: "the most significant bit MUST be 0" */
    if (low >> 63)
        return WSF_ERR_LENGTH_SIGN;
    if (high < minimum)
        return WSF_ERR_LENGTH_NOT_MINIMAL;
    /* 10.4: implementation-specific limits */
    if (low > maximum)
        return WSF_ERR_TOO_BIG;

    *length = low;
    return have < size ? WSF_INCOMPLETE : WSF_FRAME;
}

wsf_status wsf_decode_header_slow(const wsf_decoder *d, const uint8_t *p, size_t n, wsf_header *h) {
    if (n < 1)
        return WSF_INCOMPLETE;
    wsf_status status = check_first_byte(d, p[0]);
    if (status != WSF_FRAME)
        return status;

    if (n < 2)
        return WSF_INCOMPLETE;
    /* 5.1: a server does not mask */
    if (p[1] & WSF_MASK_BIT)
        return WSF_ERR_MASKED;

    unsigned opcode = p[0] & WSF_OPCODE_BITS;
    uint64_t length = p[1] & WSF_LENGTH_BITS;
    int encoded = opcode == WSF_CONTINUATION ? d->encoded : p[0] & WSF_RSV1_BIT;
    uint64_t maximum = encoded ? d->max_encoded : d->max_payload;
    size_t extended = 0;
    if (opcode & WSF_CONTROL_BIT) {
        status = check_control(opcode, (unsigned)length);
    } else if (length == WSF_LENGTH_16) {
        extended = n - 2 < 2 ? n - 2 : 2;
        status = read_extended(p + 2, 2, extended, WSF_LENGTH_16, maximum, &length);
    } else if (length == WSF_LENGTH_64) {
        extended = n - 2 < 8 ? n - 2 : 8;
        status = read_extended(p + 2, 8, extended, UINT16_MAX + 1, maximum, &length);
    } else if (length > maximum) {
        status = WSF_ERR_TOO_BIG; /* 10.4 */
    }
    if (status != WSF_FRAME)
        return status;

    h->payload_len = length;
    h->header_len = (uint8_t)(2 + extended);
    h->opcode = (uint8_t)opcode;
    h->fin = (p[0] & WSF_FIN_BIT) != 0;
    h->rsv = p[0] & WSF_RSV_BITS;
    return WSF_FRAME;
}

wsf_status wsf_peek_header(const uint8_t *p, size_t n, wsf_header *h) {
    wsf_decoder any = {UINT64_MAX, UINT64_MAX, WSF_RSV_BITS, 0, 0};
    any.in_message = n > 0 && (p[0] & WSF_OPCODE_BITS) == WSF_CONTINUATION;
    return wsf_decode_header_slow(&any, p, n, h);
}

uint16_t wsf_status_close_code(wsf_status s) {
    if (s >= WSF_INCOMPLETE)
        return 0;
    /* 7.4.1: message too big, invalid frame payload data, protocol error */
    return s == WSF_ERR_TOO_BIG ? 1009 : s == WSF_ERR_TEXT || s == WSF_ERR_CLOSE_TEXT ? 1007 : 1002;
}

const char *wsf_status_reason(wsf_status s) {
    switch (s) {
    case WSF_INCOMPLETE:
    case WSF_FRAME:
    case WSF_PART:
    case WSF_OVER:
        break;
    case WSF_ERR_RSV:
        return "a reserved bit is set that no extension has negotiated for this frame";
    case WSF_ERR_OPCODE:
        return "the opcode is reserved";
    case WSF_ERR_MASKED:
        return "a frame from the server is masked";
    case WSF_ERR_CONTROL_FRAGMENTED:
        return "a control frame is fragmented";
    case WSF_ERR_CONTROL_LENGTH:
        return "a control frame has more than 125 bytes of payload";
    case WSF_ERR_LENGTH_NOT_MINIMAL:
        return "the payload length is not encoded in the fewest bytes";
    case WSF_ERR_LENGTH_SIGN:
        return "the top bit of the 64-bit payload length is set";
    case WSF_ERR_CONTINUATION:
        return "a continuation frame continues no message";
    case WSF_ERR_INTERLEAVED:
        return "a new message starts inside an unfinished one";
    case WSF_ERR_TOO_BIG:
        return "a frame is larger than the receiver's limit";
    case WSF_ERR_CLOSE_LENGTH:
        return "a close frame has a payload of one byte, which is no close code";
    case WSF_ERR_CLOSE_CODE:
        return "invalid close code";
    case WSF_ERR_CLOSE_TEXT:
        return "the reason of a close frame is not UTF-8";
    case WSF_ERR_TEXT:
        return "a text message is not UTF-8";
    }
    return "";
}

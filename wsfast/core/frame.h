/*
 * Frame headers of RFC 6455 section 5.2, as a client meets them: it reads unmasked headers and
 * writes masked ones.
 *
 *      0               1               2 .. 3, or 2 .. 9        then 4 bytes
 *     +-+-+-+-+-------+-+-------------+ - - - - - - - - - - - + - - - - - - - - +
 *     |F|R|R|R| opcode|M| length      | length, if 126 or 127 | key, if M is set |
 *     |I|S|S|S|  (4)  |A|     (7)     | 16 or 64 bits,        |                  |
 *     |N|V|V|V|       |S|             | most significant      |                  |
 *     | |1|2|3|       |K|             | byte first            |                  |
 *     +-+-+-+-+-------+-+-------------+ - - - - - - - - - - - + - - - - - - - - +
 *
 * Decoding is a pure function of the available bytes and three facts about the connection. Decoding
 * a partial header changes no state: the caller tries again with more bytes, and each attempt reads
 * at most nine bytes again. The state that spans frames (is a message open?) changes only when the
 * caller takes a frame, in wsf_decoder_advance.
 *
 * Nothing here allocates, blocks, or owns memory. Every function is reentrant, so any thread may
 * call it. A wsf_decoder belongs to one connection, and only one thread at a time may touch it.
 */
#ifndef WSF_FRAME_H
#define WSF_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Opcodes, RFC 6455 section 11.8. 0x8 is the bit that makes a frame a control frame. */
enum {
    WSF_CONTINUATION = 0x0,
    WSF_TEXT = 0x1,
    WSF_BINARY = 0x2,
    WSF_CLOSE = 0x8,
    WSF_PING = 0x9,
    WSF_PONG = 0xA,
};

/* The fields of the first two bytes of a header; two values that announce a longer length. */
enum {
    WSF_FIN_BIT = 0x80,
    WSF_RSV1_BIT = 0x40, /* the first frame of a compressed message, RFC 7692 section 6 */
    WSF_RSV2_BIT = 0x20,
    WSF_RSV3_BIT = 0x10,
    WSF_RSV_BITS = 0x70,
    WSF_OPCODE_BITS = 0x0F,
    WSF_CONTROL_BIT = 0x08,
    WSF_MASK_BIT = 0x80,
    WSF_LENGTH_BITS = 0x7F,
    WSF_LENGTH_16 = 126,
    WSF_LENGTH_64 = 127,
};

#define WSF_MAX_CONTROL 125 /* payload of a control frame, RFC 6455 section 5.5 */
#define WSF_MAX_HEADER 14   /* 2 + 8 + 4: a masked header at its longest */

typedef enum wsf_status {
    WSF_INCOMPLETE = 0,              /* no violation so far: call again with more bytes */
    WSF_FRAME = 1,                   /* the header is complete and legal */
    WSF_PART = 2,                    /* so it is, but payload is missing (message.h) */
    WSF_OVER = 3,                    /* nothing that arrives has a meaning any more (message.h) */
    WSF_ERR_RSV = -1,                /* a reserved bit that no negotiated extension uses */
    WSF_ERR_OPCODE = -2,             /* a reserved opcode */
    WSF_ERR_MASKED = -3,             /* a masked frame from a server */
    WSF_ERR_CONTROL_FRAGMENTED = -4, /* a control frame without FIN */
    WSF_ERR_CONTROL_LENGTH = -5,     /* a control frame over 125 bytes */
    WSF_ERR_LENGTH_NOT_MINIMAL = -6, /* a length that is encoded in too many bytes */
    WSF_ERR_LENGTH_SIGN = -7,        /* a 64-bit length with its top bit set */
    WSF_ERR_CONTINUATION = -8,       /* a CONTINUATION without an unfinished message */
    WSF_ERR_INTERLEAVED = -9,        /* TEXT or BINARY inside an unfinished message */
    WSF_ERR_TOO_BIG = -10,           /* a data frame over the decoder's limit, or its message */
    WSF_ERR_CLOSE_LENGTH = -11,      /* a CLOSE with a payload of one byte: half a close code */
    WSF_ERR_CLOSE_CODE = -12,        /* a CLOSE with a code that must not travel (message.h) */
    WSF_ERR_CLOSE_TEXT = -13,        /* a CLOSE with a reason that is not UTF-8 (message.h) */
    WSF_ERR_TEXT = -14,              /* a text message that is not UTF-8 (message.h) */
} wsf_status;

/* The decoder's state between frames. The caller initialises it and may change its limits. */
typedef struct wsf_decoder {
    uint64_t max_payload; /* of a data frame, inclusive; control frames have their own limit */
    uint64_t max_encoded; /* as max_payload, or more: of a message that began with RSV1 */
    uint8_t rsv_allowed;  /* the WSF_RSV_BITS that a negotiated extension may set */
    uint8_t in_message;   /* 1 while a fragmented message is open */
    uint8_t encoded;      /* 1 if the open message began with RSV1: an extension encoded it */
} wsf_decoder;

/* A decoded header. The frame is header_len + payload_len bytes long. */
typedef struct wsf_header {
    uint64_t payload_len;
    uint8_t header_len; /* 2, 4 or 10 */
    uint8_t opcode;
    uint8_t fin; /* 0 or 1 */
    uint8_t rsv; /* WSF_RSV_BITS, in place as on the wire */
} wsf_header;

/* The close code that answers a violation (RFC 6455 section 7.4.1); 0 if s is no violation. */
uint16_t wsf_status_close_code(wsf_status s);

/*
 * One English sentence about a violation, short enough to be a close reason (123 bytes); "" if s is
 * no violation. A static string.
 */
const char *wsf_status_reason(wsf_status s);

/* wsf_decode_header without the fast path: all headers, all checks. Same contract. */
wsf_status wsf_decode_header_slow(const wsf_decoder *d, const uint8_t *p, size_t n, wsf_header *h);

/*
 * Decodes the header if it is as nearly every one of a feed: of a whole data message, unmasked,
 * with a length of 7 or 16 bits. Returns 0 for whatever differs in any way, and for every
 * violation.
 */
static inline int wsf_decode_common(const wsf_decoder *d, const uint8_t *p, size_t n,
                                    wsf_header *h) {
    if (n < 4 || p[1] > WSF_LENGTH_16 || d->in_message)
        return 0;
    unsigned known = p[0] & ~(unsigned)d->rsv_allowed;
    int extended = p[1] == WSF_LENGTH_16;
    unsigned length = extended ? (unsigned)p[2] << 8 | p[3] : p[1];
    if ((known != (WSF_FIN_BIT | WSF_TEXT) && known != (WSF_FIN_BIT | WSF_BINARY)) ||
        (length >= WSF_LENGTH_16) != extended || length > d->max_payload)
        return 0;
    h->payload_len = length;
    h->header_len = extended ? 4 : 2;
    h->opcode = p[0] & WSF_OPCODE_BITS;
    h->fin = 1;
    h->rsv = p[0] & WSF_RSV_BITS;
    return 1;
}

/*
 * Decodes the header of a server's frame from the n bytes at p that have arrived so far. It does
 * not read bytes behind the header. Returns
 *
 *   WSF_FRAME       *h is filled in,
 *   WSF_INCOMPLETE  the decision needs more bytes,
 *   WSF_ERR_...     every header that starts with these bytes violates this rule. So an illegal
 *                   first byte is reported with n == 1, and a length over the limit before its
 *                   last byte.
 *
 * *h changes only with WSF_FRAME. *d never changes: the caller calls wsf_decoder_advance when it
 * takes the frame.
 */
static inline wsf_status wsf_decode_header(const wsf_decoder *d, const uint8_t *p, size_t n,
                                           wsf_header *h) {
    return wsf_decode_common(d, p, n, h) ? WSF_FRAME : wsf_decode_header_slow(d, p, n, h);
}

/*
 * As wsf_decode_header, for a caller that asks how long the announced frame is, and not whether the
 * connection may receive it.
 */
wsf_status wsf_peek_header(const uint8_t *p, size_t n, wsf_header *h);

/*
 * Records that the caller took the frame with this header, which d decoded. A control frame may
 * come between the fragments of a message, and leaves the message open (RFC 6455 section 5.4).
 */
static inline void wsf_decoder_advance(wsf_decoder *d, const wsf_header *h) {
    if (h->opcode & WSF_CONTROL_BIT)
        return;
    if (h->opcode != WSF_CONTINUATION)
        d->encoded = (h->rsv & WSF_RSV1_BIT) != 0;
    d->in_message = !h->fin;
}

/* The size of the masked header of a frame with n bytes of payload: 6, 8 or 14. */
static inline size_t wsf_header_size(uint64_t n) {
    return n < WSF_LENGTH_16 ? 2 + 4 : n <= UINT16_MAX ? 4 + 4 : 10 + 4;
}

/*
 * Writes the masked header of a frame with n < 2^63 bytes of payload to dst, and returns the size
 * of that header. dst has room for wsf_header_size(n) bytes at any alignment. first_byte contains
 * FIN, RSV bits and opcode; the caller guarantees that they are legal. The bytes of key are written
 * in memory order, which wsf_mask_fn uses too.
 */
static inline size_t wsf_encode_header(uint8_t *dst, uint8_t first_byte, uint64_t n, uint32_t key) {
    size_t at = 2;
    dst[0] = first_byte;
    if (n < WSF_LENGTH_16) {
        dst[1] = (uint8_t)(WSF_MASK_BIT | n);
    } else if (n <= UINT16_MAX) {
        dst[1] = WSF_MASK_BIT | WSF_LENGTH_16;
        dst[at++] = (uint8_t)(n >> 8);
        dst[at++] = (uint8_t)n;
    } else {
        dst[1] = WSF_MASK_BIT | WSF_LENGTH_64;
        for (int shift = 56; shift >= 0; shift -= 8)
            dst[at++] = (uint8_t)(n >> shift);
    }
    memcpy(dst + at, &key, sizeof key);
    return at + sizeof key;
}

/*
 * 1 if a CLOSE frame may contain this code, 0 if not. RFC 6455 section 7.4 and its IANA registry:
 * 1000-1014 without 1004 (reserved) and 1005, 1006 (for reporting only, like 1015); 3000-3999 for
 * registered libraries, 4000-4999 for private use.
 */
static inline int wsf_close_code_valid(unsigned code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

#endif

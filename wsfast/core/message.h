/*
 * The rules that span frames (RFC 6455 sections 5.4 to 5.6, 7.1 and 8.1): sequence, limits, text as
 * far as it has arrived, and what a CLOSE may say.
 *
 * The reader of a connection asks two questions about the bytes that have arrived, in turn:
 *
 *     wsf_message_next   Is there a whole legal frame? If its payload is incomplete, is the part
 *                        that has arrived legal?
 *     wsf_message_take   The frame at the front is taken. What does that make of its message?
 *
 * Between the two the reader may do what it likes with the frame, and fail: it may ask again, and
 * gets the same answer. After a violation, and after a CLOSE, nothing that arrives has a meaning:
 * the answer is WSF_OVER.
 *
 * Most frames are whole messages that are not compressed. They cost a few compares, inline, and
 * only their lengths are judged: a caller that makes a str of the text checks it meanwhile. Only
 * the caller knows the content of a compressed message, because it inflates: wsf_message_content.
 *
 * Nothing here allocates, blocks, or owns memory. A wsf_message belongs to one connection, and one
 * thread at a time may touch it.
 */
#ifndef WSF_MESSAGE_H
#define WSF_MESSAGE_H

#include "frame.h"
#include "utf8.h"

/*
 * While a connection closes, the server's CLOSE may lie behind messages that no user takes. So
 * a reader whose queue is full reads on for WSF_CLOSING_SLACK bytes, as many as the default limit
 * of a message. Then it gives its user WSF_CLOSING_PATIENCE milliseconds to take a message, and if
 * none was taken it calls wsf_message_forget and drops the bytes that come.
 */
enum {
    WSF_CLOSING_SLACK = 1048576,
    WSF_CLOSING_PATIENCE = 250,
};

/*
 * The memory of a connection: what it has received so far. Zero-initialise it, set `whole`,
 * `inflates` and decoder.rsv_allowed, then call wsf_message_limit. Callers read the other fields.
 */
typedef struct wsf_message {
    wsf_decoder decoder;  /* its limits are what is left for the next frame */
    uint64_t max_message; /* bytes of a message, inflated */
    uint64_t max_frame;   /* bytes of a frame, inflated */
    uint64_t size;        /* of the open message so far, inflated; 0 if none is open */
    uint64_t ahead;       /* bytes that were checked of the payload of an incomplete frame */
    wsf_utf8 text;        /* of the open message, in the frames that were complete */
    wsf_utf8 text_ahead;  /* and of the incomplete frame */
    uint8_t opcode;       /* WSF_TEXT or WSF_BINARY: the kind of the open message */
    uint8_t whole;        /* 1: the rules of messages apply; 0: those of single frames do */
    uint8_t inflates;     /* 1: the caller inflates messages that begin with RSV1 */
    uint8_t over;         /* 1: nothing that arrives has a meaning any more */
} wsf_message;

/*
 * Sets the limits, inclusive, and applies them to the next frame. A message that the caller
 * inflates is limited by what it becomes, and a frame of it may be somewhat longer as it travels:
 * what does not compress grows, by an eighth at most unless the server is wasteful.
 */
void wsf_message_limit(wsf_message *m, uint64_t max_message, uint64_t max_frame);

/* The parts of the two questions that are not inline. */
wsf_status wsf_message_next_slow(wsf_message *m, const uint8_t *p, size_t n, const wsf_header *h,
                                 wsf_status status);
wsf_status wsf_message_take_slow(wsf_message *m, const wsf_header *h, const uint8_t *payload);
wsf_status wsf_message_receive_slow(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h);

/*
 * Judges the n bytes at p, all that has arrived behind the last frame that was taken. Returns
 *
 * WSF_FRAME: a legal frame lies there, its payload included; *h is filled in.
 *
 * WSF_PART: a legal header does, and the received part of the payload is legal; *h is filled in.
 *
 * WSF_INCOMPLETE: not even a header is complete.
 *
 * WSF_OVER: there is nothing to be read any more.
 *
 * WSF_ERR_...: this rule is broken; from now on the answer is WSF_OVER.
 *
 * Text that is wrong fails with the byte that makes it wrong (RFC 6455 section 8.1), not when the
 * server pleases to send the rest of its frame: a look ahead, in a validator of its own. No byte is
 * checked twice, however small the pieces are. When the frame is complete, wsf_message_take checks
 * it as if nothing had been.
 */
static inline wsf_status wsf_message_next(wsf_message *m, const uint8_t *p, size_t n,
                                          wsf_header *h) {
    wsf_status status = wsf_decode_header(&m->decoder, p, n, h);
    if (status == WSF_FRAME && h->payload_len <= n - h->header_len && !m->over)
        return WSF_FRAME;
    return wsf_message_next_slow(m, p, n, h, status);
}

/*
 * Takes the frame that wsf_message_next found. Returns WSF_FRAME, or the rule that its payload
 * breaks; nothing follows that. If the message is one that the caller
 * inflates, and it has several frames, the caller then tells wsf_message_content what the payload
 * was inflated to: decoder.max_payload bytes at most.
 */
static inline wsf_status wsf_message_take(wsf_message *m, const wsf_header *h,
                                          const uint8_t *payload) {
    m->ahead = 0;
    if (h->opcode < WSF_CLOSE && h->fin && !m->decoder.in_message)
        return WSF_FRAME;
    return wsf_message_take_slow(m, h, payload);
}

/*
 * Both in one, for a caller that has nothing to do in between: WSF_FRAME is a frame that was taken.
 * If its payload breaks a rule, it lies at p as far as *h says.
 */
static inline wsf_status wsf_message_receive(wsf_message *m, const uint8_t *p, size_t n,
                                             wsf_header *h) {
    if (wsf_decode_common(&m->decoder, p, n, h) && h->payload_len <= n - h->header_len &&
        !m->over) {
        m->ahead = 0; /* no more is to be done for such a frame by wsf_message_take */
        return WSF_FRAME;
    }
    return wsf_message_receive_slow(m, p, n, h);
}

/*
 * Judges the inflated payload of the frame that was taken last: the n bytes at p. `fin` says
 * whether the frame ends the message, whose kind is m->opcode. Returns WSF_FRAME, or the rule that
 * is broken; nothing follows that.
 */
wsf_status wsf_message_content(wsf_message *m, const uint8_t *p, size_t n, int fin);

/* Drops all that arrives from now on: single frames are still judged, messages are not. */
void wsf_message_forget(wsf_message *m);

/* The code and the reason in a CLOSE. */
typedef struct wsf_close {
    uint16_t code; /* 1005, which never travels, if there is none */
    uint8_t reason_size;
    const uint8_t *reason; /* UTF-8, in the payload */
} wsf_close;

/*
 * Reads the payload of a CLOSE, n <= WSF_MAX_CONTROL bytes. Returns WSF_FRAME, or the rule that it
 * breaks: then c->code alone is filled in.
 */
wsf_status wsf_read_close(const uint8_t *payload, size_t n, wsf_close *c);

/*
 * Writes wsf_status_reason(s) to `to`, which has room for WSF_MAX_CONTROL bytes, with the code
 * behind it if s is about a code, and a zero at the end; returns the length. It fits into a CLOSE.
 */
size_t wsf_violation_reason(char *to, wsf_status s, unsigned code);

#endif

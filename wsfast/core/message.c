/*
 * The rules of a message, frame by frame.
 *
 * Two limits hold for a message, that of its bytes and that of each frame. What is left of both is
 * kept in the decoder, so the header of the next frame is refused by itself, before its payload is
 * waited for.
 */
#include "message.h"

/* Nothing follows a violation. */
static wsf_status violated(wsf_message *m, wsf_status status) {
    m->over = 1;
    return status;
}

/* The lengths that the next frame may have. */
static void limit_next(wsf_message *m) {
    uint64_t left = m->size < m->max_message ? m->max_message - m->size : 0;
    uint64_t limit = left < m->max_frame ? left : m->max_frame;
    uint64_t encoded = m->inflates ? limit + (limit >> 3) + 1024 : limit;
    m->decoder.max_payload = limit;
    m->decoder.max_encoded = encoded < limit ? UINT64_MAX : encoded;
}

void wsf_message_limit(wsf_message *m, uint64_t max_message, uint64_t max_frame) {
    m->max_message = max_message;
    m->max_frame = max_frame;
    limit_next(m);
}

/* 8.1: of a frame that is incomplete n bytes of payload have come. */
static wsf_status look_ahead(wsf_message *m, const wsf_header *h, const uint8_t *payload,
                             size_t n) {
    int goes_on = h->opcode == WSF_CONTINUATION;
    int encoded = goes_on ? m->decoder.encoded : h->rsv & WSF_RSV1_BIT;
    if (!m->whole || (encoded && m->inflates) || (goes_on ? m->opcode : h->opcode) != WSF_TEXT)
        return WSF_PART;
    if (m->ahead == 0)
        m->text_ahead = goes_on ? m->text : (wsf_utf8){0};
    if (!wsf_utf8_feed(&m->text_ahead, payload + m->ahead, n - (size_t)m->ahead))
        return WSF_ERR_TEXT;
    m->ahead = n;
    return WSF_PART;
}

wsf_status wsf_message_next_slow(wsf_message *m, const uint8_t *p, size_t n, const wsf_header *h,
                                 wsf_status status) {
    if (m->over)
        return WSF_OVER;
    if (status == WSF_FRAME)
        status = look_ahead(m, h, p + h->header_len, n - h->header_len);
    return status < 0 ? violated(m, status) : status;
}

wsf_status wsf_message_take_slow(wsf_message *m, const wsf_header *h, const uint8_t *payload) {
    if (h->opcode == WSF_CLOSE) {
        wsf_close unused;
        m->over = 1; /* 5.5.1: nothing is sent after a CLOSE */
        return wsf_read_close(payload, (size_t)h->payload_len, &unused);
    }
    if (h->opcode & WSF_CONTROL_BIT)
        return WSF_FRAME; /* 5.4: it may stand between the frames of a message */
    if (h->opcode != WSF_CONTINUATION)
        m->opcode = h->opcode;
    wsf_decoder_advance(&m->decoder, h);
    if (!m->whole || (m->decoder.encoded && m->inflates))
        return WSF_FRAME;
    return wsf_message_content(m, payload, (size_t)h->payload_len, h->fin);
}

wsf_status wsf_message_receive_slow(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h) {
    wsf_status status = wsf_message_next(m, p, n, h);
    return status == WSF_FRAME ? wsf_message_take(m, h, p + h->header_len) : status;
}

wsf_status wsf_message_content(wsf_message *m, const uint8_t *p, size_t n, int fin) {
    if (n > m->decoder.max_payload)
        return violated(m, WSF_ERR_TOO_BIG); /* 10.4 */

    /* 5.6: TEXT is UTF-8. A character may be split between frames, but not end with the message */
    if (m->opcode == WSF_TEXT) {
        wsf_utf8 text =
            m->text; /* which stays as it was before a violation, so that it can be explained */
        if (!wsf_utf8_feed(&text, p, n) || (fin && !wsf_utf8_complete(&text)))
            return violated(m, WSF_ERR_TEXT);
        m->text = text;
    }

    m->size = fin ? 0 : m->size + n;
    limit_next(m);
    return WSF_FRAME;
}

void wsf_message_forget(wsf_message *m) {
    m->whole = 0;
    m->size = 0;
    limit_next(m);
}

wsf_status wsf_read_close(const uint8_t *payload, size_t n, wsf_close *c) {
    c->code = 1005; /* 7.1.5: no code was received */
    c->reason = payload;
    c->reason_size = 0;
    if (n == 0)
        return WSF_FRAME;
    if (n == 1)
        return WSF_ERR_CLOSE_LENGTH; /* 5.5.1 */
    c->code = (uint16_t)(payload[0] << 8 | payload[1]);
    if (!wsf_close_code_valid(c->code))
        return WSF_ERR_CLOSE_CODE; /* 7.4 */
    if (!wsf_is_text(payload + 2, n - 2))
        return WSF_ERR_CLOSE_TEXT; /* 5.5.1 */
    c->reason = payload + 2;
    c->reason_size = (uint8_t)(n - 2);
    return WSF_FRAME;
}

size_t wsf_violation_reason(char *to, wsf_status s, unsigned code) {
    const char *reason = wsf_status_reason(s);
    size_t n = strlen(reason);
    memcpy(to, reason, n);
    if (s == WSF_ERR_CLOSE_CODE) {
        to[n++] = ' ';
        size_t digits = 1;
        for (unsigned rest = code; rest >= 10; rest /= 10)
            digits++;
        for (size_t i = n + digits; i-- > n; code /= 10)
            to[i] = (char)('0' + code % 10);
        n += digits;
    }
    to[n] = '\0';
    return n;
}

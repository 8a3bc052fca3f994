/*
 * The rules that span frames: in pieces, and against a reference that has the whole stream.
 *
 * Input: a byte that sets up the limits, a byte that seeds the pieces, then the stream. The
 * reference splits the stream into frames, joins the frames of each message, and only then asks
 * what is wrong with it; a compressed payload stands for what it becomes.
 */
#include "message.h"
#include "fuzz.h"

static const uint64_t limits[] = {0, 1, 5, 125, 126, 1000, 70000, UINT64_MAX};

static wsf_message set_up(uint8_t byte) {
    wsf_message m = {0};
    m.whole = 1;
    m.inflates = byte >> 7;
    m.decoder.rsv_allowed = m.inflates ? WSF_RSV1_BIT : 0;
    wsf_message_limit(&m, limits[byte & 7], limits[byte >> 3 & 7]);
    return m;
}

/* What became of a stream. */
typedef struct outcome {
    wsf_status status;
    size_t at;      /* where the frame begins that the verdict is about, or what is incomplete */
    size_t settled; /* bytes that had arrived when a rule was broken */
    size_t frames;
} outcome;

/* As a connection reads; `random` is 0 for byte by byte, each frame by two questions. */
static outcome in_pieces(wsf_message m, const uint8_t *p, size_t n, uint32_t random) {
    outcome o = {WSF_INCOMPLETE, 0, 0, 0};
    for (size_t have = 0; have < n && o.status >= 0 && o.status != WSF_OVER;) {
        have += random ? next_piece(&random, n - have) : 1;
        for (;;) {
            size_t left = have - o.at;
            uint8_t *bytes = exact_copy(p + o.at, left);
            wsf_header h;
            int open = m.decoder.in_message;
            o.status = random ? wsf_message_receive(&m, bytes, left, &h)
                              : wsf_message_next(&m, bytes, left, &h);
            if (o.status == WSF_PART)
                HOLDS(h.payload_len > left - h.header_len);
            if (o.status == WSF_FRAME) {
                HOLDS(h.payload_len <= left - h.header_len);
                int several = h.opcode < WSF_CLOSE && (!h.fin || open);
                size_t size = (size_t)h.payload_len;
                if (!random)
                    o.status = wsf_message_take(&m, &h, bytes + h.header_len);
                if (o.status == WSF_FRAME && several && m.inflates && m.decoder.encoded)
                    o.status = wsf_message_content(&m, bytes + h.header_len, size, h.fin);
                int encoded = m.inflates && h.rsv & WSF_RSV1_BIT;
                if (o.status == WSF_FRAME && h.opcode == WSF_TEXT && h.fin && !encoded &&
                    !wsf_is_text(bytes + h.header_len, size)) {
                    m.over = 1; /* as a caller does who makes a str of it */
                    o.status = WSF_ERR_TEXT;
                }
            }
            free(bytes);
            if (o.status != WSF_FRAME)
                break;
            HOLDS(m.size <= m.max_message && m.ahead == 0);
            HOLDS(m.decoder.in_message || m.size == 0);
            HOLDS(m.decoder.max_payload <= m.max_frame);
            o.at += h.header_len + (size_t)h.payload_len;
            o.frames++;
        }
        o.settled = have;
    }
    HOLDS(m.over == (o.status < 0 || o.status == WSF_OVER));
    if (m.over) {
        wsf_header h;
        HOLDS(wsf_message_next(&m, p, n, &h) == WSF_OVER);
    }
    return o;
}

/* Would the text be UTF-8 if other bytes followed, or if it ended? */
static int text_is_wrong(const uint8_t *p, size_t n, int ends) {
    wsf_utf8 v = {0};
    return !wsf_utf8_feed(&v, p, n) || (ends && !wsf_utf8_complete(&v));
}

/* The first rule that the stream breaks, by whole messages. */
static outcome by_messages(const wsf_message *m, const uint8_t *p, size_t n) {
    outcome o = {WSF_INCOMPLETE, 0, n, 0};
    uint8_t *message = exact_copy(p, n); /* never longer than the stream */
    size_t size = 0;
    int open = 0, text = 0, encoded = 0;
    while (o.at < n) {
        wsf_header h;
        o.status = wsf_peek_header(p + o.at, n - o.at, &h);
        if (o.status != WSF_FRAME)
            break;
        const uint8_t *payload = p + o.at + h.header_len;
        size_t have = n - o.at - h.header_len;
        int is_whole = h.payload_len <= have;
        size_t length = is_whole ? (size_t)h.payload_len : have;
        if (h.opcode == WSF_CLOSE) {
            wsf_close c;
            o.status = is_whole ? wsf_read_close(payload, length, &c) : WSF_PART;
            if (o.status == WSF_FRAME) {
                o.status = WSF_OVER;
                o.at += h.header_len + length;
                o.frames++;
            }
            break;
        }
        if (h.opcode < WSF_CLOSE) {
            int starts = h.opcode != WSF_CONTINUATION;
            if (starts == open) {
                o.status = open ? WSF_ERR_INTERLEAVED : WSF_ERR_CONTINUATION;
                break;
            }
            if (starts) {
                text = h.opcode == WSF_TEXT;
                encoded = h.rsv & WSF_RSV1_BIT && m->inflates;
                size = 0;
            }
            uint64_t left = m->max_message - size;
            uint64_t limit = left < m->max_frame ? left : m->max_frame;
            uint64_t longest = encoded && limit < UINT64_MAX / 2 ? limit + limit / 8 + 1024 : limit;
            int several = open || !h.fin;
            if (h.payload_len > longest || (is_whole && several && h.payload_len > limit)) {
                o.status = WSF_ERR_TOO_BIG;
                break;
            }
            memcpy(message + size, payload, length);
            int checked = text && (!encoded || (is_whole && several));
            if (checked && text_is_wrong(message, size + length, is_whole && h.fin)) {
                o.status = WSF_ERR_TEXT;
                break;
            }
            if (is_whole) {
                size = h.fin || !several ? 0 : size + length;
                open = !h.fin;
            }
        }
        if (!is_whole) {
            o.status = WSF_PART;
            break;
        }
        o.at += h.header_len + length;
        o.frames++;
        o.status = WSF_INCOMPLETE;
    }
    free(message);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 4096) /* byte by byte, each time in a copy of its own */
        return 0;
    wsf_message m = set_up(data[0]);
    const uint8_t *p = data + 2;
    size_t n = size - 2;
    outcome one = in_pieces(m, p, n, 0);
    outcome other = in_pieces(m, p, n, data[1] + 1U);
    HOLDS(one.status == other.status && one.frames == other.frames && one.at == other.at);
    HOLDS(one.settled <= other.settled);

    /* Which rule of headers is broken is the affair of frame.c, and which byte breaks it. */
    static const uint16_t of_headers = 1U << -WSF_ERR_RSV | 1U << -WSF_ERR_OPCODE |
                                       1U << -WSF_ERR_MASKED | 1U << -WSF_ERR_CONTROL_FRAGMENTED |
                                       1U << -WSF_ERR_CONTROL_LENGTH |
                                       1U << -WSF_ERR_LENGTH_NOT_MINIMAL |
                                       1U << -WSF_ERR_LENGTH_SIGN | 1U << -WSF_ERR_CLOSE_LENGTH;
    if (one.status < 0 && of_headers >> -one.status & 1)
        return 0;
    size_t settled = one.status < 0 ? one.settled : n;
    if (one.status < 0) /* not a byte late */
        HOLDS(by_messages(&m, p, settled - 1).status >= 0);
    outcome expected = by_messages(&m, p, settled);
    if (one.status == WSF_ERR_TOO_BIG || one.status == WSF_ERR_INTERLEAVED ||
        one.status == WSF_ERR_CONTINUATION) {
        /* The header need not be complete for these; completed by zeros it may break another. */
        HOLDS(expected.at == one.at && expected.frames == one.frames);
        HOLDS(expected.status == one.status || expected.status <= WSF_INCOMPLETE);
        return 0;
    }
    HOLDS(expected.status == one.status);
    HOLDS(expected.at == one.at && expected.frames == one.frames);
    return 0;
}

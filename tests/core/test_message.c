/*
 * The rules that span frames. Each row is what a server says, and which rule it breaks at which
 * byte. It is read whole, byte by byte, and in two parts split everywhere, from memory that ends at
 * a guard page: the frames, the verdict and the byte that settles it are the same.
 */
#include "check.h"
#include "message.h"

static guarded memory;

typedef struct reading {
    wsf_status status; /* of what is left */
    size_t taken;      /* bytes of whole frames */
    size_t settled;    /* bytes that had arrived when a rule was broken */
    size_t frames;
} reading;

static wsf_message receiver(uint64_t max_message, uint64_t max_frame, uint8_t inflates) {
    wsf_message m = {0};
    m.whole = 1;
    m.inflates = inflates;
    m.decoder.rsv_allowed = inflates ? WSF_RSV1_BIT : 0;
    wsf_message_limit(&m, max_message, max_frame);
    return m;
}

/* Takes every frame in the n bytes that have arrived, each by two questions or at_once. Payloads
 * are their own contents: nothing is inflated. */
static void read_frames(wsf_message *m, const uint8_t *stream, size_t n, int at_once, reading *r) {
    for (;;) {
        size_t left = n - r->taken;
        uint8_t *p = memory.end - left;
        if (left > 0)
            memcpy(p, stream + r->taken, left);
        wsf_header h;
        int open = m->decoder.in_message;
        r->status =
            at_once ? wsf_message_receive(m, p, left, &h) : wsf_message_next(m, p, left, &h);
        if (r->status == WSF_PART)
            CHECK(left >= h.header_len && left - h.header_len < h.payload_len);
        if (r->status == WSF_FRAME) {
            int several = h.opcode < WSF_CLOSE && (!h.fin || open);
            uint8_t *payload = p + h.header_len;
            if (!at_once)
                r->status = wsf_message_take(m, &h, payload);
            if (r->status == WSF_FRAME && several && m->inflates && m->decoder.encoded)
                r->status = wsf_message_content(m, payload, (size_t)h.payload_len, h.fin);
            int encoded = m->inflates && h.rsv & WSF_RSV1_BIT;
            if (r->status == WSF_FRAME && m->whole && h.opcode == WSF_TEXT && h.fin && !encoded &&
                !wsf_is_text(payload, (size_t)h.payload_len)) {
                m->over = 1; /* as a caller does who makes a str of it */
                r->status = WSF_ERR_TEXT;
            }
        }
        if (r->status != WSF_FRAME)
            break;
        r->taken += h.header_len + (size_t)h.payload_len;
        r->frames++;
    }
    r->settled = n;
}

/* `split`: 0 for byte by byte, else where the second part begins. */
static reading read_stream(wsf_message m, const uint8_t *stream, size_t n, size_t split) {
    reading r = {WSF_INCOMPLETE, 0, 0, 0};
    for (size_t have = split ? split : 1; have <= n; have = split ? n : have + 1) {
        read_frames(&m, stream, have, split > 0, &r);
        if (r.status < 0 || have == n)
            break;
    }
    CHECK(m.over == (r.status < 0 || r.status == WSF_OVER));
    if (r.status < 0) {
        wsf_header h;
        CHECK(wsf_message_next(&m, stream, n, &h) == WSF_OVER);
    }
    return r;
}

enum { MESSAGE = 10, FRAME = 8, DEFLATE = 1, PLAIN = 0 };

static void test_rules(void) {
    static const struct {
        int inflates;
        wsf_status expected;
        size_t settled; /* 0: no rule is broken */
        size_t frames;
        size_t n;
        const char *stream;
    } rows[] = {
#define ROW(inflates, expected, settled, frames, stream)                                           \
    {inflates, expected, settled, frames, sizeof stream - 1, stream}
        /* clang-format off */
        /* 5.4: sequence. Control frames stand between fragments, and leave the message open */
        ROW(PLAIN, WSF_INCOMPLETE, 0, 1, "\x82\x03" "abc"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 5, "\x02\x01" "a\x89\x01p\x00\x01" "b\x8A\x00\x80\x01" "c"),
        ROW(PLAIN, WSF_ERR_CONTINUATION, 1, 0, "\x80\x00"),
        ROW(PLAIN, WSF_ERR_CONTINUATION, 4, 1, "\x82\x01" "a\x00\x00"),
        ROW(PLAIN, WSF_ERR_CONTINUATION, 6, 2, "\x02\x01" "a\x80\x00\x80\x00"),
        ROW(PLAIN, WSF_ERR_INTERLEAVED, 4, 1, "\x02\x01" "a\x82\x00"),
        ROW(PLAIN, WSF_ERR_INTERLEAVED, 6, 2, "\x02\x01" "a\x89\x00\x01\x00"),
        /* 5.5.1: nothing follows a CLOSE, whatever it is */
        ROW(PLAIN, WSF_OVER, 0, 1, "\x88\x00"),
        ROW(PLAIN, WSF_OVER, 0, 1, "\x88\x02\x03\xE8\x82\x01" "a\xFF\xFF"),
        ROW(PLAIN, WSF_OVER, 0, 2, "\x01\x01" "a\x88\x00\x80\x01\xFF"),
        /* 5.5.1 and 7.4: what a CLOSE says */
        ROW(PLAIN, WSF_ERR_CLOSE_LENGTH, 2, 0, "\x88\x01\x03"),
        ROW(PLAIN, WSF_ERR_CLOSE_CODE, 4, 0, "\x88\x02\x03\xED"),
        ROW(PLAIN, WSF_ERR_CLOSE_CODE, 7, 0, "\x88\x05\x00\x00" "bye"),
        ROW(PLAIN, WSF_ERR_CLOSE_TEXT, 5, 0, "\x88\x03\x03\xE8\xFF"),
        ROW(PLAIN, WSF_ERR_CLOSE_TEXT, 5, 0, "\x88\x03\x03\xE8\xC3"),
        ROW(PLAIN, WSF_OVER, 0, 1, "\x88\x04\x03\xE8\xC3\xA9"),
        /* limits: of a frame 8, of a message 10, by the header */
        ROW(PLAIN, WSF_INCOMPLETE, 0, 1, "\x82\x08" "12345678"),
        ROW(PLAIN, WSF_ERR_TOO_BIG, 2, 0, "\x82\x09" "123456789"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 2, "\x02\x06" "123456\x80\x04" "7890"),
        ROW(PLAIN, WSF_ERR_TOO_BIG, 10, 1, "\x02\x06" "123456\x80\x05" "78901"),
        ROW(PLAIN, WSF_ERR_TOO_BIG, 15, 2, "\x02\x06" "123456\x00\x03" "789\x80\x02"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 4, "\x02\x06" "123456\x80\x04" "7890\x02\x08" "12345678\x80\x00"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 4, "\x02\x08" "12345678\x00\x02" "90\x89\x09" "ping ping\x80\x00"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 6, "\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x08" "12345678"),
        /* compressed: on the wire a frame may be an eighth and 1 KiB longer */
        ROW(DEFLATE, WSF_PART, 0, 0, "\xC2\x7E\x04\x09"),
        ROW(DEFLATE, WSF_ERR_TOO_BIG, 4, 0, "\xC2\x7E\x04\x0A"),
        ROW(DEFLATE, WSF_ERR_TOO_BIG, 2, 0, "\x82\x09"),
        ROW(DEFLATE, WSF_ERR_TOO_BIG, 11, 0, "\x42\x09" "123456789\x80\x00"),
        ROW(DEFLATE, WSF_INCOMPLETE, 0, 2, "\x42\x08" "12345678\x80\x02" "90"),
        ROW(DEFLATE, WSF_ERR_TOO_BIG, 15, 1, "\x42\x08" "12345678\x80\x03" "901"),
        ROW(DEFLATE, WSF_ERR_RSV, 5, 1, "\x42\x02" "12\xC0\x00"),
        /* 5.6 and 8.1: text fails with the byte that is wrong */
        ROW(PLAIN, WSF_ERR_TEXT, 4, 0, "\x81\x05" "a\xFF" "345"),
        ROW(PLAIN, WSF_ERR_TEXT, 6, 1, "\x01\x01\xC3\x80\x03" "a23"),
        ROW(PLAIN, WSF_ERR_TEXT, 10, 2, "\x01\x01\xC3\x89\x01p\x80\x03\xA9\xA9" "3"),
        ROW(PLAIN, WSF_ERR_TEXT, 3, 0, "\x01\x01\xFF\x80\x00"),
        ROW(PLAIN, WSF_ERR_TEXT, 5, 1, "\x01\x01\xC3\x80\x00"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 3, "\x01\x01\xC3\x00\x01\xA9\x80\x00"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 3, "\x01\x01\xE6\x00\x01\xB0\x80\x01\xB4"),
        ROW(PLAIN, WSF_INCOMPLETE, 0, 2, "\x02\x01\xFF\x80\x01\xFF"),
        ROW(PLAIN, WSF_PART, 0, 0, "\x82\x05\xFF\xFF"),
        ROW(PLAIN, WSF_PART, 0, 0, "\x89\x05\xFF\xFF"),
        ROW(PLAIN, WSF_PART, 0, 1, "\x01\x01\xC3\x89\x05\xFF\xFF"),
        ROW(PLAIN, WSF_PART, 0, 1, "\x81\x02\xC3\xA9\x81\x04\xC3\xA9\xC3"),
        /* a whole text is for its caller to check; so is what is compressed, until it is inflated
         */
        ROW(PLAIN, WSF_PART, 0, 0, "\x81\x02\xC3"),
        ROW(DEFLATE, WSF_PART, 0, 0, "\xC1\x03\xFF\xFF"),
        ROW(DEFLATE, WSF_PART, 0, 1, "\x41\x01" "a\x80\x03\xFF"),
        ROW(DEFLATE, WSF_ERR_TEXT, 7, 1, "\x41\x01" "a\x80\x02\xFF\xFF"),
        ROW(DEFLATE, WSF_ERR_TEXT, 3, 0, "\x01\x02\xFF\xFF"),
        /* clang-format on */
    };
    wsf_status seen = WSF_FRAME;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint8_t *stream = (const uint8_t *)rows[i].stream;
        wsf_message m = receiver(MESSAGE, FRAME, (uint8_t)rows[i].inflates);
        reading by_byte = read_stream(m, stream, rows[i].n, 0);
        if (by_byte.status != rows[i].expected || by_byte.frames != rows[i].frames)
            fprintf(stderr, "row %zu: %d after %zu bytes, %zu frames\n", i, by_byte.status,
                    by_byte.settled, by_byte.frames);
        CHECK(by_byte.status == rows[i].expected && by_byte.frames == rows[i].frames);
        if (rows[i].settled > 0 && by_byte.settled != rows[i].settled)
            fprintf(stderr, "row %zu: settled by byte %zu\n", i, by_byte.settled);
        CHECK(by_byte.settled == (rows[i].settled ? rows[i].settled : rows[i].n));
        for (size_t split = 1; split <= rows[i].n; split++) {
            reading r = read_stream(m, stream, rows[i].n, split);
            CHECK(r.status == by_byte.status && r.frames == by_byte.frames);
            CHECK(r.taken == by_byte.taken);
        }
        seen = rows[i].expected < seen ? rows[i].expected : seen;
    }
    CHECK(seen == WSF_ERR_TEXT);
}

/* Every limit, on its own and before the other. */
static void test_limits(void) {
    for (uint64_t max_message = 0; max_message < 6; max_message++) {
        for (uint64_t max_frame = 0; max_frame < 6; max_frame++) {
            for (uint8_t first = 0; first < 6; first++) {
                for (uint8_t second = 0; second < 6; second++) {
                    uint8_t stream[16] = {0x02, first};
                    size_t n = 2U + first;
                    stream[n++] = 0x80;
                    stream[n++] = second;
                    n += second;
                    int one = first <= max_frame && first <= max_message;
                    int two = second <= max_frame && first + second <= max_message;
                    wsf_message m = receiver(max_message, max_frame, 0);
                    reading r = read_stream(m, stream, n, 0);
                    CHECK(r.frames == (one ? two ? 2U : 1U : 0U));
                    CHECK((r.status == WSF_ERR_TOO_BIG) == !(one && two));
                }
            }
        }
    }
    wsf_message m = receiver(UINT64_MAX, UINT64_MAX, 1);
    CHECK(m.decoder.max_payload == UINT64_MAX && m.decoder.max_encoded == UINT64_MAX);
    m = receiver(1 << 20, 1000, 1);
    CHECK(m.decoder.max_payload == 1000 && m.decoder.max_encoded == 1000 + 125 + 1024);
    m = receiver(1 << 20, 1000, 0);
    CHECK(m.decoder.max_encoded == 1000);
    /* an inflated frame may be as long as the limit, and no longer */
    m = receiver(10, 8, 1);
    m.opcode = WSF_BINARY;
    CHECK(wsf_message_content(&m, (const uint8_t *)"12345678", 8, 0) == WSF_FRAME && m.size == 8);
    CHECK(m.decoder.max_payload == 2);
    CHECK(wsf_message_content(&m, (const uint8_t *)"90", 2, 1) == WSF_FRAME && m.size == 0);
    CHECK(wsf_message_content(&m, (const uint8_t *)"123456789", 9, 1) == WSF_ERR_TOO_BIG);
    CHECK(m.over);
}

/* Without messages only frames are judged: neither text nor the sum of fragments. */
static void test_frames_alone(void) {
    static const uint8_t stream[] = "\x01\x08\xFF"
                                    "2345678\x00\x08"
                                    "12345678\x80\x08"
                                    "1234567\xC3";
    wsf_message m = receiver(10, 8, 0);
    m.whole = 0;
    reading r = read_stream(m, stream, sizeof stream - 1, 0);
    CHECK(r.frames == 3 && r.status == WSF_INCOMPLETE);

    /* Forgetting may come in the middle of a message, and of a character. */
    m = receiver(10, 8, 0);
    r = (reading){WSF_INCOMPLETE, 0, 0, 0};
    read_frames(&m,
                (const uint8_t *)"\x01\x08"
                                 "1234567\xC3",
                10, 0, &r);
    CHECK(r.frames == 1 && m.size == 8);
    wsf_message_forget(&m);
    CHECK(m.size == 0 && m.decoder.max_payload == 8);
    r = read_stream(m,
                    (const uint8_t *)"\x00\x08"
                                     "12345678\x80\x01\xFF\x81\x01\xFF",
                    16, 0);
    CHECK(r.frames == 3 && r.status == WSF_INCOMPLETE);
    r = read_stream(m, (const uint8_t *)"\x82\x00", 2, 0);
    CHECK(r.status == WSF_ERR_INTERLEAVED);
}

/* However many fragments, each byte of a long frame is looked at once: a second look would fail. */
static void test_no_byte_is_checked_twice(void) {
    wsf_message m = receiver(1000, 1000, 0);
    uint8_t *p = memory.end - 8;
    wsf_header h;
    memcpy(p, "\x81\x06\xC3\xA9", 4);
    CHECK(wsf_message_next(&m, p, 3, &h) == WSF_PART && m.ahead == 1);
    p[2] = 0xFF; /* whoever looked again would see it */
    CHECK(wsf_message_next(&m, p, 4, &h) == WSF_PART && m.ahead == 2);
    CHECK(wsf_message_next(&m, p, 4, &h) == WSF_PART && m.ahead == 2);
    CHECK(wsf_message_next(&m, p, 8, &h) == WSF_FRAME);
    CHECK(wsf_message_take(&m, &h, p + 2) == WSF_FRAME && m.ahead == 0);
}

static void test_close(void) {
    uint8_t *p = memory.end - WSF_MAX_CONTROL;
    wsf_close c;
    for (unsigned code = 0; code < 65536; code++) {
        p[0] = (uint8_t)(code >> 8);
        p[1] = (uint8_t)code;
        wsf_status status = wsf_read_close(p, 2, &c);
        CHECK(status == (wsf_close_code_valid(code) ? WSF_FRAME : WSF_ERR_CLOSE_CODE));
        CHECK(c.code == code && c.reason_size == 0);
    }
    CHECK(wsf_read_close(NULL, 0, &c) == WSF_FRAME && c.code == 1005 && c.reason_size == 0);
    CHECK(wsf_read_close(p, 1, &c) == WSF_ERR_CLOSE_LENGTH && c.code == 1005);
    memset(p, 'r', WSF_MAX_CONTROL);
    memcpy(p, "\x0B\xB8", 2);
    CHECK(wsf_read_close(p, WSF_MAX_CONTROL, &c) == WSF_FRAME);
    CHECK(c.code == 3000 && c.reason_size == 123 && c.reason == p + 2);
    p[WSF_MAX_CONTROL - 1] = 0xC3;
    CHECK(wsf_read_close(p, WSF_MAX_CONTROL, &c) == WSF_ERR_CLOSE_TEXT);
}

static void test_reasons(void) {
    char *to = (char *)memory.end - WSF_MAX_CONTROL;
    for (int s = WSF_ERR_TEXT; s < 0; s++) {
        size_t size = wsf_violation_reason(to, (wsf_status)s, 65535);
        const char *reason = wsf_status_reason((wsf_status)s);
        CHECK(size == strlen(to) && size <= 123 && strncmp(to, reason, strlen(reason)) == 0);
        CHECK((strstr(to, "65535") != NULL) == (s == WSF_ERR_CLOSE_CODE));
    }
    static const unsigned codes[] = {0, 9, 10, 999, 1005, 65535};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        char expected[WSF_MAX_CONTROL];
        snprintf(expected, sizeof expected, "invalid close code %u", codes[i]);
        wsf_violation_reason(to, WSF_ERR_CLOSE_CODE, codes[i]);
        CHECK(strcmp(to, expected) == 0);
    }
}

int main(void) {
    memory = guarded_alloc(256);
    test_rules();
    test_limits();
    test_frames_alone();
    test_no_byte_is_checked_twice();
    test_close();
    test_reasons();
    return report("message");
}

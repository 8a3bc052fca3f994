/*
 * Frame headers. Rows written by hand show each rule once; an oracle that knows only complete
 * headers then judges every first and second byte, in every connection state, cut at every length.
 */
#include "check.h"
#include "frame.h"

static guarded memory;

/* Frames of encoded messages may be nine bytes longer. */
static wsf_decoder decoder(uint64_t max, uint8_t rsv_allowed, uint8_t in_message) {
    uint64_t max_encoded = max > UINT64_MAX - 9 ? UINT64_MAX : max + 9;
    return (wsf_decoder){max, max_encoded, rsv_allowed, in_message, 0};
}

/* Decodes from right before the guard page, on both roads, and checks what must always hold. */
static wsf_status decode(wsf_decoder d, const uint8_t *bytes, size_t n, wsf_header *h) {
    static const wsf_header untouched = {0xA5A5A5A5A5A5A5A5, 0xA5, 0xA5, 0xA5, 0xA5};
    uint8_t *p = memory.end - n;
    wsf_decoder before = d;
    wsf_header slow = untouched;
    *h = untouched;
    memcpy(p, bytes, n);
    wsf_status status = wsf_decode_header(&d, p, n, h);
    CHECK(wsf_decode_header_slow(&d, p, n, &slow) == status);
    CHECK(memcmp(h, &slow, offsetof(wsf_header, rsv) + 1) == 0);
    CHECK(status == WSF_FRAME || memcmp(h, &untouched, offsetof(wsf_header, rsv) + 1) == 0);
    CHECK(d.max_payload == before.max_payload && d.in_message == before.in_message);
    CHECK(d.rsv_allowed == before.rsv_allowed && d.encoded == before.encoded);
    CHECK(d.max_encoded == before.max_encoded);
    return status;
}

enum { ANY = 1 << 20 }; /* a limit that plays no part in a row */

static void test_rules(void) {
    static const struct {
        uint64_t max;
        uint8_t rsv_allowed, in_message;
        wsf_status expected;
        uint8_t n;
        uint8_t bytes[10];
    } rows[] = {
        /* RFC 6455 section 5.7, as a server sends them */
        {ANY, 0, 0, WSF_FRAME, 2, {0x81, 0x05}},
        {ANY, 0, 0, WSF_FRAME, 2, {0x01, 0x03}},
        {ANY, 0, 1, WSF_FRAME, 2, {0x80, 0x02}},
        {ANY, 0, 0, WSF_FRAME, 2, {0x89, 0x05}},
        {ANY, 0, 0, WSF_FRAME, 4, {0x82, 0x7E, 0x01, 0x00}},
        {ANY, 0, 0, WSF_FRAME, 10, {0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0}},
        /* every opcode that exists */
        {ANY, 0, 1, WSF_FRAME, 2, {0x00, 0x00}},
        {ANY, 0, 0, WSF_FRAME, 2, {0x82, 0x00}},
        {ANY, 0, 0, WSF_FRAME, 2, {0x88, 0x00}},
        {ANY, 0, 0, WSF_FRAME, 2, {0x8A, 0x7D}},
        /* every one that does not, by the first byte */
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x83}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x84}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x85}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x86}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x87}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x8B}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x8C}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x8D}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x8E}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 1, {0x8F}},
        /* reserved bits: unclaimed, claimed, claimed but not for this frame */
        {ANY, 0, 0, WSF_ERR_RSV, 1, {0xC1}},
        {ANY, 0, 0, WSF_ERR_RSV, 1, {0xA1}},
        {ANY, 0, 0, WSF_ERR_RSV, 1, {0x91}},
        {ANY, 0x40, 0, WSF_FRAME, 2, {0xC1, 0x00}},
        {ANY, 0x40, 0, WSF_FRAME, 4, {0xC2, 0x7E, 0x01, 0x00}},
        {ANY, 0x20, 0, WSF_FRAME, 2, {0xA1, 0x00}},
        {ANY, 0x10, 0, WSF_FRAME, 2, {0x91, 0x00}},
        {ANY, 0x40, 0, WSF_ERR_RSV, 1, {0xE1}},
        {ANY, 0x40, 1, WSF_ERR_RSV, 1, {0xC0}},
        {ANY, 0x40, 0, WSF_ERR_RSV, 1, {0xC9}},
        /* control frames */
        {ANY, 0, 0, WSF_ERR_CONTROL_FRAGMENTED, 1, {0x08}},
        {ANY, 0, 0, WSF_ERR_CONTROL_FRAGMENTED, 1, {0x09}},
        {ANY, 0, 0, WSF_ERR_CONTROL_FRAGMENTED, 1, {0x0A}},
        {ANY, 0, 0, WSF_ERR_CONTROL_LENGTH, 2, {0x88, 0x7E}},
        {ANY, 0, 0, WSF_ERR_CONTROL_LENGTH, 2, {0x89, 0x7E}},
        {ANY, 0, 0, WSF_ERR_CONTROL_LENGTH, 2, {0x8A, 0x7F}},
        {ANY, 0, 0, WSF_ERR_CLOSE_LENGTH, 2, {0x88, 0x01}},
        {ANY, 0, 0, WSF_FRAME, 2, {0x88, 0x02}},
        {0, 0, 1, WSF_FRAME, 2, {0x89, 0x7D}},
        /* masked */
        {ANY, 0, 0, WSF_ERR_MASKED, 2, {0x81, 0x80}},
        {ANY, 0, 0, WSF_ERR_MASKED, 2, {0x88, 0xFF}},
        /* sequence */
        {ANY, 0, 0, WSF_ERR_CONTINUATION, 1, {0x80}},
        {ANY, 0, 0, WSF_ERR_CONTINUATION, 1, {0x00}},
        {ANY, 0, 1, WSF_ERR_INTERLEAVED, 1, {0x81}},
        {ANY, 0, 1, WSF_ERR_INTERLEAVED, 1, {0x02}},
        {ANY, 0, 1, WSF_FRAME, 2, {0x8A, 0x00}},
        /* lengths: 0x7D is the last of 7 bits, 0xFFFF of 16 */
        {ANY, 0, 0, WSF_FRAME, 2, {0x81, 0x7D}},
        {ANY, 0, 0, WSF_FRAME, 4, {0x81, 0x7E, 0x00, 0x7E}},
        {ANY, 0, 0, WSF_ERR_LENGTH_NOT_MINIMAL, 4, {0x81, 0x7E, 0x00, 0x7D}},
        {ANY, 0, 0, WSF_ERR_LENGTH_NOT_MINIMAL, 4, {0x81, 0x7E, 0x00, 0x00}},
        {ANY, 0, 0, WSF_ERR_LENGTH_NOT_MINIMAL, 8, {0x81, 0x7F, 0, 0, 0, 0, 0, 0}},
        {ANY, 0, 0, WSF_ERR_LENGTH_NOT_MINIMAL, 10, {0x81, 0x7F, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}},
        {ANY, 0, 0, WSF_INCOMPLETE, 7, {0x81, 0x7F, 0, 0, 0, 0, 0}},
        {ANY, 0, 0, WSF_ERR_LENGTH_SIGN, 3, {0x81, 0x7F, 0x80}},
        {UINT64_MAX,
         0,
         0,
         WSF_ERR_LENGTH_SIGN,
         10,
         {0x82, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}},
        {UINT64_MAX,
         0,
         0,
         WSF_FRAME,
         10,
         {0x82, 0x7F, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}},
        {UINT64_MAX, 0, 0, WSF_FRAME, 10, {0x82, 0x7F, 0, 0, 0, 1, 0, 0, 0, 0}},
        /* the limit is inclusive, and holds as early as the bytes show it */
        {0, 0, 0, WSF_FRAME, 2, {0x81, 0x00}},
        {0, 0, 0, WSF_ERR_TOO_BIG, 2, {0x81, 0x01}},
        {100, 0, 0, WSF_FRAME, 2, {0x81, 100}},
        {100, 0, 0, WSF_ERR_TOO_BIG, 2, {0x81, 101}},
        {0x1FF, 0, 0, WSF_FRAME, 4, {0x81, 0x7E, 0x01, 0xFF}},
        {0x1FF, 0, 0, WSF_ERR_TOO_BIG, 3, {0x81, 0x7E, 0x02}},
        {0x1FE, 0, 0, WSF_ERR_TOO_BIG, 4, {0x81, 0x7E, 0x01, 0xFF}},
        {ANY, 0, 0, WSF_FRAME, 10, {0x81, 0x7F, 0, 0, 0, 0, 0, 0x10, 0, 0}},
        {ANY, 0, 0, WSF_ERR_TOO_BIG, 10, {0x81, 0x7F, 0, 0, 0, 0, 0, 0x10, 0, 1}},
        {ANY, 0, 0, WSF_ERR_TOO_BIG, 3, {0x81, 0x7F, 0x01}},
        {100, 0x40, 0, WSF_FRAME, 2, {0xC1, 109}},
        {100, 0x40, 0, WSF_ERR_TOO_BIG, 2, {0xC1, 110}},
        {100, 0x40, 0, WSF_ERR_TOO_BIG, 2, {0x81, 109}},
        /* the first rule broken, in the order of the bytes, is the one reported */
        {ANY, 0, 1, WSF_ERR_RSV, 2, {0x7F, 0xFF}},
        {ANY, 0, 0, WSF_ERR_OPCODE, 2, {0x0F, 0xFF}},
        {0, 0, 0, WSF_ERR_MASKED, 2, {0x81, 0xFF}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wsf_decoder d = decoder(rows[i].max, rows[i].rsv_allowed, rows[i].in_message);
        wsf_header h;
        wsf_status status = decode(d, rows[i].bytes, rows[i].n, &h);
        if (status != rows[i].expected)
            fprintf(stderr, "row %zu: got %d, expected %d\n", i, status, rows[i].expected);
        CHECK(status == rows[i].expected);
        for (size_t n = 0; n < rows[i].n; n++) {
            wsf_status sooner = decode(d, rows[i].bytes, n, &h);
            CHECK(sooner == WSF_INCOMPLETE || (sooner < 0 && sooner == status));
        }
    }
}

/* What a complete header of ten bytes is worth, rule by rule, with no thought of truncation. */
static wsf_status judge(const wsf_decoder *d, const uint8_t *p, wsf_header *h) {
    uint64_t extended16 = p[2] * 256U + p[3];
    uint64_t extended64 = 0;
    for (int i = 2; i < 10; i++)
        extended64 = extended64 * 256 + p[i];

    h->fin = p[0] >= 128;
    h->rsv = p[0] & 0x70;
    h->opcode = p[0] % 16;
    h->header_len = p[1] % 128 == 127 ? 10 : p[1] % 128 == 126 ? 4 : 2;
    h->payload_len = p[1] % 128 == 127 ? extended64 : p[1] % 128 == 126 ? extended16 : p[1] % 128;

    int starts = h->opcode == 1 || h->opcode == 2;
    int control = h->opcode >= 8;
    if (starts ? h->rsv & ~d->rsv_allowed : h->rsv)
        return WSF_ERR_RSV;
    if (!strchr("\x01\x02\x08\x09\x0A", h->opcode)) /* finds '\0' too, which is a continuation */
        return WSF_ERR_OPCODE;
    if (control && !h->fin)
        return WSF_ERR_CONTROL_FRAGMENTED;
    if (h->opcode == 0 && !d->in_message)
        return WSF_ERR_CONTINUATION;
    if (starts && d->in_message)
        return WSF_ERR_INTERLEAVED;
    if (p[1] >= 128)
        return WSF_ERR_MASKED;
    if (control && h->header_len != 2)
        return WSF_ERR_CONTROL_LENGTH;
    if (h->opcode == 8 && p[1] == 1)
        return WSF_ERR_CLOSE_LENGTH;
    if (control)
        return WSF_FRAME;
    if (h->header_len == 10 && extended64 > INT64_MAX)
        return WSF_ERR_LENGTH_SIGN;
    if ((h->header_len == 4 && extended16 <= 125) || (h->header_len == 10 && extended64 <= 65535))
        return WSF_ERR_LENGTH_NOT_MINIMAL;
    uint64_t max = (starts ? h->rsv & 0x40 : d->encoded) ? d->max_encoded : d->max_payload;
    return h->payload_len > max ? WSF_ERR_TOO_BIG : WSF_FRAME;
}

/*
 * What n bytes of a header are worth: a violation if the smallest and the largest way to complete
 * them break the same rule (the verdict is monotonous in the length), else the plain truth.
 */
static wsf_status judge_prefix(const wsf_decoder *d, const uint8_t *bytes, size_t n,
                               wsf_header *h) {
    uint8_t low[10] = {0};
    uint8_t high[10] = {0};
    wsf_header other;
    if (n == 0)
        return WSF_INCOMPLETE;
    memset(high + 1, 0xFF, 9);
    memcpy(low, bytes, n < 10 ? n : 10);
    memcpy(high, bytes, n < 10 ? n : 10);
    wsf_status least = judge(d, low, h);
    wsf_status most = judge(d, high, &other);
    if (least == WSF_FRAME && n >= h->header_len)
        return WSF_FRAME;
    return least == most && least < 0 ? least : WSF_INCOMPLETE;
}

static void check_against_oracle(const wsf_decoder *d, const uint8_t *bytes, size_t n) {
    wsf_header got, expected;
    wsf_status status = judge_prefix(d, bytes, n, &expected);
    CHECK(decode(*d, bytes, n, &got) == status);
    if (status == WSF_FRAME) {
        CHECK(got.payload_len == expected.payload_len && got.header_len == expected.header_len);
        CHECK(got.opcode == expected.opcode && got.fin == expected.fin && got.rsv == expected.rsv);
    }
}

static void check_all_first_bytes(const wsf_decoder *d) {
    static const uint64_t lengths[] = {
        0,         1,          125,       126,        127,
        255,       256,        65535,     65536,      65537,
        1 << 20,   ANY + 1,    1U << 31,  1ULL << 32, (1ULL << 32) + 1,
        INT64_MAX, 1ULL << 63, UINT64_MAX};
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            uint8_t bytes[12] = {(uint8_t)first, (uint8_t)second, 0x55, 0xAA, 0x55};
            for (size_t n = 0; n <= 5; n++)
                check_against_oracle(d, bytes, n);
        }
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            uint8_t of16[12] = {(uint8_t)first, 126, (uint8_t)(lengths[i] >> 8),
                                (uint8_t)lengths[i], 0x55};
            uint8_t of64[12] = {(uint8_t)first, 127};
            for (int at = 0; at < 8; at++)
                of64[2 + at] = (uint8_t)(lengths[i] >> (56 - 8 * at));
            for (size_t n = 3; n <= 5; n++)
                check_against_oracle(d, of16, n);
            for (size_t n = 3; n <= 11; n++)
                check_against_oracle(d, of64, n);
        }
    }
}

static void test_every_header(void) {
    static const uint64_t limits[] = {0, 125, 126, 0x55AA, 65535, UINT64_MAX};
    for (unsigned rsv = 0; rsv < 8; rsv++) {
        for (uint8_t in_message = 0; in_message < 2; in_message++) {
            /* a limit and the reserved bits have nothing to do with each other: pair, not cross */
            uint64_t limit = limits[(rsv + in_message) % 6];
            wsf_decoder d = decoder(limit, (uint8_t)(rsv << 4), in_message);
            d.encoded = (uint8_t)(in_message & rsv);
            check_all_first_bytes(&d);
        }
    }
    for (size_t i = 0; i < 6; i++) {
        wsf_decoder d = decoder(limits[i], 0x40, 0);
        check_all_first_bytes(&d);
    }
}

static void test_advance(void) {
    static const struct {
        uint8_t opcode, fin, in_message_after;
    } frames[] = {
        {WSF_TEXT, 1, 0},         {WSF_PING, 1, 0},         {WSF_TEXT, 0, 1},
        {WSF_PING, 1, 1},         {WSF_CONTINUATION, 0, 1}, {WSF_PONG, 1, 1},
        {WSF_CLOSE, 1, 1},        {WSF_CONTINUATION, 1, 0}, {WSF_BINARY, 0, 1},
        {WSF_CONTINUATION, 1, 0}, {WSF_BINARY, 1, 0},
    };
    wsf_decoder d = decoder(ANY, 0x40, 0);
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        uint8_t bytes[2] = {(uint8_t)(frames[i].fin << 7 | frames[i].opcode), 0};
        wsf_header h;
        CHECK(decode(d, bytes, 2, &h) == WSF_FRAME);
        wsf_decoder_advance(&d, &h);
        CHECK(d.in_message == frames[i].in_message_after);
        CHECK(d.max_payload == ANY && d.rsv_allowed == 0x40 && !d.encoded);
    }

    /* RSV1 of the first frame is of the whole message */
    static const uint8_t encoded[][2] = {{0x41, 1}, {0x89, 1}, {0x00, 1}, {0x80, 1},
                                         {0x02, 0}, {0x80, 0}, {0xC2, 1}, {0x81, 0}};
    for (size_t i = 0; i < sizeof encoded / sizeof encoded[0]; i++) {
        uint8_t bytes[2] = {encoded[i][0], 0};
        wsf_header h;
        CHECK(decode(d, bytes, 2, &h) == WSF_FRAME);
        wsf_decoder_advance(&d, &h);
        CHECK(d.encoded == encoded[i][1]);
    }
}

static void test_encode_is_the_inverse(void) {
    static const struct {
        uint64_t length;
        size_t size;
    } rows[] = {
        {0, 6},          {1, 6},      {125, 6},    {126, 8},         {127, 8},
        {65535, 8},      {65536, 14}, {65537, 14}, {1ULL << 31, 14}, {(1ULL << 32) + 1, 14},
        {INT64_MAX, 14},
    };
    static const uint8_t key_bytes[4] = {0x37, 0xFA, 0x21, 0x3D};
    uint32_t key;
    memcpy(&key, key_bytes, 4);
    wsf_decoder d = decoder(UINT64_MAX, 0x70, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (unsigned first = 0; first < 256; first++) {
            size_t size = wsf_header_size(rows[i].length);
            CHECK(size == rows[i].size && size <= WSF_MAX_HEADER);
            uint8_t *p = memory.end - size;
            p[-1] = 0xA5;
            CHECK(wsf_encode_header(p, (uint8_t)first, rows[i].length, key) == size);
            CHECK(p[-1] == 0xA5 && p[0] == first && p[1] & 0x80);
            CHECK(memcmp(p + size - 4, key_bytes, 4) == 0);

            unsigned kind = first & 0x8F;
            if (kind != 0x81 && kind != 0x82 && kind != 0x01 && kind != 0x02)
                continue;
            uint8_t unmasked[10];
            wsf_header h;
            memcpy(unmasked, p, size - 4);
            unmasked[1] &= 0x7F;
            CHECK(decode(d, unmasked, size - 4, &h) == WSF_FRAME);
            CHECK(h.payload_len == rows[i].length && h.header_len == size - 4);
            CHECK(h.opcode == first % 16 && h.fin == first >> 7 && h.rsv == (first & 0x70));
        }
    }
}

/* Whatever may be received by some connection has a length. */
static void test_peek(void) {
    wsf_header h;
    for (unsigned first = 0; first < 256; first++) {
        uint8_t bytes[10] = {(uint8_t)first, 127, 0x7F, 1, 2, 3, 4, 5, 6, 7};
        uint8_t in_message = first % 16 == 0;
        wsf_decoder any = {UINT64_MAX, UINT64_MAX, 0x70, in_message, 0};
        for (size_t n = 0; n <= sizeof bytes; n++) {
            memcpy(memory.end - n, bytes, n);
            wsf_status status = wsf_peek_header(memory.end - n, n, &h);
            CHECK(status == decode(any, bytes, n, &(wsf_header){0}));
            CHECK(status != WSF_FRAME || h.payload_len == 0x7F01020304050607);
        }
    }
}

/* The registry, written out: www.iana.org/assignments/websocket, and the ranges of section 7.4.2.
 */
static void test_close_codes(void) {
    static const unsigned registered[] = {1000, 1001, 1002, 1003, 1007, 1008,
                                          1009, 1010, 1011, 1012, 1013, 1014};
    static uint8_t valid[65536];
    for (size_t i = 0; i < sizeof registered / sizeof registered[0]; i++)
        valid[registered[i]] = 1;
    memset(valid + 3000, 1, 2000);
    for (unsigned code = 0; code < 65536; code++)
        CHECK(wsf_close_code_valid(code) == valid[code]);
}

static void test_statuses(void) {
    for (int s = WSF_ERR_TEXT; s <= WSF_OVER; s++) {
        const char *reason = wsf_status_reason((wsf_status)s);
        if (s >= 0) {
            CHECK(wsf_status_close_code((wsf_status)s) == 0 && reason[0] == '\0');
            continue;
        }
        int text = s == WSF_ERR_TEXT || s == WSF_ERR_CLOSE_TEXT;
        int code = s == WSF_ERR_TOO_BIG ? 1009 : text ? 1007 : 1002;
        CHECK(wsf_status_close_code((wsf_status)s) == code);
        CHECK(strlen(reason) > 10 && strlen(reason) <= 123);
        for (int other = s + 1; other < 0; other++)
            CHECK(strcmp(reason, wsf_status_reason((wsf_status)other)) != 0);
    }
}

int main(void) {
    memory = guarded_alloc(64);
    test_rules();
    test_every_header();
    test_advance();
    test_encode_is_the_inverse();
    test_peek();
    test_close_codes();
    test_statuses();
    return report("frame");
}

/*
 * Validation against an oracle that knows no grammar, only how to encode: a text is valid if it is
 * made of encoded characters, and a prefix is valid if it begins one. Every text is fed whole and
 * in two parts, split everywhere, and ends at a guard page.
 */
#include "check.h"
#include "utf8.h"

/* Indexed by the bytes of the sequence, most significant first. */
enum { NOTHING, PREFIX, CHARACTER };
static uint8_t one[1 << 8], two[1 << 16], three[1 << 24];

static guarded memory;

static size_t encode(uint32_t c, uint8_t *p) {
    if (c < 0x80) {
        p[0] = (uint8_t)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        p[i] = 0x80 | (c & 0x3F);
    p[0] = (uint8_t)(0xF00 >> n) | (uint8_t)c;
    return n;
}

static void build_oracle(void) {
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        uint8_t p[4] = {0};
        size_t n = encode(c, p);
        one[p[0]] = n == 1 ? CHARACTER : PREFIX;
        if (n >= 2)
            two[p[0] << 8 | p[1]] = n == 2 ? CHARACTER : PREFIX;
        if (n >= 3)
            three[p[0] << 16 | p[1] << 8 | p[2]] = n == 3 ? CHARACTER : PREFIX;
    }
}

/* What n <= 4 bytes are. A fourth byte completes any three that are a prefix, if it is a tail. */
static int sequence(const uint8_t *p, size_t n) {
    if (n == 1)
        return one[p[0]];
    if (n == 2)
        return two[p[0] << 8 | p[1]];
    int of_three = three[p[0] << 16 | p[1] << 8 | p[2]];
    if (n == 3)
        return of_three;
    return of_three == PREFIX && (p[3] & 0xC0) == 0x80 ? CHARACTER : NOTHING;
}

/* What the whole text is: CHARACTER if it ends between two, PREFIX if inside one. */
static int judge(const uint8_t *p, size_t n) {
    int kind = CHARACTER;
    for (size_t start = 0, i = 1; i <= n && kind != NOTHING; i++) {
        kind = sequence(p + start, i - start);
        if (kind == CHARACTER)
            start = i;
    }
    return kind;
}

/* One feed and every split into two. The text lies at p. */
static void check_text(const uint8_t *p, size_t n) {
    int kind = judge(p, n);
    for (size_t split = 0; split < n || split == 0; split++) {
        wsf_utf8 v = {0};
        if (split > 0) {
            int first = judge(p, split);
            CHECK(wsf_utf8_feed(&v, p, split) == (first != NOTHING));
            CHECK(wsf_utf8_complete(&v) == (first == CHARACTER));
        }
        CHECK(wsf_utf8_feed(&v, p + split, n - split) == (kind != NOTHING));
        CHECK(wsf_utf8_complete(&v) == (kind == CHARACTER));
        CHECK(wsf_utf8_feed(&v, p, 0) == (kind != NOTHING));
    }
}

static void test_short_sequences(void) {
    uint8_t *p = memory.end - 3;
    for (uint32_t bytes = 0; bytes < 1 << 24; bytes++) {
        p[0] = (uint8_t)(bytes >> 16);
        p[1] = (uint8_t)(bytes >> 8);
        p[2] = (uint8_t)bytes;
        if (bytes < 1 << 8)
            check_text(p + 2, 1);
        if (bytes < 1 << 16)
            check_text(p + 1, 2);
        check_text(p, 3);
    }
}

/* Every lead, then all the bytes around which the grammar changes its mind. */
static void test_four_bytes(void) {
    static const uint8_t edges[] = {0x00, 0x41, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                    0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF};
    enum { EDGES = sizeof edges };
    uint8_t *p = memory.end - 4;
    for (unsigned lead = 0; lead < 256; lead++) {
        for (size_t i = 0; i < EDGES * EDGES * EDGES; i++) {
            p[0] = (uint8_t)lead;
            p[1] = edges[i % EDGES];
            p[2] = edges[i / EDGES % EDGES];
            p[3] = edges[i / EDGES / EDGES];
            check_text(p, 4);
        }
    }
}

static void test_every_character(void) {
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        uint8_t bytes[4];
        size_t n = encode(c, bytes);
        uint8_t *p = memory.end - n;
        memcpy(p, bytes, n);
        wsf_utf8 v = {0};
        int legal = c < 0xD800 || c > 0xDFFF;
        CHECK(wsf_utf8_feed(&v, p, n) == legal && wsf_utf8_complete(&v) == legal);
    }
}

static void test_bad_byte_in_ascii(void) {
    static const uint8_t bad[] = {0x80, 0xBF, 0xC0, 0xC1, 0xF5, 0xFF};
    for (size_t n = 71; n <= 88; n++) {
        uint8_t *p = memory.end - n;
        memset(p, 'a', n);
        check_text(p, n);
        for (size_t at = 0; at <= 70; at++) {
            p[at] = bad[(at + n) % sizeof bad];
            check_text(p, n);
            p[at] = 0xC3; /* a lead without its tail */
            check_text(p, n);
            p[at] = 'a';
        }
    }
}

static void test_is_ascii(void) {
    for (size_t n = 8; n <= 200; n++) {
        uint8_t *p = memory.end - n;
        memset(p, 0x7F, n);
        CHECK(wsf_is_ascii(p, n) == 1);
        for (size_t at = 0; at < n; at++) {
            p[at] = 0x80;
            CHECK(wsf_is_ascii(p, n) == 0);
            p[at] = 0x7F;
        }
    }
}

/* Long mixed texts, half of them with one byte spoilt. */
static void test_random_texts(void) {
    static const uint32_t limits[] = {0x80, 0x80, 0x80, 0x800, 0x10000, 0x110000};
    uint64_t random = 0x2545F4914F6CDD1D;
    for (int round = 0; round < 5000; round++) {
        uint8_t text[120];
        size_t n = 0;
        size_t size = next_random(&random) % 100;
        while (n < size) {
            uint32_t limit = limits[next_random(&random) % 6];
            uint32_t c = (uint32_t)(next_random(&random) % limit);
            n += c >= 0xD800 && c <= 0xDFFF ? 0 : encode(c, text + n);
        }
        if (n > 0 && round % 2) {
            size_t at = next_random(&random) % n;
            text[at] = (uint8_t)next_random(&random);
        }
        uint8_t *p = memory.end - n;
        memcpy(p, text, n);
        check_text(p, n);
    }
}

static void test_stays_invalid(void) {
    wsf_utf8 v = {0};
    uint8_t *p = memory.end - 64;
    memset(p, 'a', 64);
    p[63] = 0xFF;
    CHECK(wsf_utf8_feed(&v, p, 64) == 0);
    p[63] = 'a';
    for (size_t n = 0; n <= 64; n++) {
        CHECK(wsf_utf8_feed(&v, p, n) == 0);
        CHECK(!wsf_utf8_complete(&v));
    }
}

int main(void) {
    memory = guarded_alloc(256);
    build_oracle();
    test_short_sequences();
    test_four_bytes();
    test_every_character();
    test_bad_byte_in_ascii();
    test_is_ascii();
    test_random_texts();
    test_stays_invalid();
    return report("utf8");
}

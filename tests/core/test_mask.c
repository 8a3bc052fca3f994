/*
 * Every kernel of the table against one byte at a time: all short lengths at all alignments, in
 * place and apart, with the bytes around watched; then long ones; then at the edge of the memory.
 */
#include "check.h"
#include "mask.h"

enum { SHORT = 300, OFFSETS = 64, LONG = 70000 };

static const uint8_t key_bytes[4] = {0x01, 0x20, 0xFE, 0x7F};
static uint32_t key;
static uint8_t plain[LONG], masked[LONG];

static void test_alignments(wsf_mask_fn mask) {
    static uint8_t src[OFFSETS + SHORT], dst[OFFSETS + SHORT + OFFSETS], fresh[sizeof dst];
    memset(fresh, 0xA5, sizeof fresh);
    for (size_t from = 0; from < OFFSETS; from++) {
        memcpy(src + from, plain, SHORT);
        for (size_t to = 0; to < OFFSETS; to++) {
            for (size_t n = 0; n <= SHORT; n++) {
                memcpy(dst, fresh, sizeof dst);
                mask(dst + to, src + from, n, key);
                CHECK(memcmp(dst + to, masked, n) == 0);
                CHECK(memcmp(dst, fresh, to) == 0);
                CHECK(memcmp(dst + to + n, fresh, sizeof dst - to - n) == 0);
            }
        }
        CHECK(memcmp(src + from, plain, SHORT) == 0);
    }
    for (size_t at = 0; at < OFFSETS; at++) {
        for (size_t n = 0; n <= SHORT; n++) {
            memcpy(dst, fresh, sizeof dst);
            memcpy(dst + at, plain, n);
            mask(dst + at, dst + at, n, key);
            CHECK(memcmp(dst + at, masked, n) == 0);
            CHECK(memcmp(dst, fresh, at) == 0);
            CHECK(memcmp(dst + at + n, fresh, sizeof dst - at - n) == 0);
        }
    }
}

/* Both buffers end where memory ends, then both start where it starts; then in place. */
static void check_at_the_edge(wsf_mask_fn mask, guarded a, guarded b, size_t n) {
    memcpy(a.end - n, plain, n);
    mask(b.end - n, a.end - n, n, key);
    CHECK(memcmp(b.end - n, masked, n) == 0);
    mask(b.end - n, b.end - n, n, key);
    CHECK(memcmp(b.end - n, plain, n) == 0);

    memcpy(a.start, plain, n);
    mask(b.start, a.start, n, key);
    CHECK(memcmp(b.start, masked, n) == 0);
    mask(b.start, b.start, n, key);
    CHECK(memcmp(b.start, plain, n) == 0);
}

static void test_edges(wsf_mask_fn mask) {
    static const size_t lengths[] = {4095, 4096, 4097, 65535, 65536, 65537, LONG};
    guarded a = guarded_alloc(LONG), b = guarded_alloc(LONG);
    for (size_t n = 0; n <= SHORT; n++)
        check_at_the_edge(mask, a, b, n);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        check_at_the_edge(mask, a, b, lengths[i]);
}

static void test_frames(wsf_mask_fn mask) {
    static const size_t lengths[] = {0, 1, 125, 126, 127, 300, 65535, 65536};
    guarded memory = guarded_alloc(LONG);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t n = lengths[i];
        size_t header = wsf_header_size(n);
        uint8_t *p = memory.end - header - n;
        uint8_t expected[WSF_MAX_HEADER];
        wsf_encode_header(expected, 0x82, n, key);
        for (int in_place = 0; in_place < 2; in_place++) {
            memset(p, 0, header + n);
            memcpy(p + header, plain, n);
            const uint8_t *payload = in_place ? p + header : plain;
            CHECK(wsf_encode_frame(mask, p, 0x82, payload, n, key) == header + n);
            CHECK(memcmp(p, expected, header) == 0);
            CHECK(memcmp(p + header, masked, n) == 0);
        }
    }
}

static void test_table(void) {
    CHECK(wsf_mask_kernel_count >= 1);
    CHECK(strcmp(wsf_mask_kernels[0].name, "scalar") == 0 && wsf_mask_kernels[0].supported());
    const wsf_mask_kernel *last = NULL;
    for (size_t i = 0; i < wsf_mask_kernel_count; i++) {
        const wsf_mask_kernel *row = &wsf_mask_kernels[i];
        if (row->supported())
            last = row;
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(row->name, wsf_mask_kernels[j].name) != 0);
    }
    CHECK(wsf_mask_best() == last);
}

int main(void) {
    uint64_t random = 0x9E3779B97F4A7C15;
    memcpy(&key, key_bytes, 4);
    for (size_t i = 0; i < LONG; i++) {
        plain[i] = (uint8_t)next_random(&random);
        masked[i] = plain[i] ^ key_bytes[i % 4];
    }

    test_table();
    for (size_t i = 0; i < wsf_mask_kernel_count; i++) {
        const wsf_mask_kernel *row = &wsf_mask_kernels[i];
        if (!row->supported()) {
            printf("mask: %s skipped, this machine does not support it\n", row->name);
            continue;
        }
        test_alignments(row->fn);
        test_edges(row->fn);
        test_frames(row->fn);
    }
    return report("mask");
}

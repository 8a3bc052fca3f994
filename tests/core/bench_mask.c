/*
 * The mask kernels against memcpy: median ns a call and GB/s, for the table in mask.c. The payload
 * lies where a send finds it: after a header of 8 bytes in dst, after a bytes object's in src.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mask.h"

enum { LARGEST = 65536, DST_AT = 8, SRC_AT = 32, SAMPLES = 201 };

static void copy(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key) {
    (void)key;
    memcpy(dst, src, n);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_ns(wsf_mask_fn fn, uint8_t *dst, const uint8_t *src, size_t n) {
    static double samples[SAMPLES];
    unsigned calls = (unsigned)(200000 / (n / 16 + 8)) + 1; /* some 30 us a sample */
    wsf_mask_fn volatile opaque = fn;
    for (int i = 0; i < SAMPLES; i++) {
        double start = now();
        for (unsigned call = 0; call < calls; call++)
            opaque(dst + DST_AT, src + SRC_AT, n, call);
        samples[i] = (now() - start) / calls;
    }
    qsort(samples, SAMPLES, sizeof samples[0], ascending);
    return samples[SAMPLES / 2];
}

static void print_row(const char *name, wsf_mask_fn fn, uint8_t *dst, const uint8_t *src) {
    static const size_t sizes[] = {64, 256, 512, 8192, LARGEST};
    printf("%-8s", name);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double ns = median_ns(fn, dst, src, sizes[i]);
        printf(" %7zu B %7.1f ns %5.1f GB/s", sizes[i], ns, (double)sizes[i] / ns);
    }
    printf("\n");
}

int main(void) {
    uint8_t *dst = aligned_alloc(4096, LARGEST + 4096);
    uint8_t *src = aligned_alloc(4096, LARGEST + 4096);
    if (!dst || !src)
        return 1;
    memset(dst, 1, LARGEST + 4096);
    memset(src, 2, LARGEST + 4096);
    print_row("memcpy", copy, dst, src);
    for (size_t i = 0; i < wsf_mask_kernel_count; i++) {
        if (wsf_mask_kernels[i].supported())
            print_row(wsf_mask_kernels[i].name, wsf_mask_kernels[i].fn, dst, src);
    }
    free(dst);
    free(src);
    return 0;
}

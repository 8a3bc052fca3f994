/*
 * What the fuzz targets of the C core share. A target is one function, LLVMFuzzerTestOneInput,
 * which libFuzzer calls with what it invents, and replay.c with the kept corpus.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An invariant. Aborting is how libFuzzer learns of a finding. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The n bytes at p in an allocation of just that size, so that the sanitizer sees a byte too far.
 */
static inline uint8_t *exact_copy(const uint8_t *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    HOLDS(copy != NULL);
    if (n > 0)
        memcpy(copy, p, n);
    return copy;
}

/* How many of the `left` bytes the next read brings: 1 to 16 mostly, sometimes all. */
static inline size_t next_piece(uint32_t *random, size_t left) {
    *random = *random * 1664525U + 1013904223U;
    size_t piece = (*random >> 24) % 17;
    return piece == 0 || piece > left ? left : piece;
}

#endif

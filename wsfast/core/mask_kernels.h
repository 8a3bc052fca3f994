/*
 * Code that the kernels share. Only mask*.c may include it; other code uses the table in mask.h.
 *
 * Kernels do not process a ragged end byte by byte: they treat w <= n <= 2w bytes as two words of w
 * bytes that overlap in the middle. They load both words before they store either, because when
 * masking in place the second load would otherwise read bytes that are already masked.
 */
#ifndef WSF_MASK_KERNELS_H
#define WSF_MASK_KERNELS_H

#include "mask.h"

void wsf_mask_scalar(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key);

#if defined(__x86_64__)
#define WSF_HAVE_X86 1
void wsf_mask_avx2(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key);
void wsf_mask_avx512(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key);
#elif defined(__aarch64__)
#define WSF_HAVE_NEON 1
void wsf_mask_neon(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key);
#endif

/* The key for the payload from byte `at` on: its bytes in memory, rotated. */
static inline uint32_t wsf_rotate_key(uint32_t key, size_t at) {
    unsigned bits = 8 * (at & 3);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return key >> bits | key << (-bits & 31);
#else
    return key << bits | key >> (-bits & 31);
#endif
}

/* Masks n <= 16 bytes. */
static inline void wsf_mask_short(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key) {
    if (n >= 8) {
        uint64_t head, tail;
        uint32_t tail_key = wsf_rotate_key(key, n - 8);
        memcpy(&head, src, 8);
        memcpy(&tail, src + n - 8, 8);
        head ^= (uint64_t)key << 32 | key;
        tail ^= (uint64_t)tail_key << 32 | tail_key;
        memcpy(dst, &head, 8);
        memcpy(dst + n - 8, &tail, 8);
    } else if (n >= 4) {
        uint32_t head, tail;
        memcpy(&head, src, 4);
        memcpy(&tail, src + n - 4, 4);
        head ^= key;
        tail ^= wsf_rotate_key(key, n - 4);
        memcpy(dst, &head, 4);
        memcpy(dst + n - 4, &tail, 4);
    } else {
        uint8_t bytes[4];
        memcpy(bytes, &key, 4);
        for (size_t i = 0; i < n; i++)
            dst[i] = src[i] ^ bytes[i];
    }
}

#endif

/*
 * 32 bytes at a time. The last 32, which overlap the ones before, are loaded first of all (see
 * mask_kernels.h). A payload of 32 or less is two overlapping halves.
 */
#include "mask_kernels.h"

#if WSF_HAVE_X86
#include <immintrin.h>

__attribute__((target("avx2"))) void wsf_mask_avx2(uint8_t *dst, const uint8_t *src, size_t n,
                                                   uint32_t key) {
    if (n <= 16) {
        wsf_mask_short(dst, src, n, key);
        return;
    }

    int head_key = (int)key;
    if (n <= 32) {
        int tail_key = (int)wsf_rotate_key(key, n - 16);
        __m128i head = _mm_loadu_si128((const __m128i *)src);
        __m128i tail = _mm_loadu_si128((const __m128i *)(src + n - 16));
        head = _mm_xor_si128(head, _mm_set1_epi32(head_key));
        tail = _mm_xor_si128(tail, _mm_set1_epi32(tail_key));
        _mm_storeu_si128((__m128i *)dst, head);
        _mm_storeu_si128((__m128i *)(dst + n - 16), tail);
        return;
    }

    int tail_key = (int)wsf_rotate_key(key, n - 32);
    __m256i wide = _mm256_set1_epi32(head_key);
    __m256i tail = _mm256_loadu_si256((const __m256i *)(src + n - 32));
    tail = _mm256_xor_si256(tail, _mm256_set1_epi32(tail_key));
    for (size_t i = 0; i + 32 < n; i += 32) {
        __m256i word = _mm256_loadu_si256((const __m256i *)(src + i));
        _mm256_storeu_si256((__m256i *)(dst + i), _mm256_xor_si256(word, wide));
    }
    _mm256_storeu_si256((__m256i *)(dst + n - 32), tail);
}
#endif

/*
 * 64 bytes at a time. Less than that is one load and one store under a mask, which neither read nor
 * write the other bytes, nor fault on them. More ends in 64 bytes that overlap the ones before and
 * are loaded first of all (see mask_kernels.h): a masked end instead took 0.5 ns more at 512 bytes,
 * and lost to AVX2 there.
 */
#include "mask_kernels.h"

#if WSF_HAVE_X86
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw"))) void wsf_mask_avx512(uint8_t *dst, const uint8_t *src,
                                                                 size_t n, uint32_t key) {
    __m512i wide = _mm512_set1_epi32((int)key);
    if (n < 64) {
        __mmask64 bytes = ((__mmask64)1 << n) - 1;
        __m512i word = _mm512_maskz_loadu_epi8(bytes, src);
        _mm512_mask_storeu_epi8(dst, bytes, _mm512_xor_si512(word, wide));
        return;
    }

    int tail_key = (int)wsf_rotate_key(key, n - 64);
    __m512i tail = _mm512_loadu_si512(src + n - 64);
    tail = _mm512_xor_si512(tail, _mm512_set1_epi32(tail_key));
    for (size_t i = 0; i + 64 < n; i += 64) {
        __m512i word = _mm512_loadu_si512(src + i);
        _mm512_storeu_si512(dst + i, _mm512_xor_si512(word, wide));
    }
    _mm512_storeu_si512(dst + n - 64, tail);
}
#endif

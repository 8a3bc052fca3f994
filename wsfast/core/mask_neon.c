/*
 * 16 bytes at a time. The last 16, which overlap the ones before, are loaded first of all (see
 * mask_kernels.h).
 */
#include "mask_kernels.h"

#if WSF_HAVE_NEON
#include <arm_neon.h>

/* A key, repeated: four bytes in memory order become sixteen in memory order. */
static uint8x16_t repeat(uint32_t key) { return vreinterpretq_u8_u32(vdupq_n_u32(key)); }

void wsf_mask_neon(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key) {
    if (n <= 16) {
        wsf_mask_short(dst, src, n, key);
        return;
    }

    uint8x16_t wide = repeat(key);
    uint8x16_t tail = veorq_u8(vld1q_u8(src + n - 16), repeat(wsf_rotate_key(key, n - 16)));
    for (size_t i = 0; i + 16 < n; i += 16)
        vst1q_u8(dst + i, veorq_u8(vld1q_u8(src + i), wide));
    vst1q_u8(dst + n - 16, tail);
}
#endif

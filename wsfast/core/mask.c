/*
 * The scalar kernel, and the table of all kernels.
 *
 * The order is measured: ns a call, median, Zen 4 at 3.7 GHz, gcc 12 -O2, payload 8 bytes past a
 * cache line in dst and 32 past one in src (tests/core/bench_mask.c; runs differ by 1 ns at most up
 * to 512 bytes):
 *
 *                64 B     256 B     512 B     8 KiB    64 KiB
 *     memcpy      2.7       3.8       6.0        80      1247
 *     scalar      4.6      11.9      20.6       285      2280
 *     avx2        2.4       4.1       6.2        93      1156
 *     avx512      2.4       3.5       6.0        93      1204
 *
 * AVX-512 is a little ahead where messages are small, as most are; at 64 KiB, where the
 * second-level cache sets the pace, it is 4 % behind.
 *
 * An SSE2 kernel ran at the scalar one's speed from 512 bytes up, so there is none.
 */
#include "mask_kernels.h"

#if WSF_HAVE_X86
#include <cpuid.h>
#endif

/* Eight bytes at a time: two keys side by side, so every word starts at the key's first byte. */
void wsf_mask_scalar(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key) {
    uint64_t wide = (uint64_t)key << 32 | key;
    for (; n >= 8; n -= 8, src += 8, dst += 8) {
        uint64_t word;
        memcpy(&word, src, 8);
        word ^= wide;
        memcpy(dst, &word, 8);
    }
    wsf_mask_short(dst, src, n, key);
}

static int always(void) { return 1; }

#if WSF_HAVE_X86
/*
 * Asks the processor for these bits of leaf 7, and the operating system whether it saves these
 * registers (Intel's manual, volume 1, 14.3 and 15.2). __builtin_cpu_supports is an answer of the
 * compiler's library, and zig's says no to everything.
 */
static int supports(unsigned ebx, unsigned ecx, unsigned registers) {
    unsigned a, b, c, d, saved;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    return (saved & registers) == registers && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & ebx) == ebx && (c & ecx) == ecx;
}

enum { AVX_REGISTERS = 0x06, AVX512_REGISTERS = 0xe6 }; /* XCR0 */

static int have_avx2(void) { return supports(bit_AVX2, 0, AVX_REGISTERS); }

/*
 * The kernel needs F and BW. VBMI2 came with Ice Lake and Zen 4: the processors before them lower
 * their clock, for everything that runs, when 512-bit registers are used.
 */
static int have_avx512(void) {
    return supports(bit_AVX512F | bit_AVX512BW, bit_AVX512VBMI2, AVX512_REGISTERS);
}
#endif

const wsf_mask_kernel wsf_mask_kernels[] = {
    {"scalar", always, wsf_mask_scalar},
#if WSF_HAVE_X86
    {"avx2", have_avx2, wsf_mask_avx2},
    {"avx512", have_avx512, wsf_mask_avx512},
#elif WSF_HAVE_NEON
    {"neon", always, wsf_mask_neon}, /* part of every AArch64 processor */
#endif
};

const size_t wsf_mask_kernel_count = sizeof wsf_mask_kernels / sizeof wsf_mask_kernels[0];

const wsf_mask_kernel *wsf_mask_best(void) {
    const wsf_mask_kernel *row = wsf_mask_kernels + wsf_mask_kernel_count - 1;
    while (!row->supported())
        row--;
    return row;
}

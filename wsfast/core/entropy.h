/*
 * Mask keys. RFC 6455 sections 5.3 and 10.3: a key must come from a strong source of entropy, and
 * earlier keys must not predict it. Otherwise a hostile script could choose the bytes on the wire.
 *
 * Every key is fresh output of the operating system's generator. A pool buys keys from
 * getentropy(2) in bulk, and hands out each key once. A forked child starts with an empty pool of
 * its own.
 */
#ifndef WSF_ENTROPY_H
#define WSF_ENTROPY_H

#include <stdint.h>

/*
 * Puts a fresh key into *key and returns 0. If the system has no entropy, it returns -1 with errno
 * set, and leaves *key untouched. Any thread may call it, but no signal handler.
 *
 * A child made by fork(2) is safe. A child made without libc's fork (by a raw clone or _Fork) gets
 * the same next keys as its parent.
 */
int wsf_mask_key(uint32_t *key);

#endif

/*
 * Mask keys. RFC 6455 sections 5.3 and 10.3: a key comes from a strong source of entropy and cannot
 * be foretold from the keys before it, or a hostile script could choose what appears on the wire.
 *
 * Here every key is fresh output of the operating system's generator, getentropy(2), bought in
 * bulk. It is handed out once, and not again in a forked child, which starts by buying its own.
 */
#ifndef WSF_ENTROPY_H
#define WSF_ENTROPY_H

#include <stdint.h>

/*
 * Puts a fresh key into *key and returns 0; or returns -1 with errno set and *key untouched, if the
 * system has no entropy to give. Any thread may call it, but no signal handler.
 *
 * A child made by fork(2) is safe. One made past libc (a raw clone or _Fork) shares its parent's
 * next keys.
 */
int wsf_mask_key(uint32_t *key);

#endif

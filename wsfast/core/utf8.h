/*
 * Incremental validation of UTF-8 as RFC 3629 defines it. RFC 6455 requires it for TEXT messages
 * (sections 5.6 and 8.1) and for the reason of a CLOSE (section 5.5.1). A character may be split
 * between two feeds at any byte.
 *
 * A validator is one integer, and nothing allocates. A validator belongs to one stream, and only
 * one thread at a time may touch it.
 */
#ifndef WSF_UTF8_H
#define WSF_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise it at the start of each text. */
typedef struct wsf_utf8 {
    uint32_t state; /* 0: between characters; other values are private to utf8.c */
} wsf_utf8;

/*
 * Takes the next n bytes of the text; n may be 0, and p may then be NULL. Returns 1 if the bytes so
 * far are a prefix of some valid text. Returns 0 if no further bytes can make them valid; then
 * every later call returns 0 too.
 */
int wsf_utf8_feed(wsf_utf8 *v, const uint8_t *p, size_t n);

/* 1 if the bytes so far are valid and end between two characters, so the text may end here. */
static inline int wsf_utf8_complete(const wsf_utf8 *v) { return v->state == 0; }

/* 1 if all of the n bytes are ASCII. n must be at least 8. */
int wsf_is_ascii(const uint8_t *p, size_t n);

#endif

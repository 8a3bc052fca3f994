/*
 * UTF-8 as RFC 3629 defines it, checked as it arrives: RFC 6455 sections 5.6 and 8.1 ask it of TEXT
 * messages, section 5.5.1 of the reason of a CLOSE. A character may be split between two feeds
 * anywhere.
 *
 * A validator is one integer; nothing allocates. It belongs to one stream, and one thread at a time
 * may touch it.
 */
#ifndef WSF_UTF8_H
#define WSF_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise to start a text, and to start the next one. */
typedef struct wsf_utf8 {
    uint32_t state; /* 0: between characters; else known to utf8.c alone */
} wsf_utf8;

/*
 * Takes the next n bytes of the text (n may be 0, and p NULL then). Returns 1 if all bytes so far
 * begin some valid text, or 0 if nothing that follows can make them valid; then every later call
 * returns 0 too.
 */
int wsf_utf8_feed(wsf_utf8 *v, const uint8_t *p, size_t n);

/* 1 if the bytes so far are valid and end between two characters, so the text may end here. */
static inline int wsf_utf8_complete(const wsf_utf8 *v) { return v->state == 0; }

/* 1 if the n bytes are a text. */
static inline int wsf_is_text(const uint8_t *p, size_t n) {
    wsf_utf8 v = {0};
    return wsf_utf8_feed(&v, p, n) && wsf_utf8_complete(&v);
}

/* 1 if the n bytes, 8 at least, are ASCII alone. */
int wsf_is_ascii(const uint8_t *p, size_t n);

#endif

/* The core's judge of frame headers, which is inline, as a function that Rust can call. */
#include "frame.h"

wsf_status wsf_judge_header(const wsf_decoder *d, const uint8_t *p, size_t n, wsf_header *h);

wsf_status wsf_judge_header(const wsf_decoder *d, const uint8_t *p, size_t n, wsf_header *h) {
    return wsf_decode_header(d, p, n, h);
}

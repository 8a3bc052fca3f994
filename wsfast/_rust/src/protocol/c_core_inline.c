/* The inline functions of the core, as functions that Rust can call. */
#include "message.h"

wsf_status inline_message_next(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h);
wsf_status inline_message_take(wsf_message *m, const wsf_header *h, const uint8_t *payload);
wsf_status inline_message_receive(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h);
int inline_is_text(const uint8_t *p, size_t n);

wsf_status inline_message_next(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h) {
    return wsf_message_next(m, p, n, h);
}

wsf_status inline_message_take(wsf_message *m, const wsf_header *h, const uint8_t *payload) {
    return wsf_message_take(m, h, payload);
}

wsf_status inline_message_receive(wsf_message *m, const uint8_t *p, size_t n, wsf_header *h) {
    return wsf_message_receive(m, p, n, h);
}

int inline_is_text(const uint8_t *p, size_t n) { return wsf_is_text(p, n); }

/*
 * The frame decoder, fed whole and in pieces.
 *
 * Input: a byte that sets up the decoder (RSV bits, open message, limit), a byte that seeds the
 * pieces, then the stream. What must hold is written at each check; none of it repeats the
 * decoder's own rules, but for the legality of what it lets pass.
 */
#include "fuzz.h"
#include "mask.h"

static const uint64_t limits[] = {0,     1,     125,     126,       1000,
                                  65535, 65536, 1 << 20, INT64_MAX, UINT64_MAX};
enum { LIMITS = sizeof limits / sizeof limits[0], PEEK = 16 };

static wsf_decoder set_up(uint8_t byte) {
    uint64_t limit = limits[byte % LIMITS];
    uint64_t encoded = limit > UINT64_MAX / 2 ? limit : limit + 9;
    return (wsf_decoder){limit, encoded, byte & WSF_RSV_BITS, byte >> 7, byte >> 6 & 1};
}

static int same_header(const wsf_header *a, const wsf_header *b) {
    return a->payload_len == b->payload_len && a->header_len == b->header_len &&
           a->opcode == b->opcode && a->fin == b->fin && a->rsv == b->rsv;
}

/* Decodes the n bytes at p. Nothing but *h changes, that only for a frame, and both roads agree. */
static wsf_status decode(const wsf_decoder *d, const uint8_t *p, size_t n, wsf_header *h) {
    static const wsf_header untouched = {0xA5A5A5A5A5A5A5A5, 0xA5, 0xA5, 0xA5, 0xA5};
    wsf_decoder before = *d;
    wsf_header slow = untouched;
    *h = untouched;
    wsf_status status = wsf_decode_header(d, p, n, h);
    HOLDS(status == wsf_decode_header_slow(d, p, n, &slow));
    HOLDS(same_header(h, &slow));
    HOLDS(status == WSF_FRAME || same_header(h, &untouched));
    HOLDS(d->max_payload == before.max_payload && d->rsv_allowed == before.rsv_allowed &&
          d->in_message == before.in_message && d->max_encoded == before.max_encoded &&
          d->encoded == before.encoded);
    return status;
}

/* The verdict on the stream at p, reached with the fewest bytes that settle it; no later byte
 * changes it. */
static wsf_status settle(const wsf_decoder *d, const uint8_t *p, size_t n, wsf_header *h) {
    wsf_status settled = WSF_INCOMPLETE;
    for (size_t have = 0; have <= n && have <= PEEK; have++) {
        uint8_t *bytes = exact_copy(p, have);
        wsf_header now;
        wsf_status status = decode(d, bytes, have, &now);
        free(bytes);
        if (settled == WSF_INCOMPLETE) {
            settled = status;
            *h = now;
        } else {
            HOLDS(status == settled && same_header(h, &now));
        }
    }
    return settled;
}

static void check_legal(const wsf_decoder *d, const wsf_header *h) {
    int control = h->opcode >= 8;
    HOLDS(h->opcode <= WSF_BINARY || (control && h->opcode <= WSF_PONG));
    HOLDS(h->fin <= 1 && (h->fin || !control));
    int encoded = h->opcode == WSF_CONTINUATION ? d->encoded : h->rsv & WSF_RSV1_BIT;
    uint64_t maximum = encoded ? d->max_encoded : d->max_payload;
    HOLDS(h->payload_len <= (control ? WSF_MAX_CONTROL : maximum));
    HOLDS((h->opcode == WSF_CONTINUATION) == (!control && d->in_message));
    HOLDS((h->rsv & ~d->rsv_allowed) == 0);
    HOLDS(h->rsv == 0 || h->opcode == WSF_TEXT || h->opcode == WSF_BINARY);
}

/* What a client would write for the same frame differs by the mask alone. */
static void check_encoding(const wsf_header *h, const uint8_t *frame, uint32_t key) {
    uint8_t out[WSF_MAX_HEADER];
    size_t size = wsf_header_size(h->payload_len);
    uint8_t first = (uint8_t)(h->fin << 7 | h->rsv | h->opcode);
    HOLDS(size == h->header_len + 4U);
    HOLDS(wsf_encode_header(out, first, h->payload_len, key) == size);
    HOLDS(out[1] & WSF_MASK_BIT);
    out[1] &= WSF_LENGTH_BITS;
    HOLDS(memcmp(out, frame, h->header_len) == 0);
    HOLDS(memcmp(out + h->header_len, &key, 4) == 0);
}

/* Every kernel masks alike, and twice is not at all. */
static void check_masking(const uint8_t *payload, size_t n, uint32_t key) {
    uint8_t *expected = exact_copy(payload, n);
    uint8_t key_bytes[4];
    memcpy(key_bytes, &key, 4);
    for (size_t i = 0; i < n; i++)
        expected[i] ^= key_bytes[i % 4];
    for (size_t i = 0; i < wsf_mask_kernel_count; i++) {
        if (!wsf_mask_kernels[i].supported())
            continue;
        uint8_t *work = exact_copy(payload, n);
        wsf_mask_kernels[i].fn(work, payload, n, key);
        HOLDS(memcmp(work, expected, n) == 0);
        wsf_mask_kernels[i].fn(work, work, n, key);
        HOLDS(memcmp(work, payload, n) == 0);
        free(work);
    }
    free(expected);
}

/* What became of a stream. */
typedef struct outcome {
    wsf_status status; /* of the bytes at `at`: a violation, or not yet a frame */
    size_t frames;
    size_t at;
    uint64_t digest; /* of all headers */
    uint8_t in_message;
} outcome;

static void take(outcome *o, wsf_decoder *d, const wsf_header *h) {
    int open = d->in_message;
    wsf_decoder_advance(d, h);
    HOLDS(d->in_message == (h->opcode >= 8 ? open : !h->fin));
    o->frames++;
    o->at += h->header_len + (size_t)h->payload_len;
    o->digest = (o->digest ^ h->payload_len ^ (uint64_t)h->opcode << 40 ^ (uint64_t)h->fin << 48 ^
                 (uint64_t)h->rsv << 52) *
                0x9E3779B97F4A7C15;
    o->in_message = d->in_message;
}

static outcome whole(wsf_decoder d, const uint8_t *p, size_t n, uint32_t key) {
    outcome o = {WSF_INCOMPLETE, 0, 0, 0, d.in_message};
    wsf_header h;
    while ((o.status = settle(&d, p + o.at, n - o.at, &h)) == WSF_FRAME) {
        check_legal(&d, &h);
        check_encoding(&h, p + o.at, key);
        if (h.payload_len > n - o.at - h.header_len)
            break;
        check_masking(p + o.at + h.header_len, (size_t)h.payload_len, key);
        take(&o, &d, &h);
    }
    HOLDS((o.status < 0) == (wsf_status_close_code(o.status) != 0));
    HOLDS((o.status < 0) == (wsf_status_reason(o.status)[0] != '\0'));
    return o;
}

/* As a connection reads: pieces are put behind what is left, and each is looked at when it comes.
 */
static outcome in_pieces(wsf_decoder d, const uint8_t *p, size_t n, uint32_t random) {
    outcome o = {WSF_INCOMPLETE, 0, 0, 0, d.in_message};
    for (size_t have = 0; have < n && o.status >= 0;) {
        have += next_piece(&random, n - have);
        wsf_header h;
        uint8_t *bytes = exact_copy(p, have);
        while ((o.status = decode(&d, bytes + o.at, have - o.at, &h)) == WSF_FRAME) {
            if (h.payload_len > have - o.at - h.header_len)
                break;
            take(&o, &d, &h);
        }
        free(bytes);
    }
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    wsf_decoder d = set_up(data[0]);
    uint32_t key = (uint32_t)data[0] * 0x01000193U ^ (uint32_t)data[1] * 0x9E3779B9U;
    outcome one = whole(d, data + 2, size - 2, key);
    outcome other = in_pieces(d, data + 2, size - 2, data[1]);
    HOLDS(one.status == other.status);
    HOLDS(one.frames == other.frames && one.at == other.at && one.digest == other.digest);
    HOLDS(one.in_message == other.in_message);
    return 0;
}

/*
 * The UTF-8 validator, fed in pieces, against code points put together by arithmetic.
 *
 * Input: a byte that seeds the pieces, then the text.
 */
#include "utf8.h"
#include "fuzz.h"

/*
 * 1 if some valid text begins with the n bytes at p; *complete says if it may end there. A sequence
 * of which bytes are missing can become any code point between the one with zeros in their place
 * and the one with ones.
 */
static int begins_text(const uint8_t *p, size_t n, int *complete) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *complete = 1;
    for (size_t i = 0; i < n;) {
        uint8_t lead = p[i];
        size_t length = lead < 0x80       ? 1
                        : lead >> 5 == 6  ? 2
                        : lead >> 4 == 14 ? 3
                        : lead >> 3 == 30 ? 4
                                          : 0;
        if (length == 0)
            return 0;
        uint32_t low = length == 1 ? lead : lead & (0x7FU >> length);
        uint32_t high = low;
        for (size_t k = 1; k < length; k++) {
            int here = i + k < n;
            if (here && p[i + k] >> 6 != 2)
                return 0;
            low = low << 6 | (here ? p[i + k] & 0x3F : 0);
            high = high << 6 | (here ? p[i + k] & 0x3F : 0x3F);
        }
        low = low < least[length] ? least[length] : low;
        high = high > 0x10FFFF ? 0x10FFFF : high;
        if (low > high || (low >= 0xD800 && high <= 0xDFFF))
            return 0;
        *complete = i + length <= n;
        i += length;
    }
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 4096) /* the reference starts anew at every piece */
        return 0;
    const uint8_t *text = data + 1;
    uint32_t random = data[0];
    wsf_utf8 v = {0};
    size_t n = size - 1;
    for (size_t fed = 0; fed < n;) {
        size_t piece = next_piece(&random, n - fed);
        uint8_t *bytes = exact_copy(text + fed, piece);
        int verdict = wsf_utf8_feed(&v, bytes, piece);
        free(bytes);
        fed += piece;
        int complete;
        int expected = begins_text(text, fed, &complete);
        HOLDS(verdict == expected);
        HOLDS(wsf_utf8_complete(&v) == (expected && complete));
        HOLDS(wsf_utf8_feed(&v, NULL, 0) == expected);
    }
    wsf_utf8 at_once = {0};
    wsf_utf8_feed(&at_once, text, n);
    HOLDS(at_once.state == v.state);
    return 0;
}

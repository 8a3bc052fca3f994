/* One SHA-1 (FIPS 180-4) of a short text, and its base64: all an upgrade needs. */
#include "accept_key.h"

#include <stdint.h>
#include <string.h>

static const char GUID[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

enum { BLOCK = 64, DIGEST = 20, LONGEST_KEY = 64 };

static uint32_t rotate(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void sha1_block(uint32_t h[5], const uint8_t block[BLOCK]) {
    uint32_t w[80];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);

    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20) {
            f = (b & c) | (~b & d), k = 0x5A827999;
        } else if (i < 40) {
            f = b ^ c ^ d, k = 0x6ED9EBA1;
        } else if (i < 60) {
            f = (b & c) | (b & d) | (c & d), k = 0x8F1BBCDC;
        } else {
            f = b ^ c ^ d, k = 0xCA62C1D6;
        }
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

static void sha1(uint8_t digest[DIGEST], const uint8_t *text, size_t size) {
    uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t padded[3 * BLOCK] = {0}; /* the text, one 0x80, and the bit count at the very end */
    size_t blocks = (size + 9 + BLOCK - 1) / BLOCK;
    memcpy(padded, text, size);
    padded[size] = 0x80;
    for (int i = 0; i < 8; i++)
        padded[blocks * BLOCK - 1 - (size_t)i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
    for (size_t i = 0; i < blocks; i++)
        sha1_block(h, padded + i * BLOCK);
    for (int i = 0; i < DIGEST; i++)
        digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64(char *out, const uint8_t *bytes, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t v = (uint32_t)bytes[i] << 16;
        v |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        v |= left > 2 ? bytes[i + 2] : 0;
        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = left > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[v & 63] : '=';
    }
    *out = '\0';
}

void accept_key(char out[ACCEPT_KEY_SIZE + 1], const char *key, size_t size) {
    uint8_t text[LONGEST_KEY + sizeof GUID - 1], digest[DIGEST];
    size = size < LONGEST_KEY ? size : LONGEST_KEY;
    memcpy(text, key, size);
    memcpy(text + size, GUID, sizeof GUID - 1);
    sha1(digest, text, size + sizeof GUID - 1);
    base64(out, digest, DIGEST);
}

/* The floor of receiving: recv into one buffer and find the frames in it.
 *
 *   flood <port> <cpu> <size> <count> <rounds> <warmup> [authority]
 *
 * Each frame's length and both its ends are checked, which is cheaper than making any object of it.
 * Timed from the request leaving to the last frame. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/net.h"
#include "../common/samples.h"

enum { READ_SIZE = 256 * 1024 };

/* "FLOOD" travels as a masked TEXT frame; a key of zeros is a key. */
static size_t put_request(uint8_t *out, size_t count, size_t size) {
    char text[64];
    int length = snprintf(text, sizeof text, "FLOOD %zu %zu text", count, size);
    size_t header = frame_header_encode(out, FIN | OP_TEXT, (uint64_t)length, (uint8_t[4]){0});
    memcpy(out + header, text, (size_t)length);
    return header + (size_t)length;
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 7 || argc == 8,
          "usage: flood <port> <cpu> <size> <count> <rounds> <warmup> [authority]");
    size_t size = strtoul(argv[3], NULL, 10), count = strtoul(argv[4], NULL, 10);
    size_t warmup = strtoul(argv[6], NULL, 10), rounds = warmup + strtoul(argv[5], NULL, 10);
    pin_to(atoi(argv[2]));

    struct stream *server = dial(atoi(argv[1]), argv[7]);
    struct reader reader = reader_on(server, READ_SIZE + size);
    uint64_t *ns = buffer_of(rounds * sizeof *ns);
    uint8_t request[128], last = (uint8_t)('a' + (size - 1) % 26);
    size_t request_size = put_request(request, count, size);

    for (size_t i = 0; i < rounds; i++) {
        struct frame f;
        const uint8_t *payload;
        uint64_t start = now_ns();
        if (send_all(server, request, request_size) != 0)
            die("send");
        for (size_t frames = 0; frames < count;) {
            reader_fill(&reader, 0);
            while (frames < count && (payload = reader_next(&reader, &f)) != NULL) {
                check(f.size == size && payload[0] == 'a' && payload[size - 1] == last,
                      "a frame is not what was asked for");
                frames++;
            }
        }
        ns[i] = now_ns() - start;
        while ((payload = reader_next(&reader, &f)) == NULL)
            reader_fill(&reader, 0);
        check(f.size == 4 && memcmp(payload, "DONE", 4) == 0, "the flood does not end with DONE");
    }
    samples_print(ns + warmup, rounds - warmup);
}

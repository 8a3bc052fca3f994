/* The floor of receiving: recv into one buffer and find the frames in it.
 *
 *   flood <bytes|str> <port> <cpu> <size> <count> <rounds> <warmup> [authority]
 *
 * Frames are BINARY for `bytes` and TEXT for `str`. Each frame's length and both its ends are
 * checked, which is cheaper than making any object of it. Timed from the request leaving to the
 * frame "DONE".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/net.h"
#include "../common/samples.h"

enum { READ_SIZE = 256 * 1024 };

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 8 || argc == 9,
          "usage: flood <bytes|str> <port> <cpu> <size> <count> <rounds> <warmup> [authority]");
    size_t size = strtoul(argv[4], NULL, 10), count = strtoul(argv[5], NULL, 10);
    size_t warmup = strtoul(argv[7], NULL, 10), rounds = warmup + strtoul(argv[6], NULL, 10);
    int text = strcmp(argv[1], "str") == 0, opcode = text ? OP_TEXT : OP_BINARY;
    pin_to(atoi(argv[3]));

    struct stream *server = dial(atoi(argv[2]), argv[8]);
    struct reader reader = reader_on(server, READ_SIZE + size);
    uint64_t *ns = buffer_of(rounds * sizeof *ns);
    uint8_t request[128], last = (uint8_t)('a' + (size - 1) % 26);
    char ask[64];
    int length =
        snprintf(ask, sizeof ask, "FLOOD %zu %zu %s", count, size, text ? "text" : "binary");
    size_t request_size = put_frame(request, (const uint8_t *)ask, (size_t)length);

    for (size_t i = 0; i < rounds; i++) {
        struct frame f;
        const uint8_t *payload;
        uint64_t start = now_ns();
        if (send_all(server, request, request_size) != 0)
            die("send");
        for (size_t frames = 0; frames < count;) {
            reader_fill(&reader, 0);
            while (frames < count && (payload = reader_next(&reader, &f)) != NULL) {
                check(f.opcode == opcode && f.size == size && payload[0] == 'a' &&
                          payload[size - 1] == last,
                      "a frame is not what was asked for");
                frames++;
            }
        }
        while ((payload = reader_next(&reader, &f)) == NULL)
            reader_fill(&reader, 0);
        ns[i] = now_ns() - start;
        check(f.size == 4 && memcmp(payload, "DONE", 4) == 0, "the flood does not end with DONE");
    }
    samples_print(ns + warmup, rounds - warmup);
}

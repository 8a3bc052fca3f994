/* The floor of a batch: all frames masked into one buffer, as few sends as can be, then all echoes
 * parsed.
 *
 *   batch <port> <cpu> <size> <count> <rounds> <warmup> [authority]
 *
 * A batch larger than CHUNK leaves in chunks that stay in cache, and echoes are read whenever the
 * socket is full, or two blocking ends would wait for each other. Timed from before the masking to
 * the last echo. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../common/net.h"
#include "../common/samples.h"

enum { CHUNK = 256 * 1024, READ_SIZE = 256 * 1024 };

/* The frames not yet sent: built in `data` from `next` on, [at, end) waiting for room in the socket. */
struct outbox {
    uint8_t *data, **payloads;
    const uint8_t *at, *end;
    size_t size, count, next;
};

static void send_some(struct stream *to, struct outbox *o) {
    if (o->at == o->end) {
        size_t built = 0;
        while (o->next < o->count && built + LONGEST_HEADER + o->size <= CHUNK + o->size)
            built += put_frame(o->data + built, o->payloads[o->next++], o->size);
        o->at = stream_seal(to, o->data, &built);
        o->end = o->at + built;
    }
    int fd = stream_fd(to);
    ssize_t sent = send(fd, o->at, (size_t)(o->end - o->at), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
        o->at += sent;
    else if (errno != EAGAIN)
        die("send");
    else
        poll(&(struct pollfd){.fd = fd, .events = POLLIN | POLLOUT}, 1, -1);
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 7 || argc == 8,
          "usage: batch <port> <cpu> <size> <count> <rounds> <warmup> [authority]");
    size_t size = strtoul(argv[3], NULL, 10), count = strtoul(argv[4], NULL, 10);
    size_t warmup = strtoul(argv[6], NULL, 10), rounds = warmup + strtoul(argv[5], NULL, 10);
    pin_to(atoi(argv[2]));

    struct stream *server = dial(atoi(argv[1]), argv[7]);
    struct reader reader = reader_on(server, READ_SIZE + size);
    uint64_t *ns = buffer_of(rounds * sizeof *ns);
    uint8_t **payloads = buffer_of(count * sizeof *payloads);
    for (size_t i = 0; i < count; i++) {
        payloads[i] = buffer_of(size);
        for (size_t j = 0; j < size; j++)
            payloads[i][j] = payload_byte(i, j);
    }
    uint8_t *data = buffer_of(CHUNK + LONGEST_HEADER + size);

    for (size_t i = 0; i < rounds; i++) {
        struct outbox o = {.data = data, .payloads = payloads, .size = size, .count = count};
        struct frame f;
        const uint8_t *reply = NULL, *last = NULL;
        uint64_t start = now_ns();
        for (size_t echoes = 0; echoes < count;) {
            int sending = o.next < o.count || o.at < o.end;
            if (sending)
                send_some(server, &o);
            reader_fill(&reader, o.next < o.count || o.at < o.end ? MSG_DONTWAIT : 0);
            while ((reply = reader_next(&reader, &f)) != NULL) {
                check(f.size == size && f.opcode == OP_BINARY, "an echo is not what was sent");
                last = reply;
                echoes++;
            }
        }
        ns[i] = now_ns() - start;
        check(memcmp(last, payloads[count - 1], size) == 0, "the last echo is not what was sent");
    }
    samples_print(ns + warmup, rounds - warmup);
}

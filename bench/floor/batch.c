/* The floor of a batch: all frames masked into one buffer, as few sends as can be, then all echoes
 * parsed.
 *
 *   batch <port> <cpu> <size> <count> <rounds> <warmup>
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

/* The frames not yet sent: built from `next` on, [at, end) of `data` waiting for room in the
 * socket. */
struct outbox {
    uint8_t *data, **payloads;
    size_t size, count, next, at, end;
};

static void send_some(int fd, struct outbox *o) {
    if (o->at == o->end) {
        o->at = o->end = 0;
        while (o->next < o->count && o->end + LONGEST_HEADER + o->size <= CHUNK + o->size)
            o->end += put_frame(o->data + o->end, o->payloads[o->next++], o->size);
    }
    ssize_t sent = send(fd, o->data + o->at, o->end - o->at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
        o->at += (size_t)sent;
    else if (errno != EAGAIN)
        die("send");
    else
        poll(&(struct pollfd){.fd = fd, .events = POLLIN | POLLOUT}, 1, -1);
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 7, "usage: batch <port> <cpu> <size> <count> <rounds> <warmup>");
    size_t size = strtoul(argv[3], NULL, 10), count = strtoul(argv[4], NULL, 10);
    size_t warmup = strtoul(argv[6], NULL, 10), rounds = warmup + strtoul(argv[5], NULL, 10);
    pin_to(atoi(argv[2]));

    int fd = dial(atoi(argv[1]));
    struct reader reader = reader_on(fd, READ_SIZE + size);
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
                send_some(fd, &o);
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

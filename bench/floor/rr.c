/* The floor of request-response: mask, send, wait, parse; one frame out, one frame back.
 *
 *   rr <blocking|epoll|spin> <port> <cpu> <size> <rounds> <warmup> [authority]
 *
 * `epoll` makes the system calls of an event loop, `spin` never sleeps. A round is timed from
 * before the masking until the reply is parsed; the reply is checked between rounds, as in
 * bench/clients. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../common/net.h"
#include "../common/samples.h"

enum { READ_SIZE = 256 * 1024 };

static const char usage[] = "usage: rr <blocking|epoll|spin> <port> <cpu> <size> <rounds> <warmup> [authority]";

static void fill_blocking(struct reader *r, int epoll) {
    (void)epoll;
    reader_fill(r, 0);
}

static void fill_epoll(struct reader *r, int epoll) {
    struct epoll_event event;
    if (stream_holds(r->from) || epoll_wait(epoll, &event, 1, -1) == 1)
        reader_fill(r, 0);
}

static void fill_spinning(struct reader *r, int epoll) {
    (void)epoll;
    while (!reader_fill(r, MSG_DONTWAIT))
        ;
}

static int epoll_on(int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        die("epoll");
    return epoll;
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 7 || argc == 8, usage);
    const char *mode = argv[1];
    size_t size = strtoul(argv[4], NULL, 10), warmup = strtoul(argv[6], NULL, 10);
    size_t rounds = warmup + strtoul(argv[5], NULL, 10);
    pin_to(atoi(argv[3]));

    struct stream *server = dial(atoi(argv[2]), argv[7]);
    int epoll = -1;
    void (*fill)(struct reader *, int) = fill_blocking;
    if (strcmp(mode, "epoll") == 0) {
        fill = fill_epoll;
        epoll = epoll_on(stream_fd(server));
    } else if (strcmp(mode, "spin") == 0) {
        fill = fill_spinning;
    } else {
        check(strcmp(mode, "blocking") == 0, usage);
    }

    struct reader reader = reader_on(server, READ_SIZE + size);
    uint8_t *payload = buffer_of(size), *out = buffer_of(LONGEST_HEADER + size);
    uint64_t *ns = buffer_of(rounds * sizeof *ns);
    for (size_t i = 0; i < size; i++)
        payload[i] = payload_byte(0, i);

    struct frame f;
    const uint8_t *reply = NULL;
    for (size_t i = 0; i < rounds; i++) {
        uint64_t start = now_ns();
        if (send_all(server, out, put_frame(out, payload, size)) != 0)
            die("send");
        while ((reply = reader_next(&reader, &f)) == NULL)
            fill(&reader, epoll);
        ns[i] = now_ns() - start;
        check(f.size == size && f.opcode == OP_BINARY && reply[0] == payload[0] &&
                  reply[size - 1] == payload[size - 1],
              "a reply is not what was sent");
    }
    check(memcmp(reply, payload, size) == 0, "the last reply is not what was sent");
    samples_print(ns + warmup, rounds - warmup);
}

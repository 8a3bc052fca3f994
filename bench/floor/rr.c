/* The floor of request-response: mask, send, wait, parse; one frame out, one frame back.
 *
 *   rr <blocking|vectored|epoll|spin> <port> <cpu> <size[-upto]> <rounds> <warmup> [authority]
 *
 * `epoll` makes the system calls of an event loop, `spin` never sleeps, and `vectored` blocks and
 * sends header and payload from two buffers. Sizes up to `upto` are random, those of
 * payloads.sizes(). A round is timed from
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

static const char usage[] = "usage: rr <blocking|vectored|epoll|spin> <port> <cpu> <size[-upto]> "
                            "<rounds> <warmup> [authority]";

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

/* Header and masked payload by one sendmsg(2), without moving either beside the other. */
static void send_vectored(struct stream *to, uint8_t *out, const uint8_t *payload, size_t size) {
    uint8_t header[LONGEST_HEADER], key[4] = {0x1b, 0xad, 0xbe, 0xef};
    struct iovec parts[] = {
        {header, frame_header_encode(header, FIN | OP_BINARY, size, key)},
        {out, size},
    };
    frame_mask(out, payload, size, key);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = sendmsg(stream_fd(to), &message, MSG_NOSIGNAL);
    check(sent == (ssize_t)(parts[0].iov_len + size), "sendmsg sent a part only");
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 7 || argc == 8, usage);
    const char *mode = argv[1];
    char *end;
    size_t least = strtoul(argv[4], &end, 10), warmup = strtoul(argv[6], NULL, 10);
    size_t most = *end == '-' ? strtoul(end + 1, NULL, 10) : least, size = most;
    size_t rounds = warmup + strtoul(argv[5], NULL, 10);
    pin_to(atoi(argv[3]));

    struct stream *server = dial(atoi(argv[2]), argv[7]);
    int epoll = -1, vectored = strcmp(mode, "vectored") == 0;
    void (*fill)(struct reader *, int) = fill_blocking;
    if (strcmp(mode, "epoll") == 0) {
        fill = fill_epoll;
        epoll = epoll_on(stream_fd(server));
    } else if (strcmp(mode, "spin") == 0) {
        fill = fill_spinning;
    } else {
        check(vectored || strcmp(mode, "blocking") == 0, usage);
    }

    struct reader reader = reader_on(server, READ_SIZE + size);
    uint8_t *payload = buffer_of(size), *area = buffer_of(CACHE_LINE + size);
    uint64_t *ns = buffer_of(rounds * sizeof *ns);
    for (size_t i = 0; i < size; i++)
        payload[i] = payload_byte(0, i);

    struct frame f;
    const uint8_t *reply = NULL;
    uint32_t state = 1;
    for (size_t i = 0; i < rounds; i++) {
        state = state * 1664525u + 1013904223u;
        size = least + (state >> 8) % (most - least + 1);
        uint8_t *out = area + CACHE_LINE - masked_header_size(size); /* the payload is on a line */
        uint64_t start = now_ns();
        if (vectored)
            send_vectored(server, out, payload, size);
        else if (send_all(server, out, put_frame(out, payload, size)) != 0)
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

/* The floor of many connections: each with one round trip after another, in one epoll.
 *
 *   many <port> <cpu> <size> <connections> <rounds> <warmup> [authority]
 *
 * A round is as long as that of bench/works: every connection makes TRIPS(connections) round trips.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "../common/net.h"
#include "../common/samples.h"

enum { READ_SIZE = 4096, EVENTS = 256 };

struct peer {
    struct reader reader;
    size_t left;
};

static size_t trips(size_t connections) {
    return 1000 / connections > 10 ? 1000 / connections : 10;
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 7 || argc == 8,
          "usage: many <port> <cpu> <size> <connections> <rounds> <warmup> [authority]");
    size_t size = strtoul(argv[3], NULL, 10), count = strtoul(argv[4], NULL, 10);
    size_t warmup = strtoul(argv[6], NULL, 10), rounds = warmup + strtoul(argv[5], NULL, 10);
    pin_to(atoi(argv[2]));
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }

    struct peer *peers = buffer_of(count * sizeof *peers);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peers[i]};
        peers[i].reader = reader_on(dial(atoi(argv[1]), argv[7]), READ_SIZE + size);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, stream_fd(peers[i].reader.from), &event) != 0)
            die("epoll_ctl");
    }
    uint8_t *payload = buffer_of(size), *out = buffer_of(LONGEST_HEADER + size);
    uint64_t *ns = buffer_of(rounds * sizeof *ns);
    for (size_t i = 0; i < size; i++)
        payload[i] = payload_byte(0, i);

    for (size_t round = 0; round < rounds; round++) {
        uint64_t start = now_ns();
        for (size_t i = 0; i < count; i++) {
            peers[i].left = trips(count);
            if (send_all(peers[i].reader.from, out, put_frame(out, payload, size)) != 0)
                die("send");
        }
        for (size_t busy = count; busy > 0;) {
            struct epoll_event events[EVENTS];
            int got = epoll_wait(epoll, events, EVENTS, -1);
            for (int i = 0; i < got; i++) {
                struct peer *peer = events[i].data.ptr;
                struct frame f;
                const uint8_t *reply;
                reader_fill(&peer->reader, MSG_DONTWAIT);
                while ((reply = reader_next(&peer->reader, &f)) != NULL) {
                    check(f.size == size && f.opcode == OP_BINARY && reply[0] == payload[0] &&
                              reply[size - 1] == payload[size - 1],
                          "a reply is not what was sent");
                    if (--peer->left == 0)
                        busy--;
                    else if (send_all(peer->reader.from, out, put_frame(out, payload, size)) != 0)
                        die("send");
                }
            }
        }
        ns[round] = now_ns() - start;
    }
    samples_print(ns + warmup, rounds - warmup);
}

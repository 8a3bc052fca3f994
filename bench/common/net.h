/* What every C program of the bench does around its sockets. Any failure ends the program with a
 * message. */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "stream.h"

enum { PAGE = 4096 };

_Noreturn void die(const char *what);

/* Prints what went wrong unless `good`: the check of a reply. */
void check(int good, const char *what);

/* Be killed when the process that started us dies. */
void die_with_parent(void);

/* Stay on one CPU; a negative number means any. */
void pin_to(int cpu);

uint64_t now_ns(void);

/* Allocates or dies, at a page boundary: where the kernel copies fast (machine/offsets.c). Freed by free(); the
 * clients keep theirs until they end. */
void *buffer_of(size_t size);

/* Sends everything, waiting for room on a non-blocking socket as well. Returns -1 when the peer has
 * gone. */
int send_all(struct stream *to, const void *data, size_t size);

/* The same with bytes as the socket carries them. */
int send_bytes(int fd, const void *data, size_t size);

/* A connected and upgraded WebSocket to 127.0.0.1, blocking, with TCP_NODELAY; under TLS if `ca`
 * names the file of the authority to trust, and is not NULL. */
struct stream *dial(int port, const char *ca);

/* A listening socket on a free port of 127.0.0.1; prints "PORT <n>". */
int listen_on_loopback(void);

/* Reads a client's upgrade request and answers it. What came behind it stays in data[0:*have].
 * Returns -1 to give up. */
int upgrade(struct stream *from, uint8_t *data, size_t capacity, size_t *have);

/* Frames as they arrive: [start, end) of `data` is unread. */
struct reader {
    struct stream *from;
    uint8_t *data;
    size_t capacity, start, end;
};

struct reader reader_on(struct stream *from, size_t capacity);

/* One recv with `flags`. Returns 0 when it would have blocked, or a TLS record is incomplete. */
int reader_fill(struct reader *r, int flags);

/* The next complete frame, or NULL; returns its payload, good until the next reader_fill. */
const uint8_t *reader_next(struct reader *r, struct frame *f);

/* Byte `i` of request number `number`, as bench/clients/payloads.py has it. */
static inline uint8_t payload_byte(size_t number, size_t i) {
    return (uint8_t)((number + i) % 251);
}

/* A masked BINARY frame with a key of its own at `out`; returns its size. */
size_t put_frame(uint8_t *out, const uint8_t *payload, size_t size);

#endif

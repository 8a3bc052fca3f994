/* Where buffers should lie on this machine: what recv(2), send(2), masking and copying cost for each
 * offset of their memory from a page boundary.
 *
 *   offsets <cpu> <size> [repeats]
 *
 * One thread sends to itself over TCP on loopback, and times each call by itself. Of the repeats of
 * an offset, which take turns with those of all others, it keeps the lower quartile. The sizes are
 * ns per call. A table says its rows and columns. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../../wsfast/core/mask.h"
#include "../common/net.h"

enum { CALLS = 8 }; /* calls that make one repeat: a clock has its own grain */

static const size_t offsets[] = {0, 8, 16, 24, 32, 48, 64, 128, 256, 1024, 2048, 4032, 4080};
enum { N = sizeof offsets / sizeof *offsets };

static uint8_t *source, *target;
static size_t size, repeats;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quartile(double *ns) {
    qsort(ns, repeats, sizeof *ns, ascending);
    return ns[repeats / 4];
}

/* ---- the socket */

static void connect_to_self(int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), room = 8 << 20;
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (bind(listener, (struct sockaddr *)&at, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &length) != 0 ||
        connect(ends[0], (struct sockaddr *)&at, length) != 0)
        die("connect");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0)
        die("accept");
}

/* One message through the socket, from and to these places; ns of all the calls of each kind. */
static void exchange(const int ends[2], const uint8_t *from, uint8_t *to, double *sending,
                     double *receiving) {
    uint64_t start = now_ns(), sent;
    if (send_bytes(ends[0], from, size) != 0)
        die("send");
    sent = now_ns();
    for (size_t have = 0; have < size;) {
        ssize_t got = recv(ends[1], to + have, size - have, 0);
        if (got <= 0)
            die("recv");
        have += (size_t)got;
    }
    *sending += (double)(sent - start);
    *receiving += (double)(now_ns() - sent);
}

static void map_socket(void) {
    int ends[2];
    double *sending[N], *receiving[N], unused;
    connect_to_self(ends);
    for (size_t i = 0; i < N; i++) {
        sending[i] = buffer_of(repeats * sizeof **sending);
        receiving[i] = buffer_of(repeats * sizeof **receiving);
    }
    for (size_t r = 0; r < repeats; r++) {
        for (size_t i = 0; i < N; i++) {
            sending[i][r] = receiving[i][r] = 0;
            for (int call = 0; call < CALLS; call++) {
                exchange(ends, source + offsets[i], target, &sending[i][r], &unused);
                exchange(ends, source, target + offsets[i], &unused, &receiving[i][r]);
            }
        }
    }
    printf("offset        send      recv\n");
    for (size_t i = 0; i < N; i++)
        printf("%6zu  %10.0f%10.0f\n", offsets[i], quartile(sending[i]) / CALLS,
               quartile(receiving[i]) / CALLS);
}

/* ---- memory */

static void mask(uint8_t *to, const uint8_t *from) { wsf_mask_best()->fn(to, from, size, 0x12345678); }

static void copy(uint8_t *to, const uint8_t *from) { memcpy(to, from, size); }

static void map_memory(const char *name, void (*work)(uint8_t *, const uint8_t *)) {
    double *ns[N][N];
    for (size_t i = 0; i < N * N; i++)
        ns[i / N][i % N] = buffer_of(repeats * sizeof ***ns);
    for (size_t r = 0; r < repeats; r++) {
        for (size_t i = 0; i < N * N; i++) {
            uint64_t start = now_ns();
            for (int call = 0; call < CALLS; call++)
                work(target + offsets[i / N], source + offsets[i % N]);
            ns[i / N][i % N][r] = (double)(now_ns() - start) / CALLS;
        }
    }
    printf("\n%s: from the offset of the column, to that of the row\n      ", name);
    for (size_t i = 0; i < N; i++)
        printf("%8zu", offsets[i]);
    for (size_t i = 0; i < N * N; i++) {
        if (i % N == 0)
            printf("\n%6zu", offsets[i / N]);
        printf("%8.0f", quartile(ns[i / N][i % N]));
    }
    printf("\n");
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 3 || argc == 4, "usage: offsets <cpu> <size> [repeats]");
    pin_to(atoi(argv[1]));
    size = strtoul(argv[2], NULL, 10);
    repeats = argc == 4 ? strtoul(argv[3], NULL, 10) : 200;
    check(size > 0 && repeats > 0, "neither may be 0");
    source = buffer_of(size + 2 * PAGE);
    target = buffer_of(size + 2 * PAGE);
    memset(source, 'x', size + PAGE);
    memset(target, 'x', size + PAGE);
    map_socket();
    map_memory("masking", mask);
    map_memory("copying", copy);
}

/* Sockets, clocks and buffers: the part of a C client that is not being measured. */
#define _GNU_SOURCE
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "accept_key.h"

void die(const char *what) {
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

void check(int good, const char *what) {
    if (!good) {
        errno = 0;
        die(what);
    }
}

void die_with_parent(void) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        die("prctl");
}

void pin_to(int cpu) {
    if (cpu < 0)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *buffer_of(size_t size) {
    void *buffer;
    if ((errno = posix_memalign(&buffer, PAGE, size)) != 0)
        die("posix_memalign");
    return buffer;
}

int send_all(struct stream *to, const void *data, size_t size) {
    const void *sealed = stream_seal(to, data, &size);
    return send_bytes(stream_fd(to), sealed, size);
}

int send_bytes(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

struct stream *dial(int port, const char *ca) {
    static const char key[] = "AAECAwQFBgcICQoLDA0ODw==";
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct stream *server = stream_connect(fd, ca);

    char text[1024], want[ACCEPT_KEY_SIZE + 1];
    int size = snprintf(text, sizeof text,
                        "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\n"
                        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                        "Sec-WebSocket-Key: %s\r\n\r\n",
                        port, key);
    if (send_all(server, text, (size_t)size) != 0)
        die("send");
    size_t have = 0; /* the server speaks again only when spoken to, so nothing follows the reply */
    text[0] = '\0';
    do {
        ssize_t got = stream_recv(server, text + have, sizeof text - 1 - have, 0);
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got <= 0)
            die("no reply to the upgrade");
        have += (size_t)got;
        text[have] = '\0';
    } while (strstr(text, "\r\n\r\n") == NULL);
    accept_key(want, key, sizeof key - 1);
    check(strncmp(text, "HTTP/1.1 101", 12) == 0 && strstr(text, want) != NULL, "upgrade refused");
    return server;
}

int listen_on_loopback(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        die("listen");
    printf("PORT %d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

int upgrade(struct stream *from, uint8_t *data, size_t capacity, size_t *have) {
    static const char name[] = "\r\nSec-WebSocket-Key:";
    char *end;
    while ((end = memmem(data, *have, "\r\n\r\n", 4)) == NULL) {
        ssize_t got = stream_recv(from, data + *have, capacity - 1 - *have, 0);
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got <= 0)
            return -1;
        *have += (size_t)got;
        data[*have] = '\0';
    }
    *end = '\0';
    char *key = strcasestr((char *)data, name), accept[ACCEPT_KEY_SIZE + 1], reply[256];
    if (key == NULL)
        return -1;
    key += sizeof name - 1;
    key += strspn(key, " ");
    accept_key(accept, key, strcspn(key, " \r"));
    int size = snprintf(reply, sizeof reply,
                        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                        "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                        accept);
    uint8_t *rest = (uint8_t *)end + 4;
    *have -= (size_t)(rest - data);
    memmove(data, rest, *have);
    return send_all(from, reply, (size_t)size);
}

struct reader reader_on(struct stream *from, size_t capacity) {
    return (struct reader){.from = from, .data = buffer_of(capacity), .capacity = capacity};
}

int reader_fill(struct reader *r, int flags) {
    if (r->start >
        0) { /* a frame cut in two moves to the front, so its payload will be contiguous */
        memmove(r->data, r->data + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    ssize_t got = stream_recv(r->from, r->data + r->end, r->capacity - r->end, flags);
    if (got < 0 && errno == EAGAIN)
        return 0;
    if (got <= 0)
        die("recv");
    r->end += (size_t)got;
    return 1;
}

const uint8_t *reader_next(struct reader *r, struct frame *f) {
    const uint8_t *at = r->data + r->start;
    size_t have = r->end - r->start;
    if (!frame_header_decode(f, at, have) || have - f->header < f->size)
        return NULL;
    r->start += f->header + f->size;
    return at + f->header;
}

size_t put_frame(uint8_t *out, const uint8_t *payload, size_t size) {
    static uint64_t state = 0x9E3779B97F4A7C15u; /* xorshift64: a key per frame, no system call */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    uint8_t key[4];
    memcpy(key, &state, sizeof key);
    size_t header = frame_header_encode(out, FIN | OP_BINARY, size, key);
    frame_mask(out + header, payload, size, key);
    return header + size;
}

/* The neutral server: no contender's code, and as little work of its own as can be.
 *
 * A thread per connection, blocking. One recv, every complete frame in it answered in place, one
 * send. PING gets PONG, CLOSE gets CLOSE, and a message "FLOOD <count> <size> [text|binary]" gets
 * `count` frames of `size` bytes, sent as blocks built beforehand, and then "DONE".
 *
 *   echo [cpu [certificate|- [stamp]]]   prints "PORT <n>" and serves 127.0.0.1 until its parent
 * ends. With `stamp`, the last eight bytes of an echo are the time of the recv, in nanoseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/frame.h"
#include "../common/net.h"

enum {
    READ_SIZE = 256 * 1024,  /* a batch of 100 x 2 KiB in one read, and it still fits an L2 cache */
    BLOCK_SIZE = 128 * 1024, /* of a flood: a send costs as much as hundreds of frames */
    LONGEST_FRAME = 64 << 20, /* against a mad length, not a policy */
    STACK = 128 * 1024,       /* thousands of idle connections each have one */
};

static int stamping;

struct connection {
    struct stream *client;
    uint8_t *data;
    size_t capacity, have;
    uint64_t received; /* when the last recv returned, if echoes are stamped */
    struct {
        uint8_t *data;
        size_t frames, frame_size, payload;
        uint8_t opcode;
    } block;
};

static void build_block(struct connection *c, size_t payload, uint8_t opcode) {
    if (c->block.data != NULL && c->block.payload == payload && c->block.opcode == opcode)
        return;
    uint8_t header[LONGEST_HEADER];
    size_t header_size = frame_header_encode(header, FIN | opcode, payload, NULL);
    size_t frame_size = header_size + payload;
    size_t frames = frame_size < BLOCK_SIZE ? BLOCK_SIZE / frame_size : 1;
    free(c->block.data);
    uint8_t *at = c->block.data = buffer_of(frames * frame_size);
    for (size_t i = 0; i < frames; i++) {
        memcpy(at, header, header_size);
        at += header_size;
        for (size_t j = 0; j < payload; j++)
            *at++ = (uint8_t)('a' + j % 26);
    }
    c->block.frames = frames;
    c->block.frame_size = frame_size;
    c->block.payload = payload;
    c->block.opcode = opcode;
}

static int flood(struct connection *c, const char *request) {
    size_t count, payload;
    char kind[8] = "text";
    if (sscanf(request, "FLOOD %zu %zu %7s", &count, &payload, kind) < 2 || payload > LONGEST_FRAME)
        return -1;
    build_block(c, payload, strcmp(kind, "binary") == 0 ? OP_BINARY : OP_TEXT);
    while (count > 0) {
        size_t frames = count < c->block.frames ? count : c->block.frames;
        if (send_all(c->client, c->block.data, frames * c->block.frame_size) != 0)
            return -1;
        count -= frames;
    }
    uint8_t done[] = {(uint8_t)(FIN | c->block.opcode), 4, 'D', 'O', 'N', 'E'};
    return send_all(c->client, done, sizeof done);
}

/* The payload of a frame as a C string, if it asks for a flood. */
static int flood_request(char *out, size_t room, const struct frame *f, const uint8_t *payload) {
    int message = f->first == (FIN | OP_TEXT) || f->first == (FIN | OP_BINARY);
    if (!message || f->size < 6 || f->size >= room)
        return 0;
    frame_mask((uint8_t *)out, payload, f->size, f->key);
    out[f->size] = '\0';
    return memcmp(out, "FLOOD ", 6) == 0;
}

/* Answers every complete frame of the buffer with one send, and keeps what is left. An answer is
 * shorter than its question (it has no key), so answers are written over the questions. Returns -1
 * to hang up. */
static int answer(struct connection *c) {
    size_t in = 0, out = 0;
    int closed = 0;
    struct frame f;
    while (!closed && frame_header_decode(&f, c->data + in, c->have - in)) {
        char text[64];
        uint8_t *payload = c->data + in + f.header;
        if (!f.masked || f.size > LONGEST_FRAME)
            return -1;
        if (c->have - in - f.header < f.size)
            break;
        in += f.header + f.size;
        if (flood_request(text, sizeof text, &f, payload)) {
            if (send_all(c->client, c->data, out) != 0 || flood(c, text) != 0)
                return -1;
            out = 0;
        } else if (f.opcode != OP_PONG) {
            uint8_t first = f.opcode == OP_PING ? FIN | OP_PONG : f.first;
            out += frame_header_encode(c->data + out, first, f.size, NULL);
            frame_mask(c->data + out, payload, f.size, f.key);
            out += f.size;
            if (stamping && f.size > sizeof c->received)
                memcpy(c->data + out - sizeof c->received, &c->received, sizeof c->received);
            closed = f.opcode == OP_CLOSE;
        }
    }
    if (send_all(c->client, c->data, out) != 0 || closed)
        return -1;
    c->have -= in;
    memmove(c->data, c->data + in, c->have);
    if (frame_header_decode(&f, c->data, c->have) && f.header + f.size > c->capacity) {
        c->capacity = f.header + f.size;
        c->data = realloc(c->data, c->capacity);
        if (c->data == NULL)
            die("realloc");
    }
    return 0;
}

static void *serve(void *argument) {
    struct connection c = {.client = stream_accept((int)(intptr_t)argument), .capacity = READ_SIZE};
    if (c.client == NULL)
        return NULL;
    c.data = buffer_of(c.capacity);
    if (upgrade(c.client, c.data, c.capacity, &c.have) == 0) {
        while (answer(&c) == 0) {
            ssize_t got = stream_recv(c.client, c.data + c.have, c.capacity - c.have, 0);
            if (got < 0 && errno == EAGAIN)
                continue;
            if (got <= 0)
                break;
            c.have += (size_t)got;
            if (stamping)
                c.received = now_ns();
        }
    }
    stream_close(c.client);
    free(c.block.data);
    free(c.data);
    return NULL;
}

int main(int argc, char **argv) {
    die_with_parent();
    pin_to(argc > 1 ? atoi(argv[1]) : -1);
    stream_certificate(argc > 2 && strcmp(argv[2], "-") != 0 ? argv[2] : NULL);
    stamping = argc > 3 && strcmp(argv[3], "stamp") == 0;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* idle connections come in thousands */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, STACK);

    for (int listener = listen_on_loopback(), on = 1;;) {
        pthread_t thread;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            die("accept");
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if ((errno = pthread_create(&thread, &detached, serve, (void *)(intptr_t)fd)) != 0)
            die("pthread_create");
    }
}

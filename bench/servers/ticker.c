/* Round trips by the clock: sends ticks on schedule, come what may, and times their answers.
 *
 * A tick is due every <interval> nanoseconds. Its round trip lasts from when it was due until its
 * answer is read, so a stall of the client counts for every tick that was due meanwhile, and not
 * for one only (no coordinated omission). The server spins: it neither sleeps nor is woken.
 *
 *   ticker <cpu> <size> <count> <warmup> <interval>
 *
 * Prints "PORT <n>", serves one client on 127.0.0.1, which sends back each BINARY frame as it came,
 * and prints the summary of bench/common/samples.h. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/net.h"
#include "../common/samples.h"

enum { READ_SIZE = 256 * 1024 };

static const uint64_t PATIENCE = 10000000000u; /* for the last answers */

/* Reads what has come, and notes the time for each answer in it. */
static size_t take_answers(struct reader *r, uint64_t *answered, size_t done, size_t size) {
    struct frame f;
    const uint8_t *payload;
    if (!reader_fill(r, MSG_DONTWAIT))
        return done;
    uint64_t now = now_ns();
    while ((payload = reader_next(r, &f)) != NULL) {
        uint64_t number = 0;
        uint8_t head[sizeof number];
        check(f.masked && f.opcode == OP_BINARY && f.size == size, "this is no answer");
        frame_mask(head, payload, sizeof head, f.key);
        memcpy(&number, head, sizeof number);
        check(number == done, "an answer is missing, or came twice");
        answered[done++] = now;
    }
    return done;
}

int main(int argc, char **argv) {
    die_with_parent();
    check(argc == 6, "usage: ticker <cpu> <size> <count> <warmup> <interval>");
    size_t size = strtoul(argv[2], NULL, 10), warmup = strtoul(argv[4], NULL, 10);
    size_t count = warmup + strtoul(argv[3], NULL, 10), have = 0, done = 0;
    uint64_t interval = strtoull(argv[5], NULL, 10);
    check(size >= sizeof(uint64_t), "a tick has at least eight bytes, for its number");
    pin_to(atoi(argv[1]));

    int listener = listen_on_loopback(), on = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        die("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct stream *client = stream_accept(fd);
    struct reader reader = reader_on(client, READ_SIZE + size);
    check(upgrade(client, reader.data, reader.capacity, &have) == 0 && have == 0, "no upgrade");

    uint8_t *tick = buffer_of(LONGEST_HEADER + size);
    size_t header = frame_header_encode(tick, FIN | OP_BINARY, size, NULL);
    for (size_t i = 0; i < size; i++)
        tick[header + i] = payload_byte(0, i);
    uint64_t *answered = buffer_of(count * sizeof *answered), start = now_ns() + interval;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = i;
        while (now_ns() < start + i * interval)
            done = take_answers(&reader, answered, done, size);
        memcpy(tick + header, &number, sizeof number);
        if (send_all(client, tick, header + size) != 0)
            die("send");
    }
    for (uint64_t late = now_ns() + PATIENCE; done < count;) {
        check(now_ns() < late, "answers are missing");
        done = take_answers(&reader, answered, done, size);
    }
    for (size_t i = 0; i < count; i++)
        answered[i] -= start + i * interval;
    samples_print(answered + warmup, count - warmup);
    return 0;
}

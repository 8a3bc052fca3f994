/* The bytes of a connection, as its socket carries them (streams/plain.c) or under TLS
 * (streams/tls.c). A program is linked with one of the two, so its own source is the same for both.
 *
 * One thread uses a stream. Whoever opened it closes it. */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stream;

/* The client's end of a connected blocking socket. Trusts the authority in the file `ca`; without
 * TLS there is none. Dies if the server is not trusted. */
struct stream *stream_connect(int fd, const char *ca);

/* Once, before the first stream_accept(): the server's certificate chain and key, in one file. */
void stream_certificate(const char *file);

/* The server's end of a connected blocking socket; NULL if the client gave up. */
struct stream *stream_accept(int fd);

int stream_fd(const struct stream *s);

/* As recv(2), with at most one recv(2). -1 with EAGAIN may also mean that a record is incomplete. */
ssize_t stream_recv(struct stream *s, void *data, size_t size, int flags);

/* True if stream_recv() can give bytes that the kernel no longer has: do not wait for the socket. */
int stream_holds(const struct stream *s);

/* What to send for data[0:*size], in as few records as can be, and its size. Belongs to the stream,
 * or is `data`; good until the next call. */
const uint8_t *stream_seal(struct stream *s, const void *data, size_t *size);

/* Ends the stream in order, so that the peer gets everything, and closes the socket. */
void stream_close(struct stream *s);

#endif

/* A stream under TLS, by OpenSSL.
 *
 * OpenSSL does no I/O here: its BIO reads from and writes to two buffers. So one recv(2) takes as
 * many records as there are, all records of a message leave by one send(2), and nobody calls the
 * kernel to learn that there is nothing: what a client does that cares. */
#define _GNU_SOURCE
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../common/net.h"
#include "../common/stream.h"

enum {
    READ_SIZE = 256 * 1024, /* ciphertext of one recv(2) */
    CLOSING_SECONDS = 1,    /* for the peer to close as well */
};

struct stream {
    int fd;
    SSL *ssl;
    uint8_t *in, *out; /* ciphertext: in[start:end] is not decrypted yet, out[0:sealed] to be sent */
    size_t start, end, sealed, room;
};

static SSL_CTX *contexts[2];
enum { CLIENT, SERVER };

static _Noreturn void die_of_tls(const char *what) {
    ERR_print_errors_fp(stderr);
    errno = 0;
    die(what);
}

/* ---- OpenSSL's side of the buffers */

static int bio_read(BIO *bio, char *data, size_t size, size_t *got) {
    struct stream *s = BIO_get_data(bio);
    size_t have = s->end - s->start;
    *got = size < have ? size : have;
    memcpy(data, s->in + s->start, *got);
    s->start += *got;
    BIO_clear_retry_flags(bio);
    if (*got > 0)
        return 1;
    BIO_set_retry_read(bio);
    return 0;
}

static int bio_write(BIO *bio, const char *data, size_t size, size_t *put) {
    struct stream *s = BIO_get_data(bio);
    if (s->room - s->sealed < size) {
        s->room = 2 * (s->sealed + size);
        s->out = realloc(s->out, s->room);
        if (s->out == NULL)
            die("realloc");
    }
    memcpy(s->out + s->sealed, data, size);
    s->sealed += size;
    *put = size;
    return 1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method;

static void make_method(void) {
    method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "two buffers");
    if (method == NULL)
        die_of_tls("BIO_meth_new");
    BIO_meth_set_read_ex(method, bio_read);
    BIO_meth_set_write_ex(method, bio_write);
    BIO_meth_set_ctrl(method, bio_control);
}

static SSL_CTX *context(int role, const SSL_METHOD *of) {
    pthread_once(&once, make_method);
    contexts[role] = SSL_CTX_new(of);
    if (contexts[role] == NULL)
        die_of_tls("SSL_CTX_new");
    return contexts[role];
}

/* ---- opening and closing */

static int send_sealed(struct stream *s) {
    size_t size = s->sealed;
    s->sealed = 0;
    return send_bytes(s->fd, s->out, size);
}

/* One recv(2) of ciphertext. */
static ssize_t receive(struct stream *s, int flags) {
    ssize_t got = recv(s->fd, s->in, READ_SIZE, flags);
    if (got > 0) {
        s->start = 0;
        s->end = (size_t)got;
    }
    return got;
}

static struct stream *stream_on(int fd, int role) {
    struct stream *s = buffer_of(sizeof *s);
    BIO *bio = BIO_new(method);
    *s = (struct stream){.fd = fd, .ssl = SSL_new(contexts[role]), .in = buffer_of(READ_SIZE)};
    if (s->ssl == NULL || bio == NULL)
        die_of_tls("SSL_new");
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    return s;
}

/* Returns -1 if the peer does not shake hands. */
static int shake_hands(struct stream *s) {
    for (;;) {
        int done = SSL_do_handshake(s->ssl);
        if (send_sealed(s) != 0)
            return -1;
        if (done == 1)
            return 0;
        if (SSL_get_error(s->ssl, done) != SSL_ERROR_WANT_READ || receive(s, 0) <= 0)
            return -1;
    }
}

static void stream_free(struct stream *s) {
    close(s->fd);
    SSL_free(s->ssl);
    free(s->in);
    free(s->out);
    free(s);
}

struct stream *stream_connect(int fd, const char *ca) {
    SSL_CTX *trusting = context(CLIENT, TLS_client_method());
    check(ca != NULL, "TLS needs the file of an authority");
    if (SSL_CTX_load_verify_file(trusting, ca) != 1)
        die_of_tls(ca);
    SSL_CTX_set_verify(trusting, SSL_VERIFY_PEER, NULL);
    struct stream *s = stream_on(fd, CLIENT);
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s->ssl), "127.0.0.1");
    SSL_set_connect_state(s->ssl);
    if (shake_hands(s) != 0)
        die_of_tls("no TLS with the server");
    return s;
}

void stream_certificate(const char *file) {
    SSL_CTX *known = context(SERVER, TLS_server_method());
    check(file != NULL, "TLS needs the file of a certificate");
    if (SSL_CTX_use_certificate_chain_file(known, file) != 1 ||
        SSL_CTX_use_PrivateKey_file(known, file, SSL_FILETYPE_PEM) != 1)
        die_of_tls(file);
}

struct stream *stream_accept(int fd) {
    struct stream *s = stream_on(fd, SERVER);
    SSL_set_accept_state(s->ssl);
    if (shake_hands(s) == 0)
        return s;
    ERR_clear_error();
    stream_free(s);
    return NULL;
}

/* close_notify, and the peer's. A socket that is closed with unread bytes in it is reset, and the
 * peer might lose what was sent last. */
void stream_close(struct stream *s) {
    struct timeval patience = {.tv_sec = CLOSING_SECONDS};
    if (SSL_shutdown(s->ssl) >= 0 && send_sealed(s) == 0 && shutdown(s->fd, SHUT_WR) == 0 &&
        setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0)
        while (receive(s, 0) > 0)
            ;
    ERR_clear_error();
    stream_free(s);
}

/* ---- bytes */

int stream_fd(const struct stream *s) {
    return s->fd;
}

int stream_holds(const struct stream *s) {
    return s->start < s->end || SSL_pending(s->ssl) > 0;
}

/* Decrypts what there is room for; 0 if not even one record is complete, -1 at the end. */
static ssize_t decrypt(struct stream *s, uint8_t *data, size_t size) {
    size_t done = 0, got = 0;
    while (done < size && stream_holds(s)) {
        if (SSL_read_ex(s->ssl, data + done, size - done, &got) != 1) {
            if (done == 0 && SSL_get_error(s->ssl, 0) != SSL_ERROR_WANT_READ)
                return -1;
            break;
        }
        done += got;
    }
    return (ssize_t)done;
}

ssize_t stream_recv(struct stream *s, void *data, size_t size, int flags) {
    ssize_t done = decrypt(s, data, size);
    if (done == 0) {
        ssize_t got = receive(s, flags);
        if (got <= 0)
            return got;
        done = decrypt(s, data, size);
    }
    if (done == 0)
        errno = EAGAIN;
    return done > 0 ? done : done == 0 ? -1 : 0;
}

const uint8_t *stream_seal(struct stream *s, const void *data, size_t *size) {
    size_t taken;
    s->sealed = 0;
    if (*size > 0 && SSL_write_ex(s->ssl, data, *size, &taken) != 1)
        die_of_tls("SSL_write");
    *size = s->sealed;
    s->sealed = 0;
    return s->out;
}

/*
 * The contract between wsfast and its crate: the only place where it is written down.
 *
 * cffi reads this file and compiles the calls, so it consists of plain declarations, without preprocessor lines. build.rs
 * makes the crate's numbers and structures of it, and a test compares its functions with those of the library.
 *
 * Rules. A wst_connection owns its descriptor, and any number of threads may use it at once. Only recv() sleeps with a
 * lock: the one that makes its thread the only receiver. A function sleeps once at most. If it is not done then, it
 * returns WST_INTERRUPTED: the caller lets Python run the handlers of signals, and calls again. Times are in seconds; a
 * negative time means no limit. Pointers are borrowed for the call, unless a comment says otherwise. No function unwinds:
 * after a panic it returns WST_PANIC, and the connection has ended.
 */

typedef struct wst_connection wst_connection;
typedef struct wst_tls_config wst_tls_config;
typedef struct wst_stream wst_stream;

/* The results of functions. */
enum wst_result {
    WST_OK = 0,
    WST_INTERRUPTED = -1, /* not done, and perhaps a signal: call again */
    WST_TIMEOUT = -2,
    WST_CLOSED = -3,  /* the connection has ended, or will never open: wst_describe_ending() says why */
    WST_PONG = -4,    /* pings were answered, or control frames are kept: take all, then call again */
    WST_BLOCKED = -5, /* the frame is queued: call wst_flush() */
    WST_FULL = -6,    /* the frame is not queued, because others wait: call wst_flush(), then again */
    WST_BUSY = -7,    /* another thread is receiving, or sending a fragmented message */
    WST_EOF = -8,     /* the peer closed the connection during the opening */
    WST_PANIC = -9,   /* a bug */
    WST_NO_MEMORY = -10, /* nothing is lost: call again, unless the connection is closed now */
    WST_MORE = -11 /* the room was too small for all of it: call again */
};

/* The life of a connection, with the numbers of websockets' State. */
enum wst_state {
    WST_STATE_CONNECTING = 0,
    WST_STATE_OPEN = 1,
    WST_STATE_CLOSING = 2,
    WST_STATE_CLOSED = 3
};

/* Flags of recv(). */
enum wst_recv_flag {
    WST_RESUME = 1,  /* goes on with the same deadline: after WST_INTERRUPTED, WST_PONG or a fragment */
    WST_STREAM = 2,  /* a frame at a time */
    WST_AGAIN = 8,   /* the caller had no memory for a copy of the lent message: lend it again */
    WST_VALIDATE = 4, /* the caller will not decode text, so check here that it is UTF-8 */
    WST_PRESENT = 16  /* take only what has arrived: neither read nor sleep */
};

/* Set in the first byte of a kept control frame. */
enum wst_control {
    WST_SENT = 0x100
};

/* Times of reads that are noted: see `timestamps` of ws_connect(). */
enum wst_stamps {
    WST_STAMPS_USER = 1,  /* when the read returned */
    WST_STAMPS_KERNEL = 2 /* and when the kernel received its bytes: on TCP without TLS, with SO_TIMESTAMPNS set */
};

/* Why a connection has ended. */
enum wst_cause {
    WST_CAUSE_NONE = 0,
    WST_CAUSE_EOF = 1,           /* the peer closed the connection without a CLOSE frame */
    WST_CAUSE_OS = 2,            /* number: errno */
    WST_CAUSE_PROTOCOL = 3,      /* message, which the CLOSE frame has too */
    WST_CAUSE_TOO_BIG = 4,       /* size of the frame (-1: unknown), limit left for it, current size of its message (-1: none) */
    WST_CAUSE_NO_MEMORY = 5,     /* in the middle of a frame: the rest of it could not be kept */
    WST_CAUSE_TEXT = 6,          /* message; text that is not UTF-8 */
    WST_CAUSE_KEEPALIVE = 7,
    WST_CAUSE_CLOSE_TIMEOUT = 8,
    WST_CAUSE_TLS = 9,           /* message */
    WST_CAUSE_CERTIFICATE = 10,  /* message; number: OpenSSL's X509_V_ERR_... */
    WST_CAUSE_LOCAL = 11,        /* the caller knows: wst_fail() or wst_abort() */
    WST_CAUSE_PANIC = 12
};

typedef struct {
    uint64_t max_message;  /* bytes, inflated */
    uint64_t max_fragment; /* bytes of a frame, inflated */
    int64_t max_queue;     /* frames read while nobody receives, of max_message or 16 MiB together; -1: no limit of either */
    double ping_interval;
    double ping_timeout;
    double close_timeout;
    double busy_poll;
    uint64_t max_read; /* bytes of one recv(2) */
    int quickack;      /* 1: after each recv(2) tell the kernel to acknowledge at once */
    int report_pings;  /* 1: pings by the clock are reported by WST_PONG, too */
    int stamps;        /* a wst_stamps, or 0: nothing is noted */
} wst_options;

/* A received message; with WST_STREAM, or if it is compressed, a frame of one. It is lent until the next recv(). */
typedef struct {
    const char *data;
    size_t size;
    int text;
    int fin;
    int compressed;   /* 1: the caller inflates it, then checks its size and that text is UTF-8 */
    int last;         /* with stamps, 0: another whole frame had arrived behind it */
    int64_t returned; /* when the read that completed it returned, in nanoseconds of CLOCK_MONOTONIC; or 0 */
    int64_t received; /* when the kernel had those bytes, by the same clock; or 0 */
} wst_message;

/* How to speak TLS by rustls. Sizes are in bytes. */
typedef struct {
    void *context;     /* an SSL_CTX, which verifies: the chain, and the name too if check_name is 1 */
    int check_name;
    int versions;      /* 1 TLS 1.2, 2 TLS 1.3, 3 both */
    int keylog;        /* 1: write the file that SSLKEYLOGFILE names */
    double resume_for; /* how long after a full handshake sessions are resumed; 0: never */
    const char *alpn;  /* the protocols to offer, each after its size in one byte */
    size_t alpn_size;
    const char *chain; /* the client's certificate and its key in PEM; chain_size 0: it has none */
    size_t chain_size;
    const char *key;
    size_t key_size;
} wst_tls_settings;

/* The counts of a connection, with the names of WSStats. */
typedef struct {
    uint64_t frames_received;
    uint64_t bytes_received;
    uint64_t reads;
    uint64_t frames_sent;
    uint64_t bytes_sent;
    uint64_t writes;
    uint64_t frames_gathered;
    uint64_t longest_backlog;
    uint64_t poll_hits;
    uint64_t poll_misses;
} wst_stats;

/* TLS by rustls: the negotiated parameters, and the cause of a failure. Texts are UTF-8, not terminated. */
typedef struct {
    int handshaking;
    int version; /* as it travels: 0x0303 is TLS 1.2 */
    int resumed;
    int cipher_size;
    int alpn_size;
    int cause;   /* 0, or WST_CAUSE_TLS or _CERTIFICATE with number and message */
    int64_t number;
    int message_size;
    char cipher[64];
    char alpn[256];
    char message[256];
} wst_stream_state;

/* Codes are -1 where there was no CLOSE frame, and 1005 where it was empty. Texts are UTF-8, not terminated. */
typedef struct {
    int rcvd_code;
    int sent_code;
    int rcvd_then_sent;
    int rcvd_size;
    int sent_size;
    int cause;
    int64_t number;
    int64_t size;
    int64_t limit;
    int64_t current;
    int message_size;
    char rcvd_reason[128];
    char sent_reason[128];
    char message[256];
} wst_ending;

/*
 * Looks up the functions of OpenSSL that Python's own module _ssl uses; path is its file, or NULL if it is part of the
 * program. ssl and context: an SSL and its SSL_CTX, by which the crate checks that it finds them where Python keeps them.
 * Returns WST_OK, or another result and a reason. To be called before every other function that deals with TLS.
 */
int wst_openssl_load(const char *path, void *ssl, void *context, char *reason, size_t reason_size);

/* Returns NULL and a reason if the settings cannot be used. */
wst_tls_config *wst_tls_config_new(const wst_tls_settings *settings, char *reason, size_t reason_size);
void wst_tls_config_free(wst_tls_config *config);

/* Takes over the connected, blocking socket fd. Never NULL, and never fails. */
wst_connection *wst_new(int fd, const wst_options *options);
/* Closes the descriptor. No other call may be under way. */
void wst_free(wst_connection *connection);

/*
 * The opening: TLS if wanted, then bytes of the upgrade, then wst_open() with those that came after it. Sessions are kept by
 * name and port; port 0 neither resumes nor keeps one.
 */
int wst_tls_handshake(wst_connection *connection, const wst_tls_config *config, const char *name, size_t name_size,
                      uint16_t port, double timeout);
/* TLS by rustls within the TLS that there is, of an https proxy: begins it, and wst_tls_handshake() goes on with it. */
int wst_tls_nest(wst_connection *connection, const wst_tls_config *config, const char *name, size_t name_size,
                 uint16_t port);
/*
 * TLS by OpenSSL, within the TLS that there is, if any. ssl: an SSL that was made with the SSL_CTX context and on BIOs in
 * memory, and whose handshake is done. The connection takes a reference to it. The caller does not use it any more.
 */
int wst_tls_adopt(wst_connection *connection, void *ssl, void *context);
/* The settings agreed with the server, after the handshake. Returns WST_CLOSED if OpenSSL encrypts, or nothing does. */
int wst_tls_describe(wst_connection *connection, wst_stream_state *state);
/* As stream_certificate(), until wst_free(). */
int64_t wst_tls_certificate(wst_connection *connection, size_t index, const char **der);
/* After WST_INTERRUPTED it is called again, with size 0. */
int wst_send_raw(wst_connection *connection, const char *data, size_t size, double timeout);
/* Returns the number of bytes received, or a wst_result below 0. */
int64_t wst_recv_raw(wst_connection *connection, char *data, size_t size, double timeout);
/* trailing: the bytes behind the server's reply. deflate: 1 if messages may be compressed; the caller inflates them. */
int wst_open(wst_connection *connection, const char *trailing, size_t size, int deflate);

void wst_get_stats(wst_connection *connection, wst_stats *stats);
/* Sends a PING, and remembers it so that its PONG is reported. Never sleeps. */
int wst_send_ping(wst_connection *connection, const char *data, size_t size);
/* Sends the queued bytes; done when there are none. Reads on meanwhile, if no other thread does. */
int wst_flush(wst_connection *connection);
/*
 * Reads into the queue until it has news or the time is over, unless another thread is receiving. Never WST_OK. for_pong 1:
 * also WST_CLOSED soon after frames are looked at no more, while the connection is still closing.
 */
int wst_pump(wst_connection *connection, double timeout, int for_pong);
/* The payload of the next ping that was answered, at most 125 bytes, its round-trip time, and its size; -1 if there is none. */
int wst_take_pong(wst_connection *connection, char *data, double *latency);
/*
 * From now on control frames are kept for wst_take_control(), those received and those sent; the last 64 of them, since a
 * server may send any number.
 */
void wst_keep_control(wst_connection *connection);
/* The payload of the next one, at most 125 bytes, its first byte (perhaps with WST_SENT), and its size; -1 if there is none. */
int wst_take_control(wst_connection *connection, char *data, int *head);
/* Round-trip time of the last answered ping; 0 before. */
double wst_latency(wst_connection *connection);
/* When bytes were last received, by CLOCK_MONOTONIC; 0 before, and without stamps and pings by the clock. */
double wst_last_received(wst_connection *connection);

/* Starts the closing handshake, unless it has begun. code 0: an empty CLOSE. Never sleeps. */
int wst_close(wst_connection *connection, int code, const char *reason, size_t size);
/* As wst_close(), and nothing more is read. Messages that have arrived can still be received. */
int wst_fail(wst_connection *connection, int code, const char *reason, size_t size);
/* As wst_fail(), by the receiver, because of a message that it received: the messages behind it are dropped. */
int wst_fail_receiving(wst_connection *connection, int code, const char *reason, size_t size);
/* Done when the connection is closed, at the latest by the deadline that the first CLOSE set. */
int wst_finish(wst_connection *connection);
/* Drops the connection at once, and wakes the threads that sleep in it. */
int wst_abort(wst_connection *connection);
/* Changes these options: for PINGs, and for a closing handshake, that begin from now on. */
void wst_set_times(wst_connection *connection, double ping_interval, double ping_timeout, double close_timeout);
int wst_get_state(wst_connection *connection);
void wst_describe_ending(wst_connection *connection, wst_ending *ending);
/* A duplicate of the descriptor, or -1. */
int wst_dup(wst_connection *connection);

/*
 * The functions that run for every message or read. Cython calls them through this table, because a call costs less than
 * through cffi.
 */
typedef struct {
    /*
     * Receives a message: WST_OK if there is one. One thread at a time may call, and the next one when the message is copied.
     * timeout 0: a message is only taken if it has arrived.
     */
    int (*recv)(wst_connection *connection, double timeout, int flags);
    /*
     * As recv(), without WST_STREAM; then describes in more[] the messages behind that one which have arrived: up to room of
     * them, or until all together have size bytes. Puts their number into *count. WST_MORE is WST_OK, and others may have arrived.
     */
    int (*recv_many)(wst_connection *connection, double timeout, int flags, wst_message *more, size_t room, size_t size,
        size_t *count);
    /* Of the messages that recv_many() has lent, the first one included, the caller got so many. The others come next. */
    void (*give_again_from)(wst_connection *connection, size_t got);
    /* Sends a frame; head is its first byte, FIN and opcode. Never sleeps. */
    int (*send)(wst_connection *connection, int head, const char *data, size_t size);
    /* Where recv() describes the message that it lends; part of the connection. */
    wst_message *(*get_message)(wst_connection *connection);
    /*
     * corked 1: data frames are held back from now on, up to 64 KiB of them; 0: they leave, unless they were corked more than
     * once. A thread that sleeps in a function lets them go, too. Returns what send() does.
     */
    int (*cork)(wst_connection *connection, int corked);
    /*
     * A stream is TLS by rustls for a caller that reads and writes the socket itself. One thread at a time may use it. It does
     * not sleep, and makes no system call, except to write the key log.
     */
    wst_stream *(*stream_new)(const wst_tls_config *config, const char *name, size_t name_size, uint16_t port,
        char *reason, size_t reason_size);
    void (*stream_free)(wst_stream *stream);
    /* TLS within TLS: outer, with an https proxy, carries stream from now on, and belongs to it. */
    int (*stream_nest)(wst_stream *stream, wst_stream *outer);
    /* The next stream_read() gives these bytes first. Returns WST_MORE. */
    int (*stream_put_back)(wst_stream *stream, const char *plain, size_t size);
    /*
     * Takes all the received bytes, and overwrites them. Puts *filled bytes of plaintext into plain. WST_OK: more must be
     * received; WST_MORE: call again with size 0; WST_EOF: the peer said that nothing follows; WST_CLOSED: TLS has failed or,
     * if there is no cause, a proxy has ended the connection without the server. Each further call returns the last two again.
     */
    int (*stream_read)(wst_stream *stream, char *wire, size_t size, char *plain, size_t room, size_t *filled);
    /* The number of bytes that stream_take() would give. They are to be sent before those that stream_write() encrypts. */
    size_t (*stream_to_send)(const wst_stream *stream);
    size_t (*stream_take)(wst_stream *stream, char *out, size_t room);
    /*
     * Encrypts into out, and returns how many bytes that are, or a wst_result below 0. out has room for 64 bytes more than plain
     * has, and for 32 more for each begun 16 KiB of it; within TLS, for twice these.
     */
    int64_t (*stream_write)(wst_stream *stream, const char *plain, size_t size, char *out, size_t room);
    /* Says that nothing follows: close_notify is to be sent. */
    int (*stream_write_end)(wst_stream *stream);
    void (*stream_describe)(const wst_stream *stream, wst_stream_state *state);
    /* A certificate of the server's chain in DER, until stream_free(); returns its size, or -1 if there are no more. */
    int64_t (*stream_certificate)(const wst_stream *stream, size_t index, const char **der);
} wst_functions;

const wst_functions *wst_api(void);

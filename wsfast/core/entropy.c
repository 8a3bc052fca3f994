/*
 * A pool of keys per thread, so no lock; a generation that every fork advances in the child, so no
 * getpid(2) per key. A pool of another generation is its parent's, and is thrown away. Keys are
 * erased as they leave: memory read later tells nothing of the frames already sent.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* glibc hides getentropy under -std=c11 without it */
#endif

#include "entropy.h"

#include <errno.h>
#include <stdatomic.h>
#ifdef _WIN32
#include <windows.h>
/* Behind windows.h, on which it depends. */
#include <bcrypt.h>
#else
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>
#endif

/*
 * 256 bytes, the most that getentropy gives at once. Measured on Linux 6.18, Zen 4: 370 ns buy up
 * to 32 bytes (one ChaCha block), 990 ns buy 256, which is 15 ns a key; 4 KiB by getrandom take
 * 10,500 ns, 10 ns a key. One send in 64 a microsecond late is worth it, ten microseconds for 5 ns
 * are not.
 */
enum { POOL_KEYS = 64 };

typedef struct key_pool {
    uint32_t keys[POOL_KEYS];
    unsigned left; /* keys[0 .. left) are unused, the rest is zero */
    unsigned generation;
} key_pool;

static _Thread_local key_pool pool;
static atomic_uint generation;

#ifdef _WIN32
/* Nothing forks. */
static int watch_forks_once(void) { return 0; }

static int get_entropy(void *buffer, size_t size) {
    if (BCryptGenRandom(NULL, buffer, (ULONG)size, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0)
        return 0;
    errno = EIO;
    return -1;
}
#else
static pthread_once_t fork_watch = PTHREAD_ONCE_INIT;
static int fork_watch_error;

static void after_fork_in_child(void) {
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void watch_forks(void) {
    fork_watch_error = pthread_atfork(NULL, NULL, after_fork_in_child);
}

static int watch_forks_once(void) {
    int error = pthread_once(&fork_watch, watch_forks);
    return error ? error : fork_watch_error;
}

#define get_entropy getentropy
#endif

/* Cold. Without a watch on forks no pool is safe, so then there are no keys. */
static int refill(key_pool *p) {
    int error = watch_forks_once();
    if (error) {
        errno = error;
        return -1;
    }
    p->left = 0;
    if (get_entropy(p->keys, sizeof p->keys) != 0)
        return -1;
    p->left = POOL_KEYS;
    p->generation = atomic_load_explicit(&generation, memory_order_relaxed);
    return 0;
}

int wsf_mask_key(uint32_t *key) {
    key_pool *p = &pool;
    unsigned now = atomic_load_explicit(&generation, memory_order_relaxed);
    if ((p->left == 0 || p->generation != now) && refill(p) != 0)
        return -1;
    p->left--;
    *key = p->keys[p->left];
    p->keys[p->left] = 0;
    return 0;
}

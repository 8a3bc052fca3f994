/*
 * Mask keys: as random as 100,000 of them can show, different in every thread and every fork,
 * bought in bulk, and refused when the system refuses. A getentropy of our own stands before the
 * system's, to count the calls and to fail on demand.
 */
#include "check.h"
#include "entropy.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/wait.h>

enum { POOL = 64, THREADS = 4, MANY = 100000 };

static atomic_int calls;
static atomic_int broken;

int getentropy(void *buffer, size_t length) {
    calls++;
    if (broken) {
        errno = EIO;
        return -1;
    }
    return getrandom(buffer, length, 0) == (ssize_t)length ? 0 : -1;
}

static void take(uint32_t *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        CHECK(wsf_mask_key(&keys[i]) == 0);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int repeats(uint32_t *keys, size_t n) {
    int found = 0;
    qsort(keys, n, sizeof keys[0], ascending);
    for (size_t i = 1; i < n; i++)
        found += keys[i] == keys[i - 1];
    return found;
}

/* Runs first, on a pool that has never been filled. */
static void test_refusal(void) {
    uint32_t key = 0xA5A5A5A5;
    broken = 1;
    for (int i = 0; i < 3; i++) {
        errno = 0;
        CHECK(wsf_mask_key(&key) == -1 && errno == EIO && key == 0xA5A5A5A5);
    }
    broken = 0;
    CHECK(wsf_mask_key(&key) == 0);

    /* a pool that runs dry, not only one that starts so */
    uint32_t rest[POOL - 1];
    take(rest, POOL - 1);
    broken = 1;
    CHECK(wsf_mask_key(&key) == -1);
    broken = 0;
}

static void test_bulk(void) {
    uint32_t keys[POOL * 10];
    int before = calls;
    take(keys, POOL * 10);
    CHECK(calls - before == 10);
}

/*
 * Of n random keys, n^2 / 2^33 pairs are equal: 1.2 here, and more than 15 once in 10^12 runs. Each
 * bit is set in half of them, give or take 158; six times that once in 10^9 (64 tries).
 */
static void test_randomness(void) {
    static uint32_t keys[MANY];
    take(keys, MANY);
    for (int bit = 0; bit < 32; bit++) {
        int set = 0, flipped = 0;
        for (int i = 0; i < MANY; i++) {
            set += (keys[i] & 1U << bit) != 0;
            flipped += ((keys[i] ^ keys[(i + 1) % MANY]) & 1U << bit) != 0;
        }
        CHECK(abs(set - MANY / 2) < 950 && abs(flipped - MANY / 2) < 950);
    }
    CHECK(repeats(keys, MANY) <= 15);
}

static void wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/*
 * Parent, child and grandchild each write a row of keys. Every fork happens with half a pool left,
 * which a careless child would hand out again.
 */
static void test_fork(void) {
    uint32_t (*keys)[POOL] =
        mmap(NULL, 3 * sizeof *keys, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(keys != MAP_FAILED);
    uint32_t align[POOL];
    for (int before = calls; calls == before;)
        take(align, 1); /* the first key of a pool */
    take(align, POOL / 2 - 1);

    int before = calls;
    pid_t child = fork();
    if (child == 0) {
        take(keys[1], POOL / 2);
        CHECK(calls == before + 1);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            take(keys[2], POOL);
            CHECK(calls == before + 2);
            _exit(0);
        }
        take(keys[1] + POOL / 2, POOL / 2);
        CHECK(calls == before + 1);
        wait_for(grandchild);
        _exit(0);
    }
    wait_for(child);
    take(keys[0], POOL / 2);
    CHECK(calls == before); /* the parent goes on with its own pool */
    take(keys[0] + POOL / 2, POOL / 2);
    CHECK(calls == before + 1);
    CHECK(repeats(keys[0], 3 * POOL) == 0);
    munmap(keys, 3 * sizeof *keys);
}

/* Half a pool each: from one pool, two threads would be served. */
static void *thread_main(void *keys) {
    for (int i = 0; i < POOL / 2; i++) {
        if (wsf_mask_key((uint32_t *)keys + i) != 0)
            return NULL;
    }
    return keys;
}

static void test_threads(void) {
    static uint32_t keys[THREADS + 1][POOL / 2];
    pthread_t threads[THREADS];
    int before = calls;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, thread_main, keys[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0 && result == keys[i]);
    }
    CHECK(calls - before == THREADS);
    take(keys[THREADS], POOL / 2);
    CHECK(repeats(keys[0], (THREADS + 1) * POOL / 2) == 0);
}

int main(void) {
    test_refusal();
    test_bulk();
    test_randomness();
    test_fork();
    test_threads();
    return report("entropy");
}

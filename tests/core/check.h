/*
 * Checks, and memory that punishes a byte too far. A failed check ends the program.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long checks_passed;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
        checks_passed++;                                                                           \
    } while (0)

/* The last line of every test program. */
static inline int report(const char *name) {
    printf("%s: %ld checks passed\n", name, checks_passed);
    return 0;
}

/* Usable memory between two pages that fault when touched. Lives until the program ends. */
typedef struct guarded {
    uint8_t *start; /* right after the lower guard */
    uint8_t *end;   /* the upper guard */
} guarded;

static inline guarded guarded_alloc(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t usable = (size + page - 1) / page * page;
    uint8_t *map = mmap(NULL, usable + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, usable, PROT_READ | PROT_WRITE) != 0) {
        perror("guarded_alloc");
        exit(1);
    }
    return (guarded){map + page, map + page + usable};
}

/* The same pseudo-random numbers in every run (xorshift64). */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif

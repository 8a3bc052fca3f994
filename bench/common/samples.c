/* The summary has the keys of bench/stats.py, so the harness reads C and Python alike. */
#include "samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The points of a distribution for plots: CURVE points, a tenth of a decade of the tail apart. */
enum { CURVE = 41, PER_DECADE = 10 };

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void samples_print(uint64_t *ns, size_t n) {
    static const struct {
        const char *name;
        double rank;
    } points[] = {{"min", 0},     {"p50", .5},      {"p90", .9}, {"p99", .99},
                  {"p999", .999}, {"p9999", .9999}, {"max", 1}};
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);

    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)ns[i];
    qsort(ns, n, sizeof *ns, ascending);
    printf("{\"n\": %zu, \"mean\": %.1f", n, sum / (double)n);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        printf(", \"%s\": %" PRIu64, points[i].name,
               ns[(size_t)(points[i].rank * (double)(n - 1))]);
    printf(", \"cpu\": %lld, \"curve\": [",
           (long long)cpu.tv_sec * 1000000000ll + (long long)cpu.tv_nsec);
    for (int i = 0; i < CURVE; i++) {
        double rank = 1 - pow(10, -(double)i / PER_DECADE);
        printf("%s%" PRIu64, i ? ", " : "", ns[(size_t)(rank * (double)(n - 1))]);
    }
    printf("], \"checked\": true}\n");
}

/* The summary has the keys of bench/stats.py, so the harness reads C and Python alike. */
#include "samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void samples_print(uint64_t *ns, size_t n) {
    static const struct {
        const char *name;
        double rank;
    } points[] = {{"min", 0}, {"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"max", 1}};

    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)ns[i];
    qsort(ns, n, sizeof *ns, ascending);
    printf("{\"n\": %zu, \"mean\": %.1f", n, sum / (double)n);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        printf(", \"%s\": %" PRIu64, points[i].name,
               ns[(size_t)(points[i].rank * (double)(n - 1))]);
    printf(", \"checked\": true}\n");
}

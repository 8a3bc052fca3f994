/* Nanoseconds of each measured round, and the one JSON line they become. */
#ifndef BENCH_SAMPLES_H
#define BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

/* Sorts `ns` and prints its percentiles (nearest rank, as bench/stats.py) with "checked": true. */
void samples_print(uint64_t *ns, size_t n);

#endif

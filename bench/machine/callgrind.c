/* callgrind's requests as functions, for bench/counted.py. They do nothing outside valgrind. */
#include <valgrind/callgrind.h>

void counting_starts(void);
void counting_from_zero(void);
void counted_as(const char *name);

void counting_starts(void) { CALLGRIND_START_INSTRUMENTATION; }

void counting_from_zero(void) { CALLGRIND_ZERO_STATS; }

void counted_as(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }

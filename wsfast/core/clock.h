/* The clocks, in nanoseconds. Reading one is no system call on Linux. */
#ifndef WSF_CLOCK_H
#define WSF_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t wsf_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What time.monotonic_ns() reads. */
static inline int64_t wsf_monotonic_ns(void) { return wsf_clock_ns(CLOCK_MONOTONIC); }

/* What time.time_ns() reads, and what the kernel stamps packets with. */
static inline int64_t wsf_realtime_ns(void) { return wsf_clock_ns(CLOCK_REALTIME); }

#endif

/* The clocks, in nanoseconds. On Linux, reading a clock takes no system call. */
#ifndef WSF_CLOCK_H
#define WSF_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t wsf_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The clock of time.monotonic_ns(). */
static inline int64_t wsf_monotonic_ns(void) { return wsf_clock_ns(CLOCK_MONOTONIC); }

/* The clock of time.time_ns(), and of the kernel's time stamps on packets. */
static inline int64_t wsf_realtime_ns(void) { return wsf_clock_ns(CLOCK_REALTIME); }

#endif

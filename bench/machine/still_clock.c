/* Preloaded, it stops every clock: what a program does then does not depend on how fast it runs. */
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    now->tv_sec = 1000;
    now->tv_nsec = 0;
    return 0;
}

/* What the programs share whose signal handlers allocate on top of slow paths. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

/* Numbers that look random, and are the same in every run. */
static unsigned next(unsigned *seed) {
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 8;
}

/* The end of a thread: no more signals, so that it can be joined. */
static void *deaf(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return NULL;
}

/* `count` threads of `worker`, whose argument is a seed, and `handler` on SIGUSR1. */
static void start(pthread_t *threads, unsigned count, void *(*worker)(void *), void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (uintptr_t at = 0; at < count; at++)
        if (pthread_create(&threads[at], NULL, worker, (void *)(at + 1)))
            abort();
}

/* Threads whose CPUs change while they allocate. */
#define _GNU_SOURCE
#include "owners.h"
#include <pthread.h>
#include <sched.h>

static cpu_set_t all;

/* The CPU after those that were counted off. */
static int nth(unsigned n) {
    int cpu = -1;
    for (n %= CPU_COUNT(&all), n++; n; n -= CPU_ISSET(cpu, &all) != 0) cpu++;
    return cpu;
}

static void *work(void *name) {
    struct owner own = {.name = (uint64_t)name, .random = (uint64_t)name};
    for (unsigned i = 0; i < 1000; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(nth(i + (unsigned)own.name), &one);
        if (sched_setaffinity(0, sizeof one, &one)) _exit(5);
        churn(&own, 300);
    }
    drop(&own);
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    if (sched_getaffinity(0, sizeof all, &all)) return 1;
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

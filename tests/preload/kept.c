/* Peaks of many sizes on some threads, all freed, over and over for some seconds, and then how
   much more is resident than before: that is what the allocator keeps.
   Arguments: threads, bytes of all peaks together, milliseconds. Prints KiB. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 16 };
static size_t share;
static long until;

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static long resident_kib(void) {
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &size, &resident) != 2)
        exit(1);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *worker(void *argument) {
    unsigned seed = (unsigned)(size_t)argument * 2654435761u + 1;
    do {
        char **chain = NULL;
        for (size_t used = 0; used < share;) {
            seed = seed * 1103515245 + 12345;
            /* 16 bytes to 32 KiB, as many small ones as large ones, and some runs of pages. */
            size_t size = (size_t)16 << ((seed >> 16) % 12);
            size += (seed >> 8) % size;
            char **block = malloc(size);
            if (!block)
                exit(2);
            memset(block, 1, size);
            *block = (char *)chain;
            chain = block;
            used += size;
        }
        while (chain) {
            char **next = (char **)*chain;
            free(chain);
            chain = next;
        }
    } while (now() < until);
    return NULL;
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 1;
    size_t bytes = count > 2 ? strtoul(arguments[2], NULL, 10) : 1 << 20;
    pthread_t thread[THREADS_MAX];
    if (threads < 1 || threads > THREADS_MAX)
        return 3;
    share = bytes / threads;
    /* The threads' stacks stay resident too, and so does the code of all this. */
    for (int round = 0; round < 2; round++) {
        static long before;
        until = now() + (round && count > 3 ? atol(arguments[3]) : 0);
        size_t whole = share;
        if (!round)
            share = 1;
        for (int at = 0; at < threads; at++)
            if (pthread_create(&thread[at], NULL, worker, (void *)(size_t)(at + 1)))
                return 4;
        for (int at = 0; at < threads; at++)
            pthread_join(thread[at], NULL);
        share = whole;
        if (!round)
            before = resident_kib();
        else
            printf("%ld\n", resident_kib() - before);
    }
    return 0;
}

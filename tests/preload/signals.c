/* A timer signal in three threads whose handler allocates, frees and reallocates on top of them. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static atomic_int signals;

static void handler(int number) {
    (void)number;
    static _Thread_local unsigned seed = 1;
    seed = seed * 1103515245 + 12345;
    size_t size = (seed >> 16) % 5000;
    char *block = malloc(size);
    if (block) {
        memset(block, 3, size);
        block = realloc(block, size * 2 + 1);
    }
    free(block);
    atomic_fetch_add(&signals, 1);
}

static void *worker(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    unsigned char *blocks[256] = {0};
    size_t sizes[256] = {0};
    while (atomic_load(&signals) < 3000) {
        seed = seed * 1103515245 + 12345;
        unsigned slot = (seed >> 8) % 256;
        if (blocks[slot]) {
            for (size_t i = 0; i < sizes[slot]; i++)
                if (blocks[slot][i] != slot) {
                    puts("a block was overwritten");
                    exit(1);
                }
            free(blocks[slot]);
        }
        sizes[slot] = (seed >> 16) % 700;
        blocks[slot] = malloc(sizes[slot]);
        memset(blocks[slot], (int)slot, sizes[slot]);
    }
    for (int i = 0; i < 256; i++) free(blocks[i]);
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

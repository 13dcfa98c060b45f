/* Signals in four threads whose handlers allocate and free of every kind, while the threads do
   little but slow paths: whole batches of every size, so that sheaves, lists, page sets and zones
   are in use when the handler comes. Nothing may hang, be handed out twice or be refused: memory
   is there. Argument: signals to take. */
#define _GNU_SOURCE
#include "handlers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, BATCH = 400, KEPT = 8 };
static atomic_int taken, refused, wrong, ended;
static int wanted;

/* The same sizes in handlers and threads, or they would use other caches and locks. */
static const size_t sizes[] = {16, 48, 100, 256, 700, 2048, 4096, 9000, 30000, 70000, 300000};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct block { unsigned char *start; size_t size; unsigned char mark; };

static void fill(struct block *block, size_t size, unsigned char mark) {
    block->start = malloc(size);
    if (!block->start) {
        atomic_fetch_add(&refused, 1);
        return;
    }
    block->size = size;
    block->mark = mark;
    block->start[0] = block->start[size / 2] = block->start[size - 1] = mark;
}

static void drop(struct block *block) {
    if (!block->start) return;
    unsigned char *at = block->start;
    if (at[0] != block->mark || at[block->size / 2] != block->mark ||
        at[block->size - 1] != block->mark)
        atomic_fetch_add(&wrong, 1);
    free(at);
    block->start = NULL;
}

static void handler(int number) {
    (void)number;
    static _Thread_local unsigned seed;
    static _Thread_local struct block kept[KEPT];
    if (!seed) seed = (unsigned)(uintptr_t)&seed;
    for (int turn = 0; turn < 6; turn++) {
        struct block *block = &kept[next(&seed) % KEPT];
        drop(block);
        fill(block, sizes[next(&seed) % SIZES], (unsigned char)next(&seed));
    }
    atomic_fetch_add(&taken, 1);
}

static void *worker(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    static _Thread_local struct block batch[BATCH];
    while (atomic_load(&taken) < wanted) {
        unsigned pick = next(&seed) % SIZES;
        int count = sizes[pick] > 10000 ? BATCH / 10 : BATCH;
        for (int at = 0; at < count; at++) fill(&batch[at], sizes[pick], (unsigned char)at);
        for (int at = 0; at < count; at++) drop(&batch[(at * 7) % count]);
        for (int at = 0; at < count; at++) drop(&batch[at]);
    }
    atomic_fetch_add(&ended, 1);
    return deaf();
}

int main(int count, char **arguments) {
    wanted = count > 1 ? atoi(arguments[1]) : 4000;
    pthread_t threads[THREADS];
    start(threads, THREADS, worker, handler);
    for (unsigned at = 0; atomic_load(&taken) < wanted; at++) {
        pthread_kill(threads[at % THREADS], SIGUSR1);
        if (at % THREADS == 0) usleep(50);
    }
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    if (atomic_load(&wrong)) printf("%d blocks were overwritten\n", atomic_load(&wrong));
    if (atomic_load(&refused)) printf("%d requests were refused\n", atomic_load(&refused));
    if (!atomic_load(&wrong) && !atomic_load(&refused)) puts("ok");
    return 0;
}

/* Threads that live for a few calls, one after the other in four rows, while signals come to whichever of them
   is there: at a thread's first malloc, in realloc, between the calls of a huge block, at its end. The handler
   allocates, resizes and frees, also what other threads and their handlers left. Nothing may be refused but one thing:
   a handler on top of a call for a huge block cannot resize one, or a block that a handler got there, which then stays as
   it was. Argument: signals to take. */
#define _GNU_SOURCE
#include "handlers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 4, SHELVES = 64 };
static atomic_int taken, refused, wrong, ended;
/* What was refused last, in bytes. */
static atomic_long last;
static int wanted;
static _Thread_local int handling;

/* A block says how long it is and ends with its mark. */
struct block { size_t size; unsigned char rest[]; };
static _Atomic(struct block *) shelf[SHELVES];

static const size_t sizes[] = {24, 64, 200, 1024, 5000, 33000, 120000, 5 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

static struct block *whole(struct block *block) {
    unsigned char *end = (unsigned char *)block + block->size - 1;
    if (*end != (unsigned char)block->size + 1) atomic_fetch_add(&wrong, 1);
    return block;
}

static struct block *sized(struct block *block, size_t size) {
    if (!block) {
        atomic_fetch_add(&refused, 1);
        atomic_store(&last, (long)size);
        return NULL;
    }
    block->size = size;
    ((unsigned char *)block)[size - 1] = (unsigned char)size + 1;
    return block;
}

/* One step: another block on a shelf, and what was there resized or freed. */
static void step(unsigned *seed) {
    size_t size = sizes[next(seed) % SIZES], then = sizes[next(seed) % SIZES];
    unsigned at = next(seed) % SHELVES;
    struct block *old = atomic_exchange(&shelf[at], sized(malloc(size), size));
    if (!old) return;
    size_t before = whole(old)->size;
    if (next(seed) % 2) {
        struct block *other = realloc(old, then);
        /* The size at the front went along, the mark only where the block did not become shorter. */
        if (other && other->size != before) atomic_fetch_add(&wrong, 1);
        if (other && then >= before) whole(other);
        old = other || !handling ? sized(other, then) : old;
    }
    free(old);
}

static void handler(int number) {
    (void)number;
    unsigned seed = (unsigned)atomic_fetch_add(&taken, 1) * 2654435761u;
    handling++;
    for (int turn = 0; turn < 3; turn++) step(&seed);
    handling--;
}

static void *brief(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    for (int turn = 0; turn < 20; turn++) step(&seed);
    return NULL;
}

static void *row(void *argument) {
    deaf();
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (atomic_load(&taken) < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, brief, (void *)(uintptr_t)next(&seed))) abort();
        pthread_join(thread, NULL);
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

int main(int count, char **arguments) {
    wanted = count > 1 ? atoi(arguments[1]) : 5000;
    pthread_t rows[ROWS];
    deaf();
    start(rows, ROWS, row, handler);
    while (atomic_load(&ended) < ROWS) {
        kill(getpid(), SIGUSR1);
        usleep(20);
    }
    for (int at = 0; at < ROWS; at++) pthread_join(rows[at], NULL);
    for (int at = 0; at < SHELVES; at++)
        if (shelf[at]) free(whole(shelf[at]));
    if (atomic_load(&wrong)) printf("%d blocks were overwritten\n", atomic_load(&wrong));
    if (atomic_load(&refused)) printf("%d requests were refused, at last %ld bytes\n", atomic_load(&refused), atomic_load(&last));
    if (!atomic_load(&wrong) && !atomic_load(&refused)) puts("ok");
    return 0;
}

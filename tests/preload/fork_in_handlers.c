/* Signals in threads that do little but slow paths; the handler forks on top of them. The child
   allocates in the handler, returns into what the signal interrupted, goes through some more slow
   paths and ends; the parent's handler waits for it. Nothing may hang, be handed out twice or be
   refused, in the child or in the parent. Signals come close together, so a handler that waits on
   top of a holder is followed by the next one at once, and the holder does not go on. Arguments:
   forks; "together" to let threads fork at the same time, each on top of what another wants. */
#define _GNU_SOURCE
#include "handlers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, BATCH = 200, TURNS_OF_A_CHILD = 3, HUNG = 60 };
static atomic_int forked, failed, refused;
static int wanted, together;
static atomic_flag forking = ATOMIC_FLAG_INIT;
static volatile sig_atomic_t is_child;
static _Thread_local int is_the_forker;

static const size_t sizes[] = {48, 700, 4096, 9000, 30000, 70000, 300000, 5 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

static unsigned char *fill(size_t size, unsigned char mark) {
    unsigned char *block = malloc(size);
    if (!block) {
        atomic_fetch_add(&refused, 1);
        return NULL;
    }
    block[0] = block[size / 2] = block[size - 1] = mark;
    return block;
}

static void drop(unsigned char *block, size_t size, unsigned char mark) {
    if (!block) return;
    if (block[0] != mark || block[size / 2] != mark || block[size - 1] != mark) _exit(3);
    free(block);
}

static void all_sizes(unsigned char mark) {
    unsigned char *blocks[SIZES];
    for (int at = 0; at < SIZES; at++) blocks[at] = fill(sizes[at], mark);
    for (int at = 0; at < SIZES; at++) drop(blocks[at], sizes[at], mark);
}

static void handler(int number) {
    (void)number;
    if (is_child) return;
    if (!together && atomic_flag_test_and_set(&forking)) {
        all_sizes(8);
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(HUNG);
        atomic_store(&refused, 0);
        is_child = is_the_forker = 1;
        all_sizes(7);
        return;
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        dprintf(2, "a child ended with %#x\n", status);
        atomic_fetch_add(&failed, 1);
    }
    all_sizes(9);
    if (!together) atomic_flag_clear(&forking);
    atomic_fetch_add(&forked, 1);
}

static void *worker(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    static _Thread_local unsigned char *batch[BATCH];
    int turns = 0;
    while (atomic_load(&forked) < wanted || is_child) {
        size_t size = sizes[next(&seed) % SIZES];
        int count = size > 1 << 20 ? 3 : size > 10000 ? BATCH / 10 : BATCH;
        for (int at = 0; at < count; at++) batch[at] = fill(size, (unsigned char)at);
        for (int at = 0; at < count; at++) drop(batch[at], size, (unsigned char)at);
        if (is_the_forker && ++turns == TURNS_OF_A_CHILD) {
            _exit(atomic_load(&refused) ? 4 : 0);
        }
    }
    return deaf();
}

int main(int count, char **arguments) {
    wanted = count > 1 ? atoi(arguments[1]) : 100;
    together = count > 2 && !strcmp(arguments[2], "together");
    pthread_t threads[THREADS];
    start(threads, THREADS, worker, handler);
    for (unsigned at = 0; atomic_load(&forked) < wanted; at++) {
        pthread_kill(threads[at % THREADS], SIGUSR1);
        usleep(100);
    }
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    if (atomic_load(&failed)) printf("%d children failed\n", atomic_load(&failed));
    if (atomic_load(&refused)) printf("%d requests were refused\n", atomic_load(&refused));
    if (atomic_load(&failed)) return 1;
    if (!atomic_load(&refused)) puts("ok");
    return 0;
}

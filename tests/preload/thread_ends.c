/* Threads that end in every way, with destructors that allocate: by return, by pthread_exit out of nested calls, and by
   cancellation while they only allocate. Each destructor frees what its thread had, allocates every kind of block and
   sets its key again, as often as the system lets it. Argument: threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 8, TOGETHER = 8 };
static pthread_key_t keys[KEYS];
static atomic_int destroyed, wrong;
static const size_t sizes[] = {16, 100, 3000, 20000, 100000, 300000, 5 << 20, 40};

static void *marked(size_t size) {
    unsigned char *block = malloc(size);
    if (!block) abort();
    memcpy(block, &size, sizeof size);
    block[size - 1] = 7;
    return block;
}

static void destroy(void *value) {
    size_t size;
    memcpy(&size, value, sizeof size);
    if (((unsigned char *)value)[size - 1] != 7) atomic_fetch_add(&wrong, 1);
    free(value);
    int turn = atomic_fetch_add(&destroyed, 1);
    void *again = realloc(marked(sizes[turn % KEYS]), sizes[(turn + 3) % KEYS]);
    free(again);
    /* Some keys go on until the system stops asking; what they hold then is lost, as on any malloc. */
    if (turn % 5 == 0) pthread_setspecific(keys[turn % KEYS], marked(sizes[turn % 4]));
}

static void leave(int depth) {
    char *frame = marked(64);
    if (depth == 0) {
        free(frame);
        pthread_exit(NULL);
    }
    free(frame);
    leave(depth - 1);
}

static void *thread(void *argument) {
    long way = (long)argument;
    for (int key = 0; key < KEYS; key++) pthread_setspecific(keys[key], marked(sizes[key]));
    if (way % 3 == 0) return NULL;
    if (way % 3 == 1) leave(10);
    for (;;) {
        /* Cancelled between two calls only: a block in a cancelled call would be lost. */
        void *block = marked(sizes[way % KEYS]);
        free(block);
        pthread_testcancel();
    }
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 600;
    for (int key = 0; key < KEYS; key++) pthread_key_create(&keys[key], destroy);
    for (int made = 0; made < threads; made += TOGETHER) {
        pthread_t group[TOGETHER];
        for (long at = 0; at < TOGETHER; at++)
            if (pthread_create(&group[at], NULL, thread, (void *)(made + at))) abort();
        for (int at = 0; at < TOGETHER; at++) {
            if ((made + at) % 3 == 2) pthread_cancel(group[at]);
            pthread_join(group[at], NULL);
        }
    }
    if (atomic_load(&wrong)) printf("%d blocks were overwritten\n", atomic_load(&wrong));
    else puts(atomic_load(&destroyed) >= threads * KEYS ? "ok" : "destructors are missing");
    return 0;
}

/* Threads hand blocks to each other while another thread takes everything out of every CPU. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BOARD = 4096, STEPS = 2000000 };

/* A block's first words: its size and a mark derived from it, repeated at its end. */
static _Atomic(unsigned char *) board[BOARD];
static atomic_int running = THREADS;

static unsigned char *make(size_t size) {
    unsigned char *block = malloc(size);
    if (!block) abort();
    memcpy(block, &size, sizeof size);
    block[size - 1] = (unsigned char)(size * 31);
    return block;
}

static void check_and_free(unsigned char *block) {
    if (!block) return;
    size_t size;
    memcpy(&size, block, sizeof size);
    if (size < 9 || size > 600000 || block[size - 1] != (unsigned char)(size * 31)) {
        puts("a block was overwritten");
        exit(1);
    }
    block[size - 1] ^= 1;
    free(block);
}

static void *worker(void *argument) {
    uint64_t seed = (uint64_t)(size_t)argument * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < STEPS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t size = 9 + (seed >> 40) % ((seed >> 33) % 500 == 0 ? 500000 : 1500);
        unsigned char *mine = make(size);
        check_and_free(atomic_exchange(&board[(seed >> 20) % BOARD], mine));
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    while (atomic_load(&running)) malloc_trim(0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < BOARD; i++) check_and_free(board[i]);
    malloc_trim(0);
    puts("ok");
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* Nothing is freed twice here, but each block holds, everywhere, what free blocks of its size bear:
   read from a freed one, which is the one wrong thing this program does. */

enum { SIZES = 6, BLOCKS = 400, ROUNDS = 40, THREADS = 3 };
static const size_t sizes[SIZES] = {16, 48, 256, 1000, 4096, 20000};
static uint32_t marks[SIZES];
static uint32_t *shared[THREADS][BLOCKS];
static pthread_barrier_t all_here;

static uint32_t *full_of_marks(int class) {
    size_t size = sizes[class];
    uint32_t *block = malloc(size);
    if (block == NULL || block[2] == marks[class])
        abort();
    for (size_t at = 0; at < size / 4; at++)
        block[at] = marks[class];
    return block;
}

static void check_and_free(uint32_t *block, int class) {
    for (size_t at = 0; at < sizes[class] / 4; at++)
        if (block[at] != marks[class])
            abort();
    if (class % 2)
        block = realloc(block, sizes[class]);
    free(hidden(block));
}

static void *use(void *which) {
    int me = (int)(intptr_t)which;
    uint32_t *own[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        int class = round % SIZES;
        for (int at = 0; at < BLOCKS; at++) {
            own[at] = full_of_marks(class);
            shared[me][at] = full_of_marks(class);
        }
        pthread_barrier_wait(&all_here);
        for (int at = 0; at < BLOCKS; at++) {
            check_and_free(own[(at * 7) % BLOCKS], class);
            /* Blocks of another thread, on whatever CPU. */
            check_and_free(shared[(me + 1) % THREADS][at], class);
        }
        pthread_barrier_wait(&all_here);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int class = 0; class < SIZES; class++) {
        uint32_t *block = malloc(sizes[class]);
        free(hidden(block));
        marks[class] = ((uint32_t *)hidden(block))[2];
        if (marks[class] < 1u << 31)
            abort();
    }
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (intptr_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, use, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("sound\n");
    return 0;
}

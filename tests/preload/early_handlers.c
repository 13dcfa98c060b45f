/* A library whose constructor runs before any preloaded library's, and registers fork handlers that
   allocate. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64 };
static void *kept[BLOCKS];

static void before(void) {
    for (int at = 0; at < BLOCKS; at++) {
        size_t size = (size_t)1 << at % 20;
        if (!(kept[at] = malloc(size)))
            abort();
        memset(kept[at], 1, size);
    }
}

static void after(void) {
    for (int at = 0; at < BLOCKS; at++)
        free(kept[at]);
}

__attribute__((constructor)) static void load(void) {
    if (pthread_atfork(before, after, after))
        abort();
}

int early(void) {
    return 0;
}

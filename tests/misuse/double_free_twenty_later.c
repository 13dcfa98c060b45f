#define _GNU_SOURCE
#include "misuse.h"

/* The first of twenty again, by another thread that is gone by the end. */
#include <pthread.h>

static void *again(void *object) {
    free(hidden(object));
    return NULL;
}

int main(void) {
    enum { COUNT = 20 };
    void *object[COUNT];
    pthread_t thread;
    for (int at = 0; at < COUNT; at++)
        object[at] = malloc(20);
    for (int at = 0; at < COUNT; at++)
        free(hidden(object[at]));
    pthread_create(&thread, NULL, again, object[0]);
    pthread_join(thread, NULL);
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>

static void *again(void *object) {
    free(hidden(object));
    return NULL;
}

int main(void) {
    void *object = malloc(200);
    pthread_t thread;
    free(hidden(object));
    pthread_create(&thread, NULL, again, object);
    pthread_join(thread, NULL);
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>
#include <unistd.h>

static pthread_barrier_t freed;

static void *again(void *object) {
    free(hidden(object));
    return NULL;
}

static void *again_later(void *object) {
    pthread_barrier_wait(&freed);
    return again(object);
}

static void say(const char *what) {
    if (write(1, what, strlen(what)) < 0)
        abort();
}

/* Arguments: size, frees between the two, whether another thread does the second, requests of the
   same size afterwards. Says what happened: "twice" if two of these got one block. */
int main(int count, char **arguments) {
    enum { WANTED_MAX = 64 };
    if (count != 5)
        return 2;
    size_t size = strtoul(arguments[1], NULL, 10);
    int apart = atoi(arguments[2]), wanted = atoi(arguments[4]);
    void *object = malloc(size), *got[WANTED_MAX];
    void **between = malloc((apart + 1) * sizeof *between);
    if (wanted > WANTED_MAX)
        return 2;
    for (int at = 0; at < apart; at++)
        between[at] = malloc(size);
    /* The thread is there before the frees: what it needs must not get the block's memory, as a
       block of another size would be a live one. */
    pthread_t thread;
    int other = *arguments[3] == '1';
    if (other) {
        pthread_barrier_init(&freed, NULL, 2);
        pthread_create(&thread, NULL, again_later, object);
    }
    free(hidden(object));
    for (int at = 0; at < apart; at++)
        free(hidden(between[at]));
    if (other) {
        pthread_barrier_wait(&freed);
        pthread_join(thread, NULL);
    } else {
        again(object);
    }
    say("beyond\n");
    for (int at = 0; at < wanted; at++) {
        got[at] = malloc(size);
        for (int before = 0; before < at; before++)
            if (got[before] == got[at])
                say("twice\n");
    }
    return 0;
}

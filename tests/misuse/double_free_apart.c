#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>
#include <unistd.h>

static void *again(void *object) {
    free(hidden(object));
    return NULL;
}

/* Arguments: size, frees between the two, whether another thread does the second. Says so if it
   gets beyond the second free, and leaves without a last look. */
int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    size_t size = strtoul(arguments[1], NULL, 10);
    int apart = atoi(arguments[2]);
    void *object = malloc(size);
    void **between = malloc((apart + 1) * sizeof *between);
    for (int at = 0; at < apart; at++)
        between[at] = malloc(size);
    free(hidden(object));
    for (int at = 0; at < apart; at++)
        free(hidden(between[at]));
    if (*arguments[3] == '1') {
        pthread_t thread;
        pthread_create(&thread, NULL, again, object);
        pthread_join(thread, NULL);
    } else {
        again(object);
    }
    ssize_t written = write(1, "beyond", 6);
    _exit(written != 6);
}

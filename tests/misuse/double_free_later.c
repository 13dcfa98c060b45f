#define _GNU_SOURCE
#include "misuse.h"

/* Long enough later that the object has left the nearest caches: they keep the first and the last. */
int main(void) {
    enum { COUNT = 20000 };
    static void *object[COUNT];
    for (int at = 0; at < COUNT; at++)
        object[at] = malloc(100);
    for (int at = 0; at < COUNT; at++)
        free(object[at]);
    free(hidden(object[COUNT / 2]));
    return 0;
}

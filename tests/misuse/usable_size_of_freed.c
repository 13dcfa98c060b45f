#define _GNU_SOURCE
#include "misuse.h"

#include <malloc.h>

/* Freed long enough ago to be back in its slab, or its slab in the page layer. */
int main(void) {
    enum { COUNT = 20000 };
    static void *object[COUNT];
    for (int at = 0; at < COUNT; at++)
        object[at] = malloc(100);
    for (int at = 0; at < COUNT; at++)
        free(object[at]);
    return malloc_usable_size(hidden(object[COUNT / 2])) == 0;
}

#define _GNU_SOURCE
#include "misuse.h"

/* The first of twenty again, as glibc's tst-tcfree2 does. */
int main(void) {
    enum { COUNT = 20 };
    void *object[COUNT];
    for (int at = 0; at < COUNT; at++)
        object[at] = malloc(20);
    for (int at = 0; at < COUNT; at++)
        free(hidden(object[at]));
    free(hidden(object[0]));
    return 0;
}

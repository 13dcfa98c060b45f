#define _GNU_SOURCE
#include "misuse.h"

/* Another free between the two. */
int main(void) {
    void *first = malloc(200), *between = malloc(200);
    free(hidden(first));
    free(hidden(between));
    free(hidden(first));
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"

/* It would stay where it is, so nothing is freed a second time. */
int main(void) {
    void *object = malloc(100), *between = malloc(100);
    free(hidden(object));
    free(hidden(between));
    return realloc(hidden(object), 99) == NULL;
}

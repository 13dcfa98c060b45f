/* Loaded by lifecycle.c: allocates in its constructor and in its destructor. */
#include <stdlib.h>
#include <string.h>

static char *held;

__attribute__((constructor)) static void enter(void) {
    held = malloc(5000);
    memset(held, 9, 5000);
}

__attribute__((destructor)) static void leave(void) {
    char *more = realloc(held, 50000);
    free(more);
}

char *plugin_make(size_t size) {
    char *block = malloc(size);
    memset(block, 9, size);
    return block;
}

/* A plugin that frees what its program allocated and allocates what it frees. */
#include <stdlib.h>
#include <string.h>

char *exchange(char *block) {
    char *copy = strdup(block);
    free(block);
    return realloc(copy, 100);
}

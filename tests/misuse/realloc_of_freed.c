#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    void *object = malloc(100);
    free(hidden(object));
    return realloc(hidden(object), 5000) == NULL;
}

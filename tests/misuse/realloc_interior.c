#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *object = malloc(1000);
    return realloc(hidden(object + 32), 2000) == NULL;
}

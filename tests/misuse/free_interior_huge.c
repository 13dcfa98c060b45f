#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *block = malloc(100 << 20);
    free(hidden(block + (10 << 20)));
    return 0;
}

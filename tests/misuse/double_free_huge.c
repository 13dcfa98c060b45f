#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *block = malloc(100 << 20);
    block[0] = 1;
    free(hidden(block));
    free(hidden(block));
    return 0;
}

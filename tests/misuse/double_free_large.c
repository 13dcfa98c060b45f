#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *block = malloc(300000);
    memset(block, 1, 300000);
    free(hidden(block));
    free(hidden(block));
    return 0;
}

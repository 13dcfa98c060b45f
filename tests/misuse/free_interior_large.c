#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *block = malloc(300000);
    free(hidden(block + 8192));
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"

static char object[64] __attribute__((aligned(64)));

int main(void) {
    free(hidden(malloc(10)));
    free(hidden(object));
    return 0;
}

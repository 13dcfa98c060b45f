#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char local[64] __attribute__((aligned(64)));
    local[0] = 1;
    free(hidden(malloc(10)));
    free(hidden(local));
    return 0;
}

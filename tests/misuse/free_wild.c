#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    free(hidden(malloc(10)));
    free(hidden((void *)(uintptr_t)0x4141414141414140));
    return 0;
}

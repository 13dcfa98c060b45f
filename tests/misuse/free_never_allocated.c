#define _GNU_SOURCE
#include "misuse.h"

/* An address inside the allocator that no one was ever given. */
int main(void) {
    char *object = malloc(4000);
    free(hidden(object + 4096 * 8));
    return 0;
}

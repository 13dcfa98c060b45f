#define _GNU_SOURCE
#include "misuse.h"
#include <stdio.h>

/* Another free between the two, and the block written to, which takes its mark off. The end of the
   program is soon after. */
int main(void) {
    enum { LIVE = 5 };
    void *first = malloc(200), *between = malloc(200);
    for (int at = 0; at < LIVE; at++)
        hidden(malloc(200));
    free(hidden(first));
    free(hidden(between));
    memset(hidden(first), 1, 200);
    free(hidden(first));
    printf("written\n");
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"
#include <stdio.h>

/* Another free between the two, and the end of the program soon after. */
int main(void) {
    void *first = malloc(200), *between = malloc(200);
    free(hidden(first));
    free(hidden(between));
    free(hidden(first));
    printf("written\n");
    return 0;
}

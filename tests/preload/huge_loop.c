/* Allocates, writes and frees 8 MiB, a hundred times; prints the page faults of the last ninety. Then
   callocs in the memory that was kept, and trims. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { BYTES = 8 << 20 };

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

int main(void) {
    long before = 0;
    for (int round = 0; round < 100; round++) {
        if (round == 10)
            before = faults();
        char *block = malloc(BYTES);
        memset(block, round | 1, BYTES);
        free(block);
    }
    long last = faults() - before;
    char *zeroed = calloc(BYTES / 8 - 100, 8);
    for (size_t at = 0; at < BYTES - 800; at++)
        if (zeroed[at])
            return 1;
    free(zeroed);
    if (malloc_trim(0) != 1)
        return 2;
    printf("%ld\n", last);
    return 0;
}

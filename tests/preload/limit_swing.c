/* Under a limit of address space: as many small blocks as there can be are allocated and freed, then one
   block has nearly all of it, then the small ones can be had again.
   Arguments: the limit in KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t fill(char ***first) {
    size_t got = 0;
    for (char **block; (block = malloc(64)); got++) {
        *block = (char *)*first;
        *first = block;
    }
    return got;
}

static void drop(char **first) {
    while (first) {
        char **next = (char **)*first;
        free(first);
        first = next;
    }
}

int main(int count, char **arguments) {
    size_t limit = (count > 1 ? strtoul(arguments[1], NULL, 10) : 200000) << 10;
    size_t before = 0;
    for (int round = 0; round < 2; round++) {
        char **first = NULL;
        size_t got = fill(&first);
        drop(first);
        if (got * 64 < limit / 100 * 85) printf("%zu blocks of 64 bytes were all\n", got);
        if (got < before / 100 * 95) printf("%zu blocks where %zu were before\n", got, before);
        before = got;
        char *large = malloc(limit / 100 * 85);
        if (!large) puts("no block of nearly all that was freed");
        if (large) memset(large, 1, limit / 100 * 85);
        free(large);
    }
    puts("ok");
    return 0;
}

/* Lowers its own limit of address space and allocates until refused: NULL with ENOMEM comes near the
   limit, although the allocator reserved far more before, and what is freed can be had again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LIMIT = 256 << 20, SIZE = 10000 };

static size_t fill(char ***first) {
    size_t got = 0;
    char **block;
    errno = 0;
    while (got * SIZE < 2ul * LIMIT && (block = malloc(SIZE))) {
        memset(block, 1, SIZE);
        *block = (char *)*first;
        *first = block;
        got++;
    }
    if (got * SIZE < 2ul * LIMIT && errno != ENOMEM) puts("errno is not ENOMEM");
    return got;
}

static void drop(char **first) {
    while (first) {
        char **next = (char **)*first;
        free(first);
        first = next;
    }
}

int main(void) {
    char *volatile before = malloc(100);
    free(before);
    struct rlimit limit = {LIMIT, LIMIT};
    setrlimit(RLIMIT_AS, &limit);
    for (int round = 0; round < 2; round++) {
        char **first = NULL;
        size_t bytes = fill(&first) * SIZE;
        drop(first);
        if (bytes > LIMIT) printf("%zu MiB were granted\n", bytes >> 20);
        if (bytes < LIMIT / 2) printf("%zu MiB were all\n", bytes >> 20);
    }
    puts("ok");
    return 0;
}

/* A limit on what the heap holds: never exceeded, refused with ENOMEM, asked of a callback, ended. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*callback)(size_t wanted, size_t held, void *argument);
extern int flagstone_set_limit(size_t bytes, callback, void *argument) __attribute__((weak));
extern int flagstone_get(const char *name, uint64_t *value) __attribute__((weak));

#define MIB ((size_t)1 << 20)
#define LIMIT (64 * MIB)
/* What one slow path may take beyond what it was allowed is nothing; the rest of the process has some pages. */
#define SLACK (2 * MIB)

static size_t resident(void) {
    char text[128] = {0};
    int file = open("/proc/self/statm", 0);
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? strtoul(strchr(text, ' '), NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

static void **fill(size_t size, size_t *count) {
    void **list = NULL, **block;
    for (*count = 0; (block = malloc(size)) != NULL; ++*count) {
        memset(block, 1, size);
        *block = list;
        list = block;
    }
    CHECK(errno == ENOMEM);
    return list;
}

static void empty(void **list) {
    while (list) {
        void **next = *list;
        free(list);
        list = next;
    }
}

static void *filling(void *argument) {
    size_t count;
    void **list = fill((size_t)argument, &count);
    return list;
}

static void *spare;
static int asked;

static int gives(size_t wanted, size_t held, void *argument) {
    CHECK(argument == &spare && wanted > 0 && held <= LIMIT);
    CHECK(malloc(LIMIT) == NULL); /* what it asks for itself is not asked about */
    asked++;
    if (!spare)
        return 0;
    free(spare);
    spare = NULL;
    return 1;
}

int main(void) {
    if (!flagstone_set_limit) {
        fprintf(stderr, "skipped: the library under test has no limit\n");
        return 0;
    }
    size_t before = resident(), count, again;
    CHECK(flagstone_set_limit(1000, NULL, NULL) == EINVAL);
    CHECK(flagstone_set_limit(LIMIT, NULL, NULL) == 0);
    uint64_t value = 0;
    CHECK(flagstone_get("limit", &value) == 0 && value == LIMIT);
    size_t sizes[] = {64, 1000, 9000, 30000, 50000, 300000, 1000000, 6000000};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        void **list = fill(sizes[at], &count);
        size_t grown = resident() - before;
        if (grown > LIMIT + SLACK || count * sizes[at] < LIMIT * 3 / 4)
            fprintf(stderr, "%zu blocks of %zu, grown by %zu\n", count, sizes[at], grown);
        CHECK(grown <= LIMIT + SLACK);
        CHECK(count * sizes[at] >= LIMIT * 3 / 4);
        /* One back, one again; a large one never. */
        void **rest = *list;
        free(list);
        void *one = malloc(sizes[at]);
        CHECK(one != NULL);
        REFUSED(malloc(LIMIT), ENOMEM);
        REFUSED(realloc(one, LIMIT), ENOMEM);
        REFUSED(calloc(LIMIT, 1), ENOMEM);
        free(one);
        empty(rest);
    }
    /* Threads together. */
    pthread_t threads[4];
    for (size_t at = 0; at < 4; at++)
        pthread_create(&threads[at], NULL, filling, (void *)(at * 20000 + 100));
    void *lists[4];
    for (size_t at = 0; at < 4; at++)
        pthread_join(threads[at], &lists[at]);
    CHECK(resident() - before <= LIMIT + SLACK + 4 * MIB);
    for (size_t at = 0; at < 4; at++)
        empty(lists[at]);
    /* The program gives something up. */
    spare = malloc(16 * MIB);
    CHECK(spare && flagstone_set_limit(LIMIT, gives, &spare) == 0);
    void **list = fill(30000, &count);
    CHECK(asked == 2 && spare == NULL);
    CHECK(count * 30000 >= LIMIT * 3 / 4);
    empty(list);
    /* Small blocks scattered free serve again, though no page is free. */
    CHECK(flagstone_set_limit(LIMIT, NULL, NULL) == 0);
    list = fill(200, &count);
    size_t freed = 0;
    for (void **at = list; at && *at; at = *at, freed++) {
        void **next = *at;
        *at = *next;
        free(next);
        if (!*at)
            break;
    }
    void **more = fill(200, &again);
    CHECK(again >= freed * 9 / 10);
    empty(more);
    empty(list);
    /* No limit any more. */
    CHECK(flagstone_set_limit(0, NULL, NULL) == 0);
    void *large = malloc(2 * LIMIT);
    CHECK(large != NULL);
    free(large);
    DONE();
}

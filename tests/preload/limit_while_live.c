/* A limit of the address space that is set when the heap is in use: what is live stays whole, growing is refused with
   ENOMEM and changes nothing, shrinking and freeing always succeed, and what was freed can be had again as small
   blocks and as one. Argument: MiB beyond what is mapped. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LIVE = 2000, MORE = 200000 };
static char *live[LIVE];
static size_t sizes[LIVE];
static char *more[MORE];

static void check(int fine, const char *what, size_t at) {
    if (fine) return;
    fprintf(stderr, "%s (%zu, errno %d)\n", what, at, errno);
    exit(1);
}

static size_t mapped(void) {
    char text[128] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    check(file && fread(text, 1, sizeof text - 1, file) > 0, "statm", 0);
    fclose(file);
    return strtoul(text, NULL, 10) * 4096;
}

static void whole(size_t at) {
    check(live[at][0] == (char)at && live[at][sizes[at] - 1] == (char)(at + 1), "a live block changed", at);
}

static void mark(size_t at, size_t size) {
    sizes[at] = size;
    live[at][0] = at;
    live[at][size - 1] = at + 1;
}

int main(int count, char **words) {
    size_t spare = (count > 1 ? strtoul(words[1], NULL, 10) : 64) << 20;
    for (size_t at = 0; at < LIVE; at++) {
        size_t size = 16 + at * at % 60000;
        check((live[at] = malloc(size)) != NULL, "before the limit", at);
        mark(at, size);
    }
    struct rlimit limit = {mapped() + spare, RLIM_INFINITY};
    check(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit", 0);
    for (int round = 0; round < 4; round++) {
        /* To the brim, in sizes of every kind. */
        size_t got = 0, bytes = 0, largest = 12 << 20;
        while (got < MORE && largest >= 16) {
            size_t size = largest - largest / 3 * (got % 3) / 2;
            if ((more[got] = malloc(size))) {
                memset(more[got], 3, size < 4096 ? size : 4096);
                bytes += size;
                got++;
            } else {
                check(errno == ENOMEM, "a refusal", size);
                largest /= 2;
            }
        }
        check(round > 0 || bytes >= spare / 2, "half of what the limit leaves", bytes);
        for (size_t at = 0; at < LIVE; at += 7) {
            whole(at);
            size_t size = sizes[at];
            char *grown = realloc(live[at], size + (8 << 20));
            if (grown) {
                live[at] = grown;
                check(grown[0] == (char)at && grown[size - 1] == (char)(at + 1), "a grown block changed", at);
            }
            char *shrunk = realloc(live[at], size / 2 + 2);
            check(shrunk != NULL, "a shorter block was refused", size);
            live[at] = shrunk;
            check(shrunk[0] == (char)at, "a shortened block changed", at);
            mark(at, size / 2 + 2);
        }
        for (size_t at = 0; at < got; at++) free(more[at]);
        for (size_t at = 0; at < LIVE; at++) whole(at);
        char *one = malloc(spare / 2);
        check(one != NULL, "half of what the limit leaves, as one block", round);
        memset(one, 1, 4096);
        free(one);
    }
    puts("ok");
    return 0;
}

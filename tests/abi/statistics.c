/* mallinfo, mallinfo2, malloc_info, malloc_stats, malloc_trim, mallopt. */
#define _GNU_SOURCE
#include "check.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    enum { COUNT = 2000, SIZE = 1000 };
    static void *object[COUNT];
    struct mallinfo2 before = mallinfo2();
    for (int at = 0; at < COUNT; at++)
        memset(object[at] = malloc(SIZE), 1, SIZE);
    struct mallinfo2 full = mallinfo2();
    CHECK(full.uordblks + full.hblkhd >= before.uordblks + before.hblkhd + COUNT * SIZE * 9 / 10);
    CHECK(full.arena + full.hblkhd >= full.uordblks);
    for (int at = 0; at < COUNT; at++)
        free(object[at]);
    struct mallinfo2 after = mallinfo2();
    /* Free objects in caches are not held by the program; the C library may hold a little more. */
    CHECK(full.uordblks >= before.uordblks + COUNT * SIZE);
    CHECK(after.uordblks < before.uordblks + 1000);
    CHECK(after.fordblks + after.uordblks <= after.arena);
    struct mallinfo narrow = mallinfo();
    CHECK(narrow.uordblks >= 0 && narrow.arena >= 0);

    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);
    trimmed = malloc_trim((size_t)-1);
    CHECK(trimmed == 0 || trimmed == 1);

    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(malloc_info(0, stream) == 0);
    fclose(stream);
    CHECK(length > 20 && strncmp(text, "<malloc version=", 16) == 0);
    CHECK(strstr(text, "</malloc>") != NULL);
    free(text);
    CHECK(malloc_info(1, stdout) == EINVAL);

    int set = mallopt(M_MMAP_THRESHOLD, 1 << 20);
    CHECK(set == 0);
    set = mallopt(M_ARENA_MAX, 1);
    CHECK(set == 0);
    set = mallopt(-12345, 0);
    CHECK(set == 0);
    /* The lines programs look for, with the numbers of this heap. */
    void *huge = malloc(64 << 20);
    CHECK(huge != NULL);
    free(huge);
    FILE *lines = tmpfile();
    int stderr_before = dup(2);
    dup2(fileno(lines), 2);
    malloc_stats();
    dup2(stderr_before, 2);
    rewind(lines);
    static char said[4096];
    size_t said_length = fread(said, 1, sizeof said - 1, lines);
    CHECK(said_length > 0 && strncmp(said, "Arena 0:\nsystem bytes     = ", 28) == 0);
    CHECK(strstr(said, "Total (incl. mmap):\n") != NULL);
    char *most = strstr(said, "max mmap bytes   = ");
    CHECK(most != NULL && strtoul(most + 19, NULL, 10) >= 64 << 20);
    DONE();
}

// One wrong free, chosen by name; the allocator must end the program with one line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*volatile p_free)(void *) = free;
static void *(*volatile p_malloc)(size_t) = malloc;
static char global[64];

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    char *block = p_malloc(100);
    char *large = p_malloc(200000);
    char *huge = p_malloc((size_t)64 << 20);
    char local[64];
    if (!strcmp(kind, "double")) {
        p_free(block);
        p_free(block);
    } else if (!strcmp(kind, "double-large")) {
        p_free(large);
        p_free(large);
    } else if (!strcmp(kind, "double-huge")) {
        p_free(huge);
        p_free(huge);
    } else if (!strcmp(kind, "misaligned")) {
        p_free(block + 1);
    } else if (!strcmp(kind, "inside-large")) {
        p_free(large + 4096);
    } else if (!strcmp(kind, "inside-huge")) {
        p_free(huge + 4096);
    } else if (!strcmp(kind, "global")) {
        p_free(global);
    } else if (!strcmp(kind, "stack")) {
        p_free(local);
    } else if (!strcmp(kind, "realloc-global")) {
        block = realloc(global, 10);
    } else {
        return 3;
    }
    puts("went on");
    return 0;
}

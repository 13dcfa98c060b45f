/* Prints what pages three mappings ask for, that of the first block, of a large one and of the last of a heap of small ones:
 * huge, plain or any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 4096

static const char *asks(void *block) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long at = (unsigned long)block, from, to;
    const char *found = "nothing";
    int here = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from <= at && at < to;
        else if (here && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, " hg") ? "huge" : strstr(line, " nh") ? "plain" : "any";
    }
    if (maps)
        fclose(maps);
    return found;
}

int main(void) {
    static char *blocks[BLOCKS];
    char *first = malloc(1);
    char *large = malloc(64 << 20);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(16 << 10);
    printf("%s %s %s\n", asks(first), asks(large), asks(blocks[BLOCKS - 1]));
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(large);
    free(first);
    return 0;
}

/* Prints 1 if the mapping of a large block, or of a heap of small ones, asks for huge pages, else 0: two words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 4096

static int asks(void *block) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long at = (unsigned long)block, from, to;
    int here = 0, found = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from <= at && at < to;
        else if (here && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, " hg") != NULL;
    }
    if (maps)
        fclose(maps);
    return found;
}

int main(void) {
    static char *blocks[BLOCKS];
    char *large = malloc(64 << 20);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(16 << 10);
    printf("%d %d\n", asks(large), asks(blocks[BLOCKS - 1]));
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(large);
    return 0;
}

/* A hundred thousand blocks of 1 MiB that nobody touches cost a page each while they live, and next to
   nothing once they are freed. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 100000, MIB = 1 << 20 };

static long resident_kib(void) {
    long size, pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld %ld", &size, &pages) != 2) puts("no statm");
    if (statm) fclose(statm);
    return pages * 4;
}

int main(void) {
    static void *blocks[BLOCKS];
    for (int n = 0; n < BLOCKS; n++)
        if (!(blocks[n] = malloc(MIB))) return 1;
    long live = resident_kib();
    if (live > 5l * BLOCKS) printf("%ld KiB while %d blocks live\n", live, BLOCKS);
    for (int n = 0; n < BLOCKS; n++) free(blocks[n]);
    malloc_trim(0);
    if (resident_kib() > 16 << 10) printf("%ld KiB stay\n", resident_kib());
    puts("ok");
    return 0;
}

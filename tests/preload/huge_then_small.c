/* Three times 30 MiB, written and freed: enough to teach a heap to keep the block. Then 50 MiB in small
   blocks, which fit in a container of 64 MiB only if the 30 MiB went back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    for (int round = 0; round < 3; round++) {
        char *block = malloc(30 << 20);
        memset(block, 1, 30 << 20);
        free(block);
    }
    for (int at = 0; at < 50 << 10; at++)
        memset(malloc(1000), 1, 1000);
    puts("done");
    return 0;
}

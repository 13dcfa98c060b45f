/* Allocates until refused, three times over; each refusal is NULL with ENOMEM, everything that was
   granted is whole, and after the frees the next round gets as far again.
   Arguments: block size, blocks at most. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    size_t size = count > 1 ? strtoul(arguments[1], NULL, 10) : 1 << 20;
    size_t most = count > 2 ? strtoul(arguments[2], NULL, 10) : 1 << 20;
    size_t first = 0;
    for (int round = 0; round < 3; round++) {
        size_t got = 0;
        char **chain = NULL;
        errno = 0;
        for (; got < most; got++) {
            char **block = malloc(size);
            if (!block)
                break;
            memset(block, round + 1, size);
            *block = (char *)chain;
            chain = block;
        }
        if (got == 0 || (got < most && errno != ENOMEM)) {
            fprintf(stderr, "round %d: %zu blocks, errno %d\n", round, got, errno);
            return 1;
        }
        for (size_t at = 0; at < got; at++) {
            char **block = chain;
            if (((char *)block)[size - 1] != round + 1)
                return 2;
            chain = (char **)*block;
            free(block);
        }
        if (round == 0)
            first = got;
        else if (got < first * 8 / 10) {
            fprintf(stderr, "round %d: %zu blocks where the first round had %zu\n", round, got, first);
            return 3;
        }
    }
    printf("refused or full: %s\n", first < most ? "refused" : "full");
    return 0;
}

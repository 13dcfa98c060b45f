/* 64 MiB by each way to ask for small blocks, all given back: what a profile counts as allocated, and that nothing is live. */
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    enum { N = 1000, SIZE = 200, ROUNDS = (64 << 20) / (N * SIZE) };
    static void *blocks[N];
    int zeroed = count > 1 && !strcmp(words[1], "calloc"), grown = count > 1 && !strcmp(words[1], "realloc");
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++) {
            if (zeroed) blocks[i] = calloc(SIZE / 4, 4);
            else if (grown) blocks[i] = realloc(NULL, SIZE);
            else blocks[i] = malloc(SIZE);
            for (int at = 0; zeroed && at < SIZE; at++) if (((char *)blocks[i])[at]) abort();
            memset(blocks[i], 1, SIZE);
        }
        for (int i = 0; i < N; i++) free(blocks[i]);
    }
    return 0;
}

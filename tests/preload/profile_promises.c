/* Every way to get, resize and give back a block, with a sample at about every other one of them: contents stay,
   alignments hold, usable sizes do not change, sized frees are taken. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((weak)) void free_sized(void *, size_t);
__attribute__((weak)) void free_aligned_sized(void *, size_t, size_t);

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d, round %d: %s\n", __LINE__, round, #what); exit(1); } } while (0)

static void fill(unsigned char *p, size_t n, int seed) { for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(seed + i * 7); }
static int whole(unsigned char *p, size_t n, int seed) {
    for (size_t i = 0; i < n; i++) if (p[i] != (unsigned char)(seed + i * 7)) return 0;
    return 1;
}

int main(void) {
    static const size_t sizes[] = {0, 1, 16, 24, 100, 1000, 3000, 4096, 5000, 20000, 32768, 40000, 200000, 5000000};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int round = 0; round < 400; round++) {
        for (int at = 0; at < N; at++) {
            size_t n = sizes[at];
            if (n > 100000 && round % 20) continue;
            unsigned char *p = malloc(n);
            CHECK(p && (uintptr_t)p % 16 == 0);
            size_t usable = malloc_usable_size(p);
            CHECK(usable >= n);
            fill(p, n, at);
            size_t more = sizes[(at + round) % N];
            if (more > 100000) more = 700;
            p = realloc(p, more + 1);
            CHECK(p && malloc_usable_size(p) >= more + 1);
            CHECK(whole(p, n < more + 1 ? n : more + 1, at));
            free_sized(p, more + 1);
            unsigned char *z = calloc(n + 1, 3);
            CHECK(z);
            for (size_t i = 0; i < 3 * (n + 1); i += 97) CHECK(z[i] == 0);
            memset(z, 255, 3 * (n + 1));
            free(z);
            for (size_t align = 16; align <= 1 << 16; align <<= 4) {
                unsigned char *a = aligned_alloc(align, n);
                CHECK(a && (uintptr_t)a % align == 0);
                fill(a, n, 3);
                if (round & 1) {
                    a = realloc(a, n + 50);
                    CHECK(a && whole(a, n, 3));
                    free(a);
                } else {
                    free_aligned_sized(a, align, n);
                }
            }
            void *q = NULL;
            CHECK(posix_memalign(&q, 64, n) == 0 && (uintptr_t)q % 64 == 0);
            memset(q, 9, n);
            free(q);
            unsigned char *s = malloc(n);
            CHECK(s);
            free_sized(s, n);
        }
    }
    puts("done");
    return 0;
}

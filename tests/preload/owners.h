/* Blocks with a stamp of their owner, by which a block with two owners is noticed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HELD = 200 };

struct owner {
    uint64_t *blocks[HELD];
    uint64_t name, random;
};

static void stamp(uint64_t *block, uint64_t name, size_t words) {
    for (size_t i = 0; i < words; i++) block[i] = name ^ (uintptr_t)(block + i);
}

/* Writes no text through streams: the caller may share them with a stopped thread. */
static void expect_stamp(uint64_t *block, uint64_t name, size_t words) {
    for (size_t i = 0; i < words; i++)
        if (block[i] != (name ^ (uintptr_t)(block + i))) {
            static const char line[] = "a block with two owners\n";
            write(2, line, sizeof line - 1);
            _exit(3);
        }
}

/* Replaces blocks of 16 to 512 bytes at random, `steps` times. */
static void churn(struct owner *o, int steps) {
    while (steps--) {
        o->random = o->random * 6364136223846793005u + 1442695040888963407u;
        uint64_t **slot = &o->blocks[(o->random >> 33) % HELD];
        if (*slot) {
            size_t words = (*slot)[1] ^ o->name;
            if (words > 64) words = 3; /* overwritten: the stamps tell */
            expect_stamp(*slot, o->name, 1);
            expect_stamp(*slot + 2, o->name, words - 2);
            free(*slot);
        }
        size_t words = 2 + (o->random >> 20) % 63;
        uint64_t *block = malloc(words * 8);
        if (!block) _exit(4);
        block[0] = o->name ^ (uintptr_t)block;
        block[1] = words ^ o->name;
        stamp(block + 2, o->name, words - 2);
        *slot = block;
    }
}

static void drop(struct owner *o) {
    for (int i = 0; i < HELD; i++) {
        if (!o->blocks[i]) continue;
        size_t words = o->blocks[i][1] ^ o->name;
        if (words > 64) words = 3;
        expect_stamp(o->blocks[i], o->name, 1);
        expect_stamp(o->blocks[i] + 2, o->name, words - 2);
        free(o->blocks[i]);
        o->blocks[i] = NULL;
    }
}

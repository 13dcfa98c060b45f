/* realloc and reallocarray: growth, shrinking, NULL, zero (as glibc: frees), refusal. */
#define _GNU_SOURCE
#include "check.h"
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void fill(unsigned char *block, size_t from, size_t to) {
    for (size_t at = from; at < to; at++)
        block[at] = (unsigned char)(at * 31 + 7);
}

static int intact(const unsigned char *block, size_t length) {
    for (size_t at = 0; at < length; at++)
        if (block[at] != (unsigned char)(at * 31 + 7))
            return 0;
    return 1;
}

static void keeps_content(void) {
    unsigned char *block = realloc(NULL, 1);
    CHECK(block != NULL);
    fill(block, 0, 1);
    size_t length = 1;
    while (length < (size_t)64 << 20) {
        size_t next = length + length / 2 + 1;
        block = realloc(block, next);
        CHECK(block != NULL && intact(block, length < 5000 ? length : 5000));
        CHECK(block[length - 1] == (unsigned char)((length - 1) * 31 + 7));
        fill(block, length, next);
        length = next;
    }
    while (length > 1) {
        length = length * 2 / 3;
        block = realloc(block, length);
        CHECK(block != NULL && intact(block, length < 5000 ? length : 5000));
    }
    free(block);
}

/* Every pair of small sizes, so that each class boundary is crossed both ways. */
static void crosses_classes(void) {
    for (size_t from = 1; from < 2100; from += 41)
        for (size_t to = 1; to < 2100; to += 37) {
            unsigned char *block = malloc(from);
            fill(block, 0, from);
            block = realloc(block, to);
            CHECK(block != NULL && intact(block, from < to ? from : to));
            CHECK(malloc_usable_size(block) >= to);
            free(block);
        }
}

static void keeps_alignment_free_memory(void) {
    unsigned char *block = memalign(4096, 100);
    fill(block, 0, 100);
    block = realloc(block, 100000);
    CHECK(block != NULL && intact(block, 100));
    free(block);
}

static void zero_frees(void) {
    for (int round = 0; round < 100000; round++) {
        void *block = malloc(1 << 16);
        CHECK(block != NULL);
        CHECK(realloc(block, 0) == NULL);
    }
    void *block = malloc(100);
    CHECK(reallocarray(block, 0, 8) == NULL);
    void *made = realloc(NULL, 0);
    CHECK(made != NULL);
    free(made);
}

static void refusal_keeps_the_block(void) {
    unsigned char *block = malloc(100);
    fill(block, 0, 100);
    REFUSED(realloc(block, (size_t)-1), ENOMEM);
    REFUSED(realloc(block, PTRDIFF_MAX), ENOMEM);
    REFUSED(reallocarray(block, SIZE_MAX / 2, 3), ENOMEM);
    REFUSED(reallocarray(block, (size_t)1 << 33, (size_t)1 << 33), ENOMEM);
    CHECK(intact(block, 100));
    block = reallocarray(block, 10, 20);
    CHECK(block != NULL && intact(block, 100));
    free(block);
}

int main(void) {
    keeps_content();
    crosses_classes();
    keeps_alignment_free_memory();
    zero_frees();
    refusal_keeps_the_block();
    DONE();
}

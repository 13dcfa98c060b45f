/* malloc_usable_size: never less than asked, constant, all of it writable; C23 sized frees. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void usable(void) {
    CHECK(malloc_usable_size(NULL) == 0);
    enum { COUNT = 400 };
    static unsigned char *object[COUNT];
    static size_t length[COUNT];
    for (int at = 0; at < COUNT; at++) {
        size_t size = (size_t)at * at * 3 + 1;
        object[at] = malloc(size);
        length[at] = malloc_usable_size(object[at]);
        CHECK(length[at] >= size);
        memset(object[at], at % 251, length[at]);
    }
    for (int at = 0; at < COUNT; at++) {
        CHECK(malloc_usable_size(object[at]) == length[at]);
        for (size_t byte = 0; byte < length[at]; byte++)
            if (object[at][byte] != at % 251) {
                CHECK(!"usable bytes are shared");
                break;
            }
        /* Growing within what is usable keeps everything. */
        object[at] = realloc(object[at], length[at]);
        CHECK(object[at][length[at] - 1] == at % 251);
        free(object[at]);
    }
}

static void sized_frees(void) {
    void (*free_sized)(void *, size_t) = dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) = dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (!free_sized || !free_aligned_sized) {
        fprintf(stderr, "skipped: this library has no free_sized\n");
        return;
    }
    free_sized(NULL, 0);
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 64);
    for (size_t size = 0; size < 300000; size = size * 9 / 8 + 1) {
        free_sized(malloc(size), size);
        free_sized(calloc(1, size), size);
        free_sized(realloc(malloc(10), size + 1), size + 1);
        for (size_t alignment = 16; alignment <= 8192; alignment *= 4)
            free_aligned_sized(aligned_alloc(alignment, size), alignment, size);
    }
}

static void errno_is_kept(void) {
    static const size_t sizes[] = {1, 64, 1000, 4096, 100000, 3 << 20, 64 << 20};
    for (size_t which = 0; which < sizeof sizes / sizeof *sizes; which++) {
        char *block = malloc(sizes[which]);
        memset(block, 1, sizes[which]);
        errno = 77;
        free(block);
        CHECK(errno == 77);
    }
    errno = 78;
    free(NULL);
    CHECK(errno == 78);
}

int main(void) {
    usable();
    sized_frees();
    errno_is_kept();
    DONE();
}

/* malloc, calloc and free: zero, impossible and ordinary sizes. C23 7.24.3, glibc manual 3.2.3. */
#include "check.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void zero_sizes(void) {
    void *a = malloc(0), *b = malloc(0), *c = calloc(0, 8), *d = calloc(8, 0);
    CHECK(a && b && c && d);
    CHECK(a != b && b != c && c != d && a != d);
    free(a), free(b), free(c), free(d);
    free(NULL);
}

static void impossible_sizes(void) {
    REFUSED(malloc((size_t)-1), ENOMEM);
    REFUSED(malloc((size_t)PTRDIFF_MAX + 1), ENOMEM);
    REFUSED(malloc(PTRDIFF_MAX), ENOMEM);
    REFUSED(malloc(SIZE_MAX - 4095), ENOMEM);
    for (size_t less = 0; less < 70000; less += 97)
        REFUSED(malloc(SIZE_MAX - less), ENOMEM);
    REFUSED(calloc(SIZE_MAX / 2, 3), ENOMEM);
    REFUSED(calloc((size_t)1 << 32, (size_t)1 << 32), ENOMEM);
    REFUSED(calloc(SIZE_MAX, 1), ENOMEM);
    REFUSED(calloc(1, SIZE_MAX), ENOMEM);
    REFUSED(calloc(2, PTRDIFF_MAX), ENOMEM);
}

/* Every size is aligned for what fits into it, and its bytes are nobody else's. */
static void ordinary_sizes(void) {
    enum { COUNT = 3000 };
    static unsigned char *object[COUNT];
    for (size_t size = 0; size < COUNT; size++) {
        object[size] = malloc(size);
        CHECK(object[size] != NULL);
        if (size >= 16)
            CHECK((uintptr_t)object[size] % 16 == 0);
        else if (size >= 8)
            CHECK((uintptr_t)object[size] % 8 == 0);
        memset(object[size], (int)(size % 251), size);
    }
    for (size_t size = 0; size < COUNT; size++) {
        for (size_t at = 0; at < size; at++)
            if (object[size][at] != size % 251) {
                CHECK(!"two objects overlap");
                break;
            }
        free(object[size]);
    }
}

static void large_sizes(void) {
    for (size_t size = 1 << 12; size <= (size_t)1 << 28; size = size * 2 + 4097) {
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        CHECK((uintptr_t)block % 16 == 0);
        block[0] = 1, block[size / 2] = 2, block[size - 1] = 3;
        CHECK(block[0] == 1 && block[size / 2] == 2 && block[size - 1] == 3);
        free(block);
    }
}

/* calloc is zero even where dirty memory is used again. */
static void zeroed(void) {
    static const size_t sizes[] = {1, 8, 24, 100, 512, 4000, 4096, 5000, 20000, 70000, 300000, 5 << 20};
    for (int round = 0; round < 20; round++)
        for (size_t which = 0; which < sizeof sizes / sizeof *sizes; which++) {
            size_t size = sizes[which];
            unsigned char *dirty = malloc(size);
            memset(dirty, 0xff, size);
            free(dirty);
            unsigned char *clean = calloc(1, size);
            CHECK(clean != NULL);
            for (size_t at = 0; at < size; at++)
                if (clean[at] != 0) {
                    CHECK(!"calloc left old bytes");
                    break;
                }
            memset(clean, 0xff, size);
            free(clean);
        }
}

int main(void) {
    zero_sizes();
    impossible_sizes();
    ordinary_sizes();
    large_sizes();
    zeroed();
    DONE();
}

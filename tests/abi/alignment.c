/* aligned_alloc, posix_memalign, memalign, valloc, pvalloc. C23 7.24.3.1, POSIX.1-2024, glibc. */
#define _GNU_SOURCE
#include "check.h"
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void every_alignment(void) {
    static const size_t sizes[] = {0, 1, 8, 24, 100, 500, 4096, 5000, 70000, 1 << 20};
    for (size_t alignment = sizeof(void *); alignment <= (size_t)4 << 20; alignment *= 2)
        for (size_t which = 0; which < sizeof sizes / sizeof *sizes; which++) {
            size_t size = sizes[which];
            void *a = aligned_alloc(alignment, size), *b = memalign(alignment, size), *c = NULL;
            CHECK(posix_memalign(&c, alignment, size) == 0);
            CHECK(a && b && c && a != b && b != c && a != c);
            CHECK((uintptr_t)a % alignment == 0);
            CHECK((uintptr_t)b % alignment == 0);
            CHECK((uintptr_t)c % alignment == 0);
            CHECK(malloc_usable_size(a) >= size && malloc_usable_size(c) >= size);
            memset(a, 1, size), memset(b, 2, size), memset(c, 3, size);
            if (size > 0)
                CHECK(*(char *)a == 1 && *(char *)b == 2 && ((char *)c)[size - 1] == 3);
            free(a), free(b), free(c);
        }
}

/* Many at once: an aligned object must not sit on its neighbour. */
static void many(void) {
    enum { COUNT = 500 };
    static unsigned char *object[COUNT];
    for (int at = 0; at < COUNT; at++) {
        size_t alignment = (size_t)16 << at % 9;
        object[at] = aligned_alloc(alignment, 48 + at);
        CHECK(object[at] != NULL && (uintptr_t)object[at] % alignment == 0);
        memset(object[at], at % 251, 48 + at);
    }
    for (int at = 0; at < COUNT; at++) {
        CHECK(object[at][0] == at % 251 && object[at][47 + at] == at % 251);
        free(object[at]);
    }
}

static void bad_alignments(void) {
    REFUSED(aligned_alloc(3, 64), EINVAL);
    REFUSED(aligned_alloc(0, 64), EINVAL);
    REFUSED(aligned_alloc(48, 96), EINVAL);
    static const size_t wrong[] = {0, 1, 2, 3, 4, 12, 24, 100, SIZE_MAX};
    for (size_t which = 0; which < sizeof wrong / sizeof *wrong; which++) {
        void *kept = &kept;
        errno = 77;
        CHECK(posix_memalign(&kept, wrong[which], 64) == EINVAL);
        CHECK(kept == &kept);
        CHECK(errno == 77);
    }
    /* memalign rounds a strange alignment up, as glibc does. */
    void *odd = memalign(3, 64);
    CHECK(odd != NULL && (uintptr_t)odd % 4 == 0);
    free(odd);
    REFUSED(memalign(SIZE_MAX, 64), EINVAL);
}

static void impossible_sizes(void) {
    REFUSED(aligned_alloc(64, PTRDIFF_MAX), ENOMEM);
    REFUSED(aligned_alloc(4096, SIZE_MAX - 4095), ENOMEM);
    REFUSED(memalign(64, SIZE_MAX), ENOMEM);
    REFUSED(valloc(SIZE_MAX), ENOMEM);
    REFUSED(pvalloc(SIZE_MAX), ENOMEM);
    REFUSED(pvalloc(SIZE_MAX - 4000), ENOMEM);
    void *kept = &kept;
    errno = 77;
    CHECK(posix_memalign(&kept, 64, PTRDIFF_MAX) == ENOMEM);
    /* As in glibc; POSIX leaves errno open. */
    CHECK(kept == &kept && errno == ENOMEM);
}

static void pages(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *a = valloc(1), *b = pvalloc(1), *c = pvalloc(page + 1);
    CHECK(a && b && c);
    CHECK((uintptr_t)a % page == 0 && (uintptr_t)b % page == 0 && (uintptr_t)c % page == 0);
    CHECK(malloc_usable_size(b) >= page && malloc_usable_size(c) >= 2 * page);
    memset(c, 1, 2 * page);
    free(a), free(b), free(c);
}

int main(void) {
    every_alignment();
    many();
    bad_alignments();
    impossible_sizes();
    pages();
    DONE();
}

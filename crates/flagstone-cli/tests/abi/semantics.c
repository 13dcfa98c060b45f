// The C allocation functions as C23, POSIX and glibc define them.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            printf("line %d: %s\n", __LINE__, #what);                                            \
            failures++;                                                                          \
        }                                                                                        \
    } while (0)

// Hidden from the compiler, which knows what malloc may not do.
static void *(*volatile p_malloc)(size_t) = malloc;
static void *(*volatile p_calloc)(size_t, size_t) = calloc;
static void *(*volatile p_realloc)(void *, size_t) = realloc;
static void *(*volatile p_reallocarray)(void *, size_t, size_t) = reallocarray;
static void *(*volatile p_aligned_alloc)(size_t, size_t) = aligned_alloc;
static void *(*volatile p_memalign)(size_t, size_t) = memalign;
static int (*volatile p_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void (*volatile p_free)(void *) = free;

extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

static int aligned_to(void *block, size_t align) { return ((uintptr_t)block & (align - 1)) == 0; }

static int zeroed(const char *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (block[i]) return 0;
    return 1;
}

static void impossible_sizes(void) {
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, (size_t)1 << 62};
    for (int i = 0; i < 4; i++) {
        errno = 0;
        CHECK(p_malloc(sizes[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(p_calloc(1, sizes[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(p_memalign(64, sizes[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(p_aligned_alloc(4096, sizes[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(valloc(sizes[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(pvalloc(sizes[i]) == NULL && errno == ENOMEM);
        void *kept = p_malloc(100);
        memset(kept, 7, 100);
        errno = 0;
        CHECK(p_realloc(kept, sizes[i]) == NULL && errno == ENOMEM);
        CHECK(((char *)kept)[99] == 7);
        p_free(kept);
    }
    errno = 0;
    CHECK(p_calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(p_reallocarray(NULL, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
}

static void alignments(void) {
    errno = 0;
    CHECK(p_aligned_alloc(3, 100) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(p_aligned_alloc(0, 100) == NULL && errno == EINVAL);
    void *out = (void *)&failures;
    errno = 77;
    CHECK(p_posix_memalign(&out, 3, 100) == EINVAL && out == (void *)&failures);
    CHECK(p_posix_memalign(&out, 4, 100) == EINVAL && out == (void *)&failures);
    CHECK(p_posix_memalign(&out, 0, 100) == EINVAL && out == (void *)&failures);
    CHECK(p_posix_memalign(&out, 64, SIZE_MAX) == ENOMEM && out == (void *)&failures);
    CHECK(errno == 77);
    for (size_t align = 8; align <= (size_t)8 << 20; align *= 2)
        for (size_t size = 0; size <= (size_t)3 << 20; size = size * 3 + 1) {
            void *block = NULL;
            CHECK(p_posix_memalign(&block, align, size) == 0 && block && aligned_to(block, align));
            CHECK(malloc_usable_size(block) >= size);
            memset(block, 0xa5, size);
            p_free(block);
            block = p_aligned_alloc(align, size);
            CHECK(block && aligned_to(block, align));
            block = p_realloc(block, size + 100);
            CHECK(block && aligned_to(block, 16));
            p_free(block);
        }
    void *odd = p_memalign(48, 10);
    CHECK(odd && aligned_to(odd, 64));
    p_free(odd);
    errno = 0;
    CHECK(p_memalign(SIZE_MAX, 1) == NULL && errno == EINVAL);
    size_t page = sysconf(_SC_PAGESIZE);
    void *one = valloc(1);
    CHECK(one && aligned_to(one, page));
    p_free(one);
    one = pvalloc(1);
    CHECK(one && aligned_to(one, page) && malloc_usable_size(one) >= page);
    p_free(one);
}

static void zero_sizes(void) {
    void *a = p_malloc(0), *b = p_malloc(0);
    CHECK(a && b && a != b);
    p_free(b);
    errno = 5;
    CHECK(p_realloc(a, 0) == NULL && errno == 5);
    a = p_realloc(NULL, 0);
    CHECK(a);
    p_free(a);
    a = p_calloc(0, 10);
    CHECK(a);
    p_free(a);
    p_free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
}

static void contents(void) {
    for (size_t size = 1; size < (size_t)20 << 20; size = size * 5 / 4 + 1) {
        unsigned char *block = p_malloc(size);
        CHECK(block && aligned_to(block, 16));
        CHECK(malloc_usable_size(block) >= size);
        memset(block, 0x5a, malloc_usable_size(block));
        unsigned char *grown = p_realloc(block, size * 2);
        CHECK(grown && grown[0] == 0x5a && grown[size - 1] == 0x5a);
        unsigned char *shrunk = p_realloc(grown, size / 2 + 1);
        CHECK(shrunk && shrunk[0] == 0x5a && shrunk[size / 2] == 0x5a);
        p_free(shrunk);
        unsigned char *clean = p_calloc(3, size);
        CHECK(clean && zeroed((char *)clean, size * 3));
        memset(clean, 0xff, size * 3);
        p_free(clean);
        clean = p_calloc(1, size);
        CHECK(clean && zeroed((char *)clean, size));
        p_free(clean);
    }
}

static void errno_is_kept(void) {
    void *blocks[2000];
    errno = 33;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2000; i++) {
            blocks[i] = p_malloc((size_t)(i % 100) << (i % 13));
            CHECK(blocks[i]);
        }
        for (int i = 0; i < 2000; i++) p_free(blocks[i]);
    }
    malloc_trim(0);
    CHECK(errno == 33);
}

static void sized_frees(void) {
    CHECK(free_sized && free_aligned_sized);
    if (!free_sized) return;
    free_sized(p_malloc(40), 40);
    free_sized(NULL, 40);
    free_aligned_sized(p_aligned_alloc(64, 128), 64, 128);
}

static void numbers(void) {
    void *block = p_malloc(100000);
    struct mallinfo2 info = mallinfo2();
    CHECK(info.uordblks >= 100000 && info.arena >= 100000);
    p_free(block);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    CHECK(mallopt(12345, 1) == 0);
    FILE *sink = fopen("/dev/null", "w");
    CHECK(malloc_info(0, sink) == 0);
    errno = 0;
    CHECK(malloc_info(1, sink) == -1 && errno == EINVAL);
    fclose(sink);
}

int main(void) {
    impossible_sizes();
    alignments();
    zero_sizes();
    contents();
    errno_is_kept();
    sized_frees();
    numbers();
    if (!failures) puts("ok");
    return failures != 0;
}

#define _GNU_SOURCE
#include "misuse.h"

#include <dlfcn.h>
#include <unistd.h>

/* Calls a function of the library by the name of its symbol. */
static void *function(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL)
        abort();
    return found;
}

static void *got_by(const char *name, size_t size) {
    void *call = function(name), *out = NULL;
    if (!strcmp(name, "calloc"))
        return ((void *(*)(size_t, size_t))call)(1, size);
    if (!strcmp(name, "realloc"))
        return ((void *(*)(void *, size_t))call)(NULL, size);
    if (!strcmp(name, "reallocarray"))
        return ((void *(*)(void *, size_t, size_t))call)(NULL, 1, size);
    if (!strcmp(name, "posix_memalign"))
        return ((int (*)(void **, size_t, size_t))call)(&out, 64, size) ? NULL : out;
    if (!strcmp(name, "aligned_alloc") || !strcmp(name, "memalign"))
        return ((void *(*)(size_t, size_t))call)(64, size);
    if (strstr(name, "align_val_t"))
        return ((void *(*)(size_t, size_t))call)(size, 64);
    return ((void *(*)(size_t))call)(size);
}

static void given_to(const char *name, void *block, size_t size) {
    void *call = function(name);
    if (!strcmp(name, "realloc"))
        ((void *(*)(void *, size_t))call)(block, 0);
    else if (!strcmp(name, "reallocarray"))
        ((void *(*)(void *, size_t, size_t))call)(block, 1, 5 * size);
    else if (!strcmp(name, "malloc_usable_size"))
        ((size_t (*)(void *))call)(block);
    else if (!strcmp(name, "free_aligned_sized"))
        ((void (*)(void *, size_t, size_t))call)(block, 64, size);
    else if (strstr(name, "align_val_t"))
        ((void (*)(void *, size_t, size_t))call)(block, 64, 64);
    else
        ((void (*)(void *, size_t))call)(block, size);
}

/* Arguments: size, how the block is got, how it is given back, and how again. Another free lies
   between, so that the block is not on top of anything. Ends without a last look. */
int main(int count, char **arguments) {
    if (count != 5)
        return 2;
    size_t size = strtoul(arguments[1], NULL, 10);
    void *block = got_by(arguments[2], size), *between = got_by(arguments[2], size);
    given_to(arguments[3], block, size);
    given_to(arguments[3], between, size);
    if (write(1, "once\n", 5) != 5)
        return 2;
    given_to(arguments[4], block, size);
    _exit(0);
}

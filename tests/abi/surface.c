/* Every function of the surface is found, and in the file named by the argument. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const surface[] = {
    "malloc", "free", "calloc", "realloc", "reallocarray", "memalign", "posix_memalign",
    "aligned_alloc", "valloc", "pvalloc", "malloc_usable_size", "malloc_trim", "mallinfo",
    "mallinfo2", "malloc_stats", "malloc_info", "mallopt", "free_sized", "free_aligned_sized",
    /* operator new and new[]: plain, nothrow, aligned, aligned nothrow */
    "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    /* operator delete and delete[]: plain, sized, nothrow, aligned, sized aligned, aligned nothrow */
    "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
};

int main(int count, char **arguments) {
    char wanted[PATH_MAX], found[PATH_MAX];
    if (count != 2 || !realpath(arguments[1], wanted))
        return 2;
    for (size_t at = 0; at < sizeof surface / sizeof *surface; at++) {
        void *symbol = dlsym(RTLD_DEFAULT, surface[at]);
        Dl_info info;
        if (!symbol || !dladdr(symbol, &info) || !realpath(info.dli_fname, found)) {
            fprintf(stderr, "%s is missing\n", surface[at]);
            failures++;
        } else if (strcmp(found, wanted) != 0) {
            fprintf(stderr, "%s comes from %s\n", surface[at], found);
            failures++;
        }
    }
    DONE();
}

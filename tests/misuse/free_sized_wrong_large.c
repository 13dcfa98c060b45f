#define _GNU_SOURCE
#include "misuse.h"

#include <dlfcn.h>

int main(void) {
    void (*free_sized)(void *, size_t) = dlsym(RTLD_DEFAULT, "free_sized");
    void *object = malloc(300000);
    free_sized(hidden(object), 100);
    return 0;
}

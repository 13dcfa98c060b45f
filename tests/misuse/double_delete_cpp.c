#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    /* What the C++ operator delete does. */
    extern void _ZdlPvm(void *, size_t) __attribute__((weak));
    void *object = malloc(64);
    if (!_ZdlPvm)
        abort();
    _ZdlPvm(hidden(object), 64);
    _ZdlPvm(hidden(object), 64);
    return 0;
}

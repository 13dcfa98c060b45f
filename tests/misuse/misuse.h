/* A misuse program must die of the misuse: reaching the end is exit 0, which its test rejects. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Hides a pointer from the compiler, which would otherwise refuse or drop the wrong call. */
static void *hidden(void *pointer) {
    void *volatile copy = pointer;
    return copy;
}

#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    void *object = malloc(100);
    free(hidden(object));
    free(hidden(object));
    return 0;
}

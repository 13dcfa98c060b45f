#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *object = malloc(100);
    free(hidden(object + 1));
    return 0;
}

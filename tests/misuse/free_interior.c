#define _GNU_SOURCE
#include "misuse.h"

int main(void) {
    char *object = malloc(1000);
    free(hidden(object + 16));
    return 0;
}

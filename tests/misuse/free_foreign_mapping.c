#define _GNU_SOURCE
#include "misuse.h"

#include <sys/mman.h>

int main(void) {
    char *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    free(hidden(malloc(10)));
    free(hidden(page));
    return 0;
}

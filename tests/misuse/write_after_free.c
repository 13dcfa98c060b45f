#define _GNU_SOURCE
#include "misuse.h"

/* Freed objects are overwritten; what is handed out afterwards must still be sound, or the damage
   be named. Prints "sound" when every object is its owner's alone. */
#include <stdio.h>

enum { COUNT = 20000, SIZE = 96 };
static char *object[COUNT], *fresh[COUNT];

int main(void) {
    for (int at = 0; at < COUNT; at++)
        object[at] = malloc(SIZE);
    for (int at = 0; at < COUNT; at++)
        free(object[at]);
    /* Only the pages that are still mapped may be written: the first objects of the newest. */
    for (int at = COUNT - 30; at < COUNT; at++)
        memset(hidden(object[at]), 0x41, SIZE);
    for (int at = 0; at < COUNT; at++) {
        fresh[at] = malloc(SIZE);
        memset(fresh[at], at % 251, SIZE);
    }
    for (int at = 0; at < COUNT; at++)
        for (int byte = 0; byte < SIZE; byte++)
            if (fresh[at][byte] != (char)(at % 251))
                return 1;
    puts("sound");
    return 0;
}

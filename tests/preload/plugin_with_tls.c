/* Loaded and unloaded by plugins_with_tls.c: thread-local memory that the C library allocates in each thread that
   touches it, and blocks from constructors and destructors. */
#include <stdlib.h>
#include <string.h>

static _Thread_local char scratch[20000];
static _Thread_local char *held;
static char *shared;

__attribute__((constructor)) static void enter(void) {
    shared = calloc(1, 70000);
}

__attribute__((destructor)) static void leave(void) {
    free(realloc(shared, 10));
}

/* Uses the calling thread's memory; 0 if it is as it was left, or new. */
int plugin_use(int mark) {
    if (held && held[99] != scratch[0]) return 1;
    if (!held && scratch[0]) return 2;
    memset(scratch, mark, sizeof scratch);
    free(held);
    held = malloc(100);
    held[99] = mark;
    return scratch[sizeof scratch - 1] != mark;
}

void plugin_done(void) {
    free(held);
    held = NULL;
    scratch[0] = 0;
}

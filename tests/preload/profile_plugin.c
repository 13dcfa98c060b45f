/* A library that allocates as it is loaded and when it is asked to. */
#include <stdlib.h>

static void *early;

__attribute__((constructor)) static void load(void) { early = malloc(5000); }
__attribute__((destructor)) static void unload(void) { free(early); }

void *plugin_allocate(void) { return calloc(1, 6000); }

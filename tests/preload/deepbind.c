/* Loads the plugin of deepbind_plugin.c by its bare name, which is found through this program's own
   run path, with its symbols bound to its own libraries first; as PHP does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    char *(*exchange)(char *) = (char *(*)(char *))dlsym(plugin, "exchange");
    for (int round = 0; round < 1000; round++) {
        char *back = exchange(strdup("a block"));
        if (strcmp(back, "a block"))
            return 2;
        free(back);
    }
    if (dlopen("no-such-library.so", RTLD_NOW | RTLD_DEEPBIND) || !dlerror())
        return 3;
    dlclose(plugin);
    puts("done");
    return 0;
}

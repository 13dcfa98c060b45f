/* malloc before main, after main, from dlopen'ed code, and at the end of threads.
   Argument: path of the plugin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *early, *resolved;

__attribute__((constructor(101))) static void first(void) {
    early = strdup("allocated before main");
}

__attribute__((destructor(101))) static void last(void) {
    char *more = malloc(100000);
    memset(more, 1, 100000);
    free(more);
    free(early);
    free(resolved);
}

/* A preinit function runs before the constructors of every library but the preloaded ones. */
static void before_all(void) {
    resolved = malloc(100);
    resolved[0] = 1;
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = before_all;

static void at_the_end(void) {
    free(malloc(1000));
}

static pthread_key_t key;
static int rounds_left = 3;

/* Runs after the thread's own code; allocates anew, which runs it once more. */
static void thread_ends(void *value) {
    free(value);
    char *again = malloc(300);
    memset(again, 2, 300);
    if (__atomic_fetch_sub(&rounds_left, 1, __ATOMIC_RELAXED) > 0)
        pthread_setspecific(key, again);
    else
        free(again);
}

static void *thread(void *handed) {
    pthread_setspecific(key, malloc(200));
    free(handed);
    char *result = malloc(150);
    memset(result, 3, 150);
    return result;
}

int main(int count, char **arguments) {
    if (count != 2 || strcmp(early, "allocated before main") != 0)
        return 2;
    atexit(at_the_end);
    pthread_key_create(&key, thread_ends);
    for (int round = 0; round < 200; round++) {
        pthread_t id;
        void *result;
        rounds_left = 3;
        if (pthread_create(&id, NULL, thread, malloc(5000)) || pthread_join(id, &result))
            return 3;
        if (((char *)result)[149] != 3)
            return 4;
        free(result);
    }
    for (int round = 0; round < 50; round++) {
        void *plugin = dlopen(arguments[1], RTLD_NOW);
        char *(*make)(size_t) = plugin ? dlsym(plugin, "plugin_make") : NULL;
        if (!make) {
            fprintf(stderr, "%s\n", dlerror());
            return 5;
        }
        char *block = make(round * 1000 + 10);
        if (dlclose(plugin) || block[9] != 9)
            return 6;
        free(block);
    }
    puts("done");
    return 0;
}

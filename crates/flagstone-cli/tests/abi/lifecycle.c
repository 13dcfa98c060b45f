// Allocation before main, after main, at thread exit, and in a library loaded late.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *early;
static pthread_key_t key;

__attribute__((constructor(101))) static void before_main(void) {
    early = malloc(1000);
    memset(early, 4, 1000);
}

__attribute__((destructor)) static void after_main(void) {
    if (early[999] != 4) abort();
    free(early);
    free(strdup("still there"));
}

static void at_thread_exit(void *value) {
    free(value);
    free(malloc(50));
}

static void *thread(void *argument) {
    pthread_setspecific(key, malloc(77));
    free(malloc(5000));
    return argument;
}

int main(void) {
    pthread_key_create(&key, at_thread_exit);
    for (int i = 0; i < 2000; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, NULL)) return 1;
        pthread_join(id, NULL);
    }
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    if (!library || !dlsym(library, "cos")) return 2;
    dlclose(library);
    if (dlopen("/nonexistent.so", RTLD_NOW) || !dlerror()) return 3;
    puts("ok");
    return 0;
}

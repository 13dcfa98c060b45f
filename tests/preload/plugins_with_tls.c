/* Loads and unloads a library with thread-local memory while threads use it, come, go and allocate.
   Arguments: path of the library, and how often. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USERS = 3 };
static int (*use)(int);
static void (*done)(void);
static atomic_int wrong;
static volatile int over;

static void *user(void *argument) {
    for (int turn = 1; turn < 20; turn++)
        if (use(turn)) atomic_fetch_add(&wrong, 1);
    done();
    return argument;
}

static void *busy(void *argument) {
    char *block[50] = {0};
    for (unsigned turn = 0; !over; turn++) {
        unsigned at = turn % 50;
        size_t size = 10 + turn * 37 % 50000;
        if (block[at] && block[at][0] != (char)at) atomic_fetch_add(&wrong, 1);
        if (!(block[at] = realloc(block[at], size))) abort();
        block[at][0] = at;
    }
    for (int at = 0; at < 50; at++) free(block[at]);
    return argument;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    pthread_t others[2];
    for (int at = 0; at < 2; at++) pthread_create(&others[at], NULL, busy, NULL);
    for (int round = 0; round < atoi(words[2]); round++) {
        void *plugin = dlopen(words[1], RTLD_NOW);
        if (!plugin) {
            fprintf(stderr, "%s\n", dlerror());
            return 3;
        }
        use = (int (*)(int))dlsym(plugin, "plugin_use");
        done = (void (*)(void))dlsym(plugin, "plugin_done");
        pthread_t users[USERS];
        for (int at = 0; at < USERS; at++) pthread_create(&users[at], NULL, user, NULL);
        user(NULL);
        for (int at = 0; at < USERS; at++) pthread_join(users[at], NULL);
        if (dlclose(plugin)) return 4;
    }
    over = 1;
    for (int at = 0; at < 2; at++) pthread_join(others[at], NULL);
    if (atomic_load(&wrong)) printf("%d times memory was not as it was left\n", atomic_load(&wrong));
    else puts("ok");
    return 0;
}

/* A profile with a sample at nearly every allocation, while threads allocate, a timer interrupts them with a handler that
   allocates, a library comes and goes, and the process forks ten thousand times. Nothing may hang or break.
   Called with the library to load and a number of forks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int over;

static void work(unsigned seed, int rounds) {
    void *own[32] = {0};
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned at = seed >> 16 & 31, size = (seed >> 8) % 9000;
        switch (seed >> 28 & 3) {
        case 0: free(own[at]); own[at] = malloc(size); break;
        case 1: free(own[at]); own[at] = calloc(1, size); break;
        case 2: own[at] = realloc(own[at], size + 1); break;
        default: free(own[at]); own[at] = aligned_alloc(64, (size + 64) & ~63u); break;
        }
        if (own[at]) memset(own[at], 1, 8 < size ? 8 : size);
    }
    for (int at = 0; at < 32; at++) free(own[at]);
}

static void handler(int signal) {
    (void)signal;
    void *p = malloc(3000);
    if (p) memset(p, 2, 3000);
    p = realloc(p, 40000);
    free(p);
}

static void *worker(void *seed) {
    /* With a rest, so that they leave the CPUs to the forks. */
    while (!over) { work((unsigned)(size_t)seed, 200); poll(NULL, 0, 1); }
    return NULL;
}

static const char *library;

static void *loader(void *unused) {
    (void)unused;
    while (!over) {
        void *handle = dlopen(library, RTLD_NOW);
        if (!handle) { fprintf(stderr, "%s\n", dlerror()); _exit(3); }
        void *(*allocate)(void) = (void *(*)(void))dlsym(handle, "plugin_allocate");
        free(allocate());
        dlclose(handle);
        poll(NULL, 0, 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    library = argv[1];
    int forks = argc > 2 ? atoi(argv[2]) : 10000;
    struct sigaction action = {0};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, NULL);
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_PROF, &timer, NULL);
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, worker, (void *)7);
    pthread_create(&threads[1], NULL, worker, (void *)8);
    pthread_create(&threads[2], NULL, loader, NULL);
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child < 0) return 4;
        if (child == 0) {
            /* Most only end; some allocate first, so that they have samples of their own. */
            if (i % 16 == 0) work(i, 20);
            /* Not exit: the loader's thread may have held glibc's lock of exit functions, which a child never gets. */
            _exit(0);
        }
        int status;
        while (waitpid(child, &status, 0) < 0) {}
        if (status != 0) { fprintf(stderr, "child %d: status %x\n", i, status); return 5; }
        if (i % 64 == 0) work(i, 50);
    }
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    timer = (struct itimerval){0};
    setitimer(ITIMER_PROF, &timer, NULL);
    puts("done");
    return 0;
}

/* Eight threads allocate without pause while the main thread forks; every child allocates, frees
   what it inherited and exits. Argument: number of forks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, LIVE = 64 };
static atomic_int stop;

static size_t next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *work(void *argument) {
    unsigned state = (unsigned)(size_t)argument;
    char *live[LIVE] = {0};
    /* A short rest now and then, or eight busy threads would leave the forking one no CPU. */
    const struct timespec rest = {0, 100000};
    for (unsigned op = 0; !atomic_load(&stop); op++) {
        if (op % 500 == 499)
            nanosleep(&rest, NULL);
        size_t at = next(&state) % LIVE, size = 1 + next(&state) % (next(&state) % 16 ? 2000 : 200000);
        free(live[at]);
        live[at] = malloc(size);
        live[at][0] = live[at][size - 1] = 1;
    }
    for (int at = 0; at < LIVE; at++)
        free(live[at]);
    return NULL;
}

static int child(char **inherited) {
    for (int at = 0; at < LIVE; at++) {
        if (inherited[at][0] != (char)at)
            return 3;
        free(inherited[at]);
    }
    for (int round = 0; round < 200; round++) {
        char *block = malloc(round * 97 + 1);
        if (!block)
            return 4;
        memset(block, 1, round * 97 + 1);
        block = realloc(block, round * 200 + 2);
        free(block);
    }
    /* A thread in the child, as a program that forks a worker does. */
    pthread_t thread;
    atomic_store(&stop, 1);
    if (pthread_create(&thread, NULL, work, (void *)5) || pthread_join(thread, NULL))
        return 5;
    return 0;
}

int main(int count, char **arguments) {
    int forks = count > 1 ? atoi(arguments[1]) : 100;
    pthread_t threads[THREADS];
    char *inherited[LIVE];
    for (size_t at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], NULL, work, (void *)(at + 1)))
            return 2;
    for (int made = 0; made < forks; made++) {
        for (int at = 0; at < LIVE; at++)
            memset(inherited[at] = malloc(100 + 50 * at), at, 100 + 50 * at);
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(inherited));
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            fprintf(stderr, "fork %d: child ended with status %#x\n", made, status);
            return 1;
        }
        for (int at = 0; at < LIVE; at++)
            free(inherited[at]);
    }
    atomic_store(&stop, 1);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%d forks\n", forks);
    return 0;
}

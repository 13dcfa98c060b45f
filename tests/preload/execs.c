/* Threads that start programs by vfork and by fork, out of a heap that their handlers change: the child allocates,
   makes an argument list of its own blocks and executes a program; a missing program must end the child alone.
   Argument: programs for each thread. */
#define _GNU_SOURCE
#include "handlers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3 };
static atomic_int failed, ended;
static int wanted;
extern char **environ;

static void handler(int number) {
    (void)number;
    static _Thread_local char *kept[4];
    static _Thread_local unsigned turn;
    unsigned at = turn++ % 4;
    free(kept[at]);
    kept[at] = malloc(10 << turn % 18);
}

/* In the child; with vfork in its parent's memory, so what it allocates it frees, or its parent loses it. */
static void execute(const char *program) {
    char *words[3] = {strdup(program), malloc(200000), NULL};
    if (!words[0] || !words[1]) _exit(9);
    strcpy(words[1], "word");
    execve(words[0], words, environ);
    free(words[0]);
    free(words[1]);
    _exit(7);
}

static void *starter(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int made = 0; made < wanted; made++) {
        char *before = malloc(next(&seed) % 100000 + 10);
        before[9] = 1;
        int missing = next(&seed) % 3 == 0;
        const char *program = missing ? "/nonexistent" : "/bin/true";
        pid_t pid;
        if (next(&seed) % 2) {
            pid = vfork();
            if (pid == 0) execute(program);
        } else {
            pid = fork();
            if (pid == 0) execute(program);
        }
        int status = -1;
        while (pid > 0 && waitpid(pid, &status, 0) != pid) {}
        if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != (missing ? 7 : 0)) {
            fprintf(stderr, "child ended with %#x\n", status);
            atomic_fetch_add(&failed, 1);
        }
        if (before[9] != 1) atomic_fetch_add(&failed, 1);
        free(before);
    }
    atomic_fetch_add(&ended, 1);
    return deaf();
}

int main(int count, char **words) {
    wanted = count > 1 ? atoi(words[1]) : 40;
    pthread_t threads[THREADS];
    start(threads, THREADS, starter, handler);
    for (unsigned at = 0; atomic_load(&ended) < THREADS; at++) {
        pthread_kill(threads[at % THREADS], SIGUSR1);
        usleep(500);
    }
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    puts(atomic_load(&failed) ? "failed" : "ok");
    return 0;
}

/* Children that a program with allocating threads makes past the C library's fork: no fork handlers ran, and the threads'
   locks are as they were at that moment. Such a child may still call `exit`. Arguments: how, and how many. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t _Fork(void);

static volatile int over;

static void *work(void *unused) {
    while (!over) {
        void *blocks[300];
        for (int i = 0; i < 300; i++) blocks[i] = malloc(10000 + 2000 * (i % 9));
        for (int i = 0; i < 300; i++) free(blocks[i]);
    }
    return unused;
}

int main(int count, char **words) {
    pthread_t threads[4];
    int by_fork = !strcmp(words[1], "_Fork");
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < atoi(words[2]); i++) {
        int status;
        pid_t pid = by_fork ? _Fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) exit(7);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            fprintf(stderr, "child ended with %#x\n", status);
            return 1;
        }
    }
    over = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

/* Children that share their parent's memory and allocate while its other threads do, as launchers and shells make
   them. Arguments: how the child is made, and how many there are. */
#define _GNU_SOURCE
#include "owners.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static volatile int over;

static void *work(void *name) {
    struct owner own = {.name = (uint64_t)name, .random = (uint64_t)name};
    while (!over) churn(&own, 1000);
    drop(&own);
    return NULL;
}

/* Static: a child's locals would lie in its parent's frame. */
static struct owner child = {.name = 99, .random = 99};

static int in_child(void *unused) {
    churn(&child, 20000);
    drop(&child);
    _exit(7);
}

static pid_t by_vfork(void) {
    pid_t pid = vfork();
    if (pid == 0) in_child(NULL);
    return pid;
}

static char stack[1 << 20];

static pid_t by_clone(void) {
    return clone(in_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
}

int main(int count, char **words) {
    int by_name = !strcmp(words[1], "vfork");
    struct owner own = {.name = 50, .random = 50};
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < atoi(words[2]); i++) {
        int status;
        pid_t pid = by_name ? by_vfork() : by_clone();
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            fprintf(stderr, "child ended with %#x\n", status);
            return 1;
        }
        /* The parent goes on as before. */
        churn(&own, 2000);
    }
    drop(&own);
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

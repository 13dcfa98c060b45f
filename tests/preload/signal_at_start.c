/* A signal after each of the first instructions of a process's first allocation, whose handler allocates. Each runs in a
   child of its own, which the parent walks to that instruction. The parent itself never allocates, so that
   each child's heap is still to be built. Arguments: the first instruction, the last and the step between two. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HUNG_S = 20 };

static volatile int handled;

static void handler(int number) {
    /* There may be no memory on top of the thread that builds the heap; waiting for it would be for ever. */
    char *block = malloc(100);
    if (block) block[0] = 1;
    free(block);
    handled = 1;
}

static void child(void) {
    signal(SIGUSR1, handler);
    alarm(HUNG_S);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(77);
    raise(SIGSTOP);
    char *block = malloc(10);
    _exit(block && handled ? 7 : 1);
}

static int ends_well(long instructions) {
    int status;
    pid_t pid = fork();
    if (pid == 0) child();
    if (waitpid(pid, &status, 0) != pid) return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) _exit(77);
    while (WIFSTOPPED(status) && instructions-- > 0) {
        ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
        if (waitpid(pid, &status, 0) != pid) return 0;
    }
    ptrace(PTRACE_CONT, pid, 0, SIGUSR1);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

int main(int count, char **words) {
    long last = atol(words[2]), step = atol(words[3]);
    for (long at = atol(words[1]); at <= last; at += step)
        if (!ends_well(at)) {
            char line[] = "failed at instruction        \n", *digit = line + sizeof line - 3;
            for (long rest = at; rest; rest /= 10) *digit-- = '0' + rest % 10;
            return write(1, line, sizeof line - 1) < 0;
        }
    return write(1, "ok\n", 3) != 3;
}

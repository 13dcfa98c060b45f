/* A program that confines itself: after its start a filter ends it at any call that is neither one a malloc is known
   for nor one that the C library makes itself for what the program does. Arguments: the number of threads, and the
   way the filter is installed. */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int allowed[] = {
    /* A malloc's. */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex,
    /* The C library's, and its own malloc's: output, threads, the end. */
    SYS_write, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_exit,
    SYS_exit_group, SYS_brk, SYS_getrandom,
};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

static void confine(const char *way) {
    struct sock_filter program[ALLOWED + 3];
    int n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < ALLOWED; i++)
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], ALLOWED - i, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {n, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) { perror("no new privileges"); _exit(2); }
    /* A refused filter confines nobody; asking what there is installs nothing. */
    unsigned action = SECCOMP_RET_KILL_PROCESS;
    syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL);
    long done = !strcmp(way, "seccomp") ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)
                                        : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
    if (done) { perror("filter"); _exit(2); }
}

/* Ends whoever makes the call `number`, in this program and in those that it becomes. */
static void forbid(int number) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)) {
        perror("filter");
        _exit(2);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void check(int fine, const char *what) {
    if (fine) return;
    fprintf(stderr, "failed: %s\n", what);
    _exit(1);
}

/* Blocks of `size` bytes, all live at once and then freed: the heap grows and shrinks. */
static void swing(size_t size, int count) {
    char **blocks = malloc(count * sizeof *blocks);
    check(blocks != NULL, "table");
    for (int i = 0; i < count; i++) {
        check((blocks[i] = malloc(size)) != NULL, "block");
        blocks[i][0] = blocks[i][size - 1] = i;
    }
    for (int i = 0; i < count; i++) {
        check(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i, "contents");
        free(blocks[i]);
    }
    free(blocks);
}

static void resize(void) {
    size_t size = 100;
    char *block = malloc(size);
    for (; size < 64 << 20; size *= 3) check((block = realloc(block, size)) != NULL, "growing");
    for (; size > 100; size /= 5) check((block = realloc(block, size)) != NULL, "shrinking");
    free(block);
}

static void *work(void *unused) {
    for (int round = 0; round < 3; round++) {
        swing(24, 200000);
        swing(1000, 20000);
        swing(40000, 500);
        swing(300000, 60);
        swing(6 << 20, 4);
        resize();
        free(aligned_alloc(1 << 16, 1 << 20));
    }
    /* Upkeep is due once a second of a program's own calls. */
    for (double end = now() + 2.2; now() < end;) swing(512, 300);
    return unused;
}

int main(int count, char **words) {
    int threads = atoi(words[1]);
    pthread_t started[16];
    /* Some work before, so that what is learned from use has been learned. */
    if (count > 3) swing(2000, 10000);
    /* A filter that was there before the start: no call is made that start-up does not need, either. */
    if (!strcmp(words[2], "inherited")) {
        forbid(SYS_process_madvise);
        execl("/proc/self/exe", words[0], words[1], "inheriting", NULL);
        _exit(2);
    }
    if (strcmp(words[2], "inheriting")) confine(words[2]);
    for (int i = 0; i < threads; i++) check(!pthread_create(&started[i], NULL, work, NULL), "thread");
    work(NULL);
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    check(write(1, "done\n", 5) == 5, "output");
    return 0;
}

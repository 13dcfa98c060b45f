/* A program of one thread that leaves itself the calls of a malloc and of its output, not even one that grows the heap
   of the C library, and then fills, resizes and empties a heap whose upkeep falls due. */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int allowed[] = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_write, SYS_exit_group};
enum { ALLOWED = sizeof allowed / sizeof *allowed, BLOCKS = 4000 };

static void confine(void) {
    struct sock_filter program[ALLOWED + 3];
    int n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < ALLOWED; i++)
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], ALLOWED - i, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {n, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)) _exit(2);
}

static void check(int fine) {
    if (!fine) _exit(1);
}

static void round_of(size_t size, int count) {
    static char *block[BLOCKS];
    for (int i = 0; i < count; i++) {
        check((block[i] = malloc(size)) != NULL);
        block[i][0] = block[i][size - 1] = i;
    }
    for (int i = 0; i < count; i += 2) {
        check((block[i] = realloc(block[i], size * 2)) != NULL && block[i][size - 1] == (char)i);
        check((block[i] = realloc(block[i], size / 2 + 1)) != NULL && block[i][0] == (char)i);
    }
    for (int i = 0; i < count; i++) free(block[(i * 7) % count]);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    if (count > 1) round_of(3000, BLOCKS);
    confine();
    /* A count of rounds, and as long as upkeep takes to fall due a few times. */
    double end = now() + 3.3;
    for (int i = 0; i < 3 || now() < end; i++) {
        round_of(40, BLOCKS);
        round_of(2000, BLOCKS);
        round_of(50001, 200);
        round_of(700001, 30);
        round_of(9 << 20, 3);
    }
    check(write(1, "done\n", 5) == 5);
    return 0;
}

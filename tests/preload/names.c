/* Prints what smaps calls the mapping of a huge block when it is new, after it moved to grow, and when another took
   its place. With a word, a seccomp filter that ends the program at a prctl is installed first. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(void *block) {
    char line[512], name[256] = "";
    unsigned long at = (unsigned long)block, from, to;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        int here = sscanf(line, "%lx-%lx ", &from, &to) == 2 && from <= at && at < to;
        char *anonymous = here ? strstr(line, "[anon:") : NULL;
        if (anonymous)
            sscanf(anonymous, "%255[^\n]", name);
    }
    if (maps)
        fclose(maps);
    printf("%s\n", *name ? name : "no name");
}

static int confine(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

int main(int count, char **words) {
    if (count > 1 && words[1][0] && confine()) {
        puts("no filters here");
        return 0;
    }
    char *block = malloc(16 << 20);
    memset(block, 1, 16 << 20);
    say(block);
    char *wall = malloc(16 << 20);
    block = realloc(block, 48 << 20);
    say(block);
    free(block);
    block = malloc(48 << 20);
    memset(block, 1, 48 << 20);
    say(block);
    free(block);
    free(wall);
    return 0;
}

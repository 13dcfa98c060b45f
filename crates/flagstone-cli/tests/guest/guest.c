/* In a guest: `guest FILE BYTES` keeps much free memory, then writes BYTES into FILE, its group's memory.high, and goes on
   working for eight seconds; it says what was resident before and after. `guest library` says which library it was given,
   `guest idle` says `up` and sleeps, `guest as USER COMMAND` is what another user would see. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 40000, BYTES = 1500, MAPPED = 16 << 10 };
static char *blocks[BLOCKS];

static long resident(void) {
    char text[128] = {0};
    int statm = open("/proc/self/statm", O_RDONLY);
    ssize_t got = read(statm, text, sizeof text - 1);
    close(statm);
    return got > 0 ? atol(strchr(text, ' ')) * sysconf(_SC_PAGESIZE) : 0;
}

static double now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Slow paths, and pages that the kernel charges to the group. */
static int work(double seconds) {
    static char *few[200];
    int rounds = 0;
    for (double end = now() + seconds; now() < end; rounds++) {
        for (int at = 0; at < 200; at++)
            few[at] = malloc(3000);
        for (int at = 0; at < 200; at++)
            free(few[at]);
        char *pages = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(pages, 1, MAPPED);
        munmap(pages, MAPPED);
    }
    return rounds;
}

int main(int count, char **words) {
    if (!strcmp(words[1], "as")) {
        int id = atoi(words[2]);
        if (setgid(id) || setuid(id))
            return 3;
        execvp(words[3], words + 3);
        return 127;
    }
    if (!strcmp(words[1], "library"))
        return puts(getenv("LD_PRELOAD")) < 0;
    for (int at = 0; at < BLOCKS; at++)
        memset(blocks[at] = malloc(BYTES), 1, BYTES);
    if (!strcmp(words[1], "idle")) {
        puts("up");
        fflush(stdout);
        sleep(1000);
    }
    for (int at = 0; at < BLOCKS; at++)
        free(blocks[at]);
    work(0.4);
    long kept = resident();
    int high = open(words[1], O_WRONLY);
    if (write(high, words[2], strlen(words[2])) < 0)
        return 3;
    double begin = now();
    int rounds = work(8);
    printf("kept %ld MiB, left %ld MiB after %.1f s and %d rounds\n", kept >> 20, resident() >> 20, now() - begin, rounds);
    return 0;
}

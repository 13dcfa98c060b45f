/* Lowers its own limit of address space far below what the allocator reserved: threads, mappings and
   huge blocks can still be had within it. A child in its parent's memory limits only itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, LIMIT = 1024, CHILDS_LIMIT = 64 };

static void *thread(void *unused) {
    (void)unused;
    return malloc(100);
}

static void check(int holds, const char *what) {
    if (!holds) printf("%s: %s\n", what, strerror(errno));
}

static void lower(int mebibytes) {
    struct rlimit limit = {(rlim_t)mebibytes * MIB, RLIM_INFINITY};
    check(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
}

/* Blocks of 1 MiB until `mebibytes` are there; how many there are. */
static int small(int mebibytes) {
    void *blocks[LIMIT];
    int got = 0;
    while (got < mebibytes && (blocks[got] = malloc(MIB))) memset(blocks[got++], 1, MIB);
    for (int n = 0; n < got; n++) free(blocks[n]);
    return got;
}

int main(void) {
    void *volatile before = malloc(100);

    pid_t child = vfork();
    if (child == 0) {
        lower(CHILDS_LIMIT);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    check(small(4 * CHILDS_LIMIT) == 4 * CHILDS_LIMIT, "blocks beyond the child's limit");

    lower(LIMIT);
    struct rlimit now;
    check(prlimit(0, RLIMIT_AS, NULL, &now) == 0 && now.rlim_cur == (rlim_t)LIMIT * MIB, "prlimit");
    pthread_t id;
    void *got = NULL;
    check(pthread_create(&id, NULL, thread, NULL) == 0, "a thread");
    check(pthread_join(id, &got) == 0 && got, "a block of the thread");
    free(got);
    void *map = mmap(NULL, 100 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(map != MAP_FAILED, "a mapping");
    munmap(map, 100 * MIB);

    char *volatile huge = malloc((size_t)LIMIT / 2 * MIB);
    check(huge != NULL, "a huge block");
    if (huge) memset(huge, 1, 100 * MIB);
    errno = 0;
    char *volatile more = malloc((size_t)LIMIT * MIB);
    check(!more && errno == ENOMEM, "a block beyond the limit");
    check(small(100) == 100, "blocks beside the huge one");
    free(huge);
    free(before);

    struct rlimit wrong = {2, 1};
    errno = 0;
    check(setrlimit(RLIMIT_AS, &wrong) == -1 && errno == EINVAL, "a wrong limit");
    puts("ok");
    return 0;
}

/* Threads that the C library does not know: made by `clone`, each with thread-local storage of its own as the ABI wants
   it, zeroes but for the pointers to itself, and never registered for restartable sequences. */
#define _GNU_SOURCE
#include "owners.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { BARE = 3, KNOWN = 2, STORAGE = 64 << 10, STACK = 1 << 20 };

static int alive[BARE];

static int bare(void *name) {
    struct owner own = {.name = (uint64_t)name, .random = (uint64_t)name};
    churn(&own, 400000);
    drop(&own);
    return 0;
}

static void *known(void *name) {
    bare(name);
    return NULL;
}

static void *fresh(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    return memory;
}

int main(void) {
    pthread_t threads[KNOWN];
    for (long i = 0; i < KNOWN; i++) pthread_create(&threads[i], NULL, known, (void *)(i + 1));
    for (long i = 0; i < BARE; i++) {
        /* The pointer lies in the middle: variables below, the C library's own structure above. */
        char *storage = (char *)fresh(STORAGE) + STORAGE / 2;
#ifdef __x86_64__
        ((void **)storage)[0] = storage;
        ((void **)storage)[2] = storage;
#endif
        alive[i] = 1;
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                    CLONE_CHILD_CLEARTID;
        if (clone(bare, (char *)fresh(STACK) + STACK, flags, (void *)(i + 10), NULL, storage, &alive[i]) < 0) return 1;
    }
    for (int i = 0; i < BARE; i++)
        for (int now; (now = __atomic_load_n(&alive[i], __ATOMIC_ACQUIRE));) syscall(SYS_futex, &alive[i], FUTEX_WAIT, now, NULL, 0, 0);
    for (int i = 0; i < KNOWN; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

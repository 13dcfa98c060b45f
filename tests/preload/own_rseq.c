/* Threads that end the C library's registration of restartable sequences and register areas of their own, beside
   threads that do not. */
#include "owners.h"
#include <linux/rseq.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

enum { SIGNATURE = 0x53053053, SIZE = 32 };

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static _Thread_local struct rseq own_area __attribute__((aligned(32)));

static void *work(void *name) {
    if ((long)name % 2 && &__rseq_size && __rseq_size) {
        char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
        if (syscall(SYS_rseq, area, SIZE, RSEQ_FLAG_UNREGISTER, SIGNATURE)) _exit(5);
        if (syscall(SYS_rseq, &own_area, SIZE, 0, SIGNATURE)) _exit(6);
    }
    struct owner own = {.name = (uint64_t)name, .random = (uint64_t)name};
    churn(&own, 400000);
    drop(&own);
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing is freed twice here, but each block holds, everywhere, what free blocks of its size bear:
   read from a freed one, which is the one wrong thing this program does. Threads hand blocks to each
   other, signal handlers do the same on top of them, and children go on where their parent was. */

enum { SIZES = 6, BLOCKS = 400, ROUNDS = 40, THREADS = 3, CHILDREN = 10 };
static const size_t sizes[SIZES] = {16, 48, 256, 1000, 4096, 20000};
static uint32_t marks[SIZES];
static uint32_t *shared[THREADS][BLOCKS];
static pthread_barrier_t all_here;

static uint32_t *full_of_marks(int class) {
    size_t size = sizes[class];
    uint32_t *block = malloc(size);
    if (block == NULL)
        return NULL;
    for (size_t at = 0; at < size / 4; at++)
        block[at] = marks[class];
    return block;
}

static void check_and_free(uint32_t *block, int class) {
    if (block == NULL)
        return;
    for (size_t at = 0; at < sizes[class] / 4; at++)
        if (block[at] != marks[class])
            abort();
    if (class % 2)
        block = realloc(block, sizes[class]);
    free(hidden(block));
}

/* While another thread forks, a handler on top of a lock's holder may get no memory. */
static void handler(int signal) {
    static volatile int class;
    int mine = class;
    class = (class + 1) % SIZES;
    uint32_t *one = full_of_marks(mine), *other = full_of_marks(mine);
    check_and_free(one, mine);
    check_and_free(other, mine);
}

static void *use(void *which) {
    int me = (int)(intptr_t)which;
    uint32_t *own[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        int class = round % SIZES;
        for (int at = 0; at < BLOCKS; at++) {
            own[at] = full_of_marks(class);
            shared[me][at] = full_of_marks(class);
            if (own[at] == NULL || shared[me][at] == NULL)
                abort();
        }
        pthread_barrier_wait(&all_here);
        for (int at = 0; at < BLOCKS; at++) {
            check_and_free(own[(at * 7) % BLOCKS], class);
            /* Blocks of another thread, on whatever CPU. */
            check_and_free(shared[(me + 1) % THREADS][at], class);
        }
        pthread_barrier_wait(&all_here);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int class = 0; class < SIZES; class++) {
        uint32_t *block = malloc(sizes[class]);
        free(hidden(block));
        marks[class] = ((uint32_t *)hidden(block))[2];
        if (marks[class] < 1u << 31)
            abort();
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (intptr_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, use, (void *)at);
    /* Nor on top of the fork itself: alarms go to the other threads. */
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (int at = 0; at < CHILDREN; at++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            for (int round = 0; round < BLOCKS; round++)
                check_and_free(full_of_marks(round % SIZES), round % SIZES);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            abort();
    }
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("sound\n");
    return 0;
}

/* Forks while other threads empty CPUs' stores: nothing of what is on its way is lost in the child. Each child counts
   what the heap says is in use. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZES = 40, EACH = 20 };

static volatile int over;

/* Fills the stores of its CPU with free blocks of many sizes, and empties all stores. */
static void *work(void *trims) {
    while (!over) {
        /* One size at a time, so that little is in use at any time and much lies in stores. */
        for (int s = 0; s < SIZES; s++) {
            void *blocks[EACH];
            for (int i = 0; i < EACH; i++) blocks[i] = malloc(16 + 100 * s);
            for (int i = 0; i < EACH; i++) free(blocks[i]);
        }
        if (trims) malloc_trim(0);
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t threads[4];
    size_t before = mallinfo2().uordblks, most = 0;
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i % 2));
    for (int i = 0; i < atoi(words[1]); i++) {
        int status, ends[2];
        if (pipe(ends)) return 1;
        pid_t pid = fork();
        if (pid == 0) {
            size_t now = mallinfo2().uordblks;
            _exit(write(ends[1], &now, sizeof now) != sizeof now);
        }
        close(ends[1]);
        size_t now = 0;
        if (read(ends[0], &now, sizeof now) != sizeof now) return 1;
        close(ends[0]);
        if (waitpid(pid, &status, 0) != pid || status) return 1;
        if (now > most) most = now;
    }
    over = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%zu\n", most - before);
    return 0;
}

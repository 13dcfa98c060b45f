// Forks from a program whose threads allocate all the time; the children allocate too.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;

static void churn(unsigned seed, int rounds) {
    void *blocks[64] = {0};
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned slot = (seed >> 8) % 64;
        free(blocks[slot]);
        size_t size = (seed >> 16) % 97 == 0 ? 300000 : (seed >> 16) % 3000;
        blocks[slot] = malloc(size);
        memset(blocks[slot], 1, size < 64 ? size : 64);
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
}

static void *worker(void *seed) {
    while (!atomic_load(&stop)) churn((unsigned)(size_t)seed, 1000);
    return NULL;
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 100;
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child < 0) return perror("fork"), 1;
        if (child == 0) {
            alarm(60);
            churn((unsigned)i, 5000);
            if (i % 10 == 0 && fork() == 0) {
                churn((unsigned)i, 1000);
                _exit(0);
            }
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("child %d ended with status %d\n", i, status);
            return 1;
        }
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

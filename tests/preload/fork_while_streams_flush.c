/* Threads read lines (which allocates under a stream's lock) and one flushes all streams (which holds
   the list of streams and waits for each), while the main thread forks. glibc's fork takes that
   list too; an allocator that holds its own locks by then waits for the readers, they for it.
   Argument: number of forks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READERS = 6, LINE = 50000 };
static atomic_int stop;
static char name[] = "/tmp/flagstone-streams-XXXXXX";

/* Without rests the forking thread would rarely get the list, or a CPU. */
static void rest(void) {
    const struct timespec little = {0, 100000};
    nanosleep(&little, NULL);
}

static void *read_lines(void *nothing) {
    FILE *stream = fopen(name, "r");
    for (int read = 0; stream && !atomic_load(&stop); read++) {
        if (read % 20 == 19)
            rest();
        char *line = NULL;
        size_t room = 0;
        rewind(stream);
        if (getline(&line, &room, stream) != LINE + 1)
            abort();
        free(line);
    }
    fclose(stream);
    return nothing;
}

static void *flush(void *nothing) {
    for (; !atomic_load(&stop); rest())
        fflush(NULL);
    return nothing;
}

int main(int count, char **arguments) {
    int forks = count > 1 ? atoi(arguments[1]) : 100;
    FILE *stream = fdopen(mkstemp(name), "w");
    for (int at = 0; at < LINE; at++)
        fputc('x', stream);
    fputc('\n', stream);
    fclose(stream);
    pthread_t threads[READERS + 1];
    for (int at = 0; at <= READERS; at++)
        if (pthread_create(&threads[at], NULL, at ? read_lines : flush, NULL))
            return 2;
    for (int made = 0; made < forks; made++) {
        pid_t pid = fork();
        if (pid == 0) {
            /* The child's streams and heap must be usable. */
            FILE *own = fopen(name, "r");
            free(malloc(100000));
            fflush(NULL);
            _exit(own ? fclose(own) : 3);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
    }
    atomic_store(&stop, 1);
    for (int at = 0; at <= READERS; at++)
        pthread_join(threads[at], NULL);
    unlink(name);
    printf("%d forks\n", forks);
    return 0;
}

/* Keeps much free memory, and says so in a file that stands for the kernel's words about memory pressure: nothing is given
   back while no task waits, and all of it soon after tasks do.
   Arguments: the file, and `events` where it is a control group's memory.events instead. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 40000, BYTES = 1500 };
static char *blocks[BLOCKS];
static const char *file;
static int is_events;

static long resident(void) {
    char text[128] = {0};
    int statm = open("/proc/self/statm", O_RDONLY);
    ssize_t got = read(statm, text, sizeof text - 1);
    close(statm);
    return got > 0 ? atol(strchr(text, ' ')) * sysconf(_SC_PAGESIZE) : 0;
}

static void say(unsigned total) {
    char text[128];
    int bytes = is_events ? snprintf(text, sizeof text, "low 0\nhigh %u\nmax 0\noom 0\noom_kill 0\n", total)
              : snprintf(text, sizeof text,
                         "some avg10=0.00 avg60=0.00 avg300=0.00 total=%u\n"
                         "full avg10=0.00 avg60=0.00 avg300=0.00 total=%u\n", total, total);
    int out = open(file, O_WRONLY);
    if (pwrite(out, text, bytes, 0) != bytes)
        exit(3);
    close(out);
}

/* Slow paths for a while. */
static void work(int milliseconds) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int at = 0; at < 200; at++)
            blocks[at] = malloc(3000);
        for (int at = 0; at < 200; at++)
            free(blocks[at]);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
}

int main(int count, char **arguments) {
    file = count > 1 ? arguments[1] : "";
    is_events = count > 2;
    for (int at = 0; at < BLOCKS; at++) {
        blocks[at] = malloc(BYTES);
        memset(blocks[at], 1, BYTES);
    }
    for (int at = 0; at < BLOCKS; at++)
        free(blocks[at]);
    long full = resident();
    work(400);
    if (resident() < full * 3 / 4) {
        fprintf(stderr, "given back without pressure: %ld of %ld\n", resident(), full);
        return 1;
    }
    for (unsigned round = 1; round <= 600; round++) {
        say(round * 50000);
        work(100);
        if (resident() < full / 2) {
            puts("given back");
            return 0;
        }
    }
    fprintf(stderr, "nothing given back: %ld of %ld\n", resident(), full);
    return 2;
}

/* A timer's handler allocates and frees in the middle of the main loop's malloc and free.
   POSIX does not allow it; programs do it, and the fast path is to survive it.
   Argument: signals to take. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { LIVE = 512, KEPT = 16 };
static volatile sig_atomic_t taken;
static char *kept[KEPT];

static void handler(int signal) {
    (void)signal;
    for (int at = 0; at < KEPT; at++) {
        if (kept[at] && (kept[at][0] != (char)(at + 1) || kept[at][47] != (char)(at + 1)))
            abort();
        free(kept[at]);
        kept[at] = malloc(48);
        memset(kept[at], at + 1, 48);
    }
    taken++;
}

int main(int count, char **arguments) {
    int wanted = count > 1 ? atoi(arguments[1]) : 200;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}};
    char *live[LIVE] = {0};
    /* The same small sizes as the handler's, and enough of them that every cache is warm. */
    for (int at = 0; at < LIVE; at++)
        memset(live[at] = malloc(48), 0x77, 48);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned at = 0; taken < wanted; at = (at + 1) % LIVE) {
        for (int byte = 0; byte < 48; byte++)
            if (live[at][byte] != 0x77) {
                fprintf(stderr, "an object was handed out twice\n");
                return 1;
            }
        free(live[at]);
        live[at] = malloc(48);
        memset(live[at], 0x77, 48);
    }
    puts("done");
    return 0;
}

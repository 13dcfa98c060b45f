/* Forks, with the library of early_handlers.c linked. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int early(void);

int main(void) {
    for (int made = early(); made < 50; made++) {
        pid_t pid = fork();
        if (pid == 0) {
            free(malloc(100000));
            _exit(0);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
    }
    puts("50 forks");
    return 0;
}

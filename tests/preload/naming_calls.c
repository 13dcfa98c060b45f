/* Runs a program under ptrace and prints the name in every prctl by which it names a mapping, a line each. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/* struct ptrace_syscall_info as far as entries go, which older headers lack. */
struct entry {
    uint8_t op, pad[3];
    uint32_t arch;
    uint64_t instruction_pointer, stack_pointer, number, arguments[6], more[2];
};

static void say(pid_t child, uint64_t at) {
    char name[80] = "";
    for (unsigned i = 0; i < sizeof name - 1; i += sizeof(long)) {
        long word = ptrace(PTRACE_PEEKDATA, child, (void *)(at + i), 0);
        memcpy(name + i, &word, sizeof word);
        if (memchr(&word, 0, sizeof word))
            break;
    }
    puts(name);
}

int main(int count, char **words) {
    (void)count;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(3);
        raise(SIGSTOP);
        execvp(words[1], words + 1);
        _exit(4);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return puts("no tracing here"), 0;
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD);
    for (int deliver = 0;;) {
        if (ptrace(PTRACE_SYSCALL, child, 0, deliver) || waitpid(child, &status, 0) != child)
            return 5;
        if (!WIFSTOPPED(status))
            return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
        deliver = WSTOPSIG(status) == (SIGTRAP | 0x80) || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        struct entry entry = {0};
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) && ptrace(0x420e, child, sizeof entry, &entry) > 0 && entry.op == 1 &&
            entry.number == SYS_prctl && entry.arguments[0] == PR_SET_VMA)
            say(child, entry.arguments[4]);
    }
}

/* A heap that fills and empties: how much more is resident than before, at the end of each swing
   and after what the program then does.
   Arguments: KiB of each swing; swings; bytes of each block (zero: 16 bytes to 32 KiB, mixed; one: 16
   bytes to 2 KiB, evenly); what follows; "shuffled" if blocks are freed in a random order. "sit" does nothing, "small" and "huge" make 110,000 pairs of 16 bytes and of 1 MiB, "many"
   makes 20,000 small blocks.
   Prints the page faults of the swings, then KiB: at the end of each swing, and at last. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAIRS = 110000, MANY = 20000 };

/* Allocates nothing. */
static long resident_kib(void) {
    char text[128] = {0};
    int file = open("/proc/self/statm", O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0)
        exit(1);
    close(file);
    return strtol(strchr(text, ' '), NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static uint64_t seed = 1;

static size_t mixed(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    size_t size = (size_t)16 << ((seed >> 60) % 12);
    return size + (seed >> 33) % size;
}

static void swing(size_t bytes, size_t fixed) {
    char **chain = NULL;
    for (size_t used = 0; used < bytes;) {
        size_t size = fixed ? fixed : mixed();
        char **block = malloc(size);
        if (!block)
            exit(2);
        memset(block, 1, size);
        *block = (char *)chain;
        chain = block;
        used += size;
    }
    while (chain) {
        char **next = (char **)*chain;
        free(chain);
        chain = next;
    }
}

static size_t even(void) {
    mixed();
    return 16 + (seed >> 33) % 2000;
}

/* The same with a table of its own memory, and freed in a random order. */
static void swing_shuffled(size_t bytes, size_t fixed) {
    static char **table;
    size_t count = 0;
    if (!table)
        table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        exit(2);
    for (size_t used = 0; used < bytes; count++) {
        size_t size = fixed > 1 ? fixed : fixed ? even() : mixed();
        if (!(table[count] = malloc(size)))
            exit(2);
        memset(table[count], 1, size);
        used += size;
    }
    while (count) {
        mixed();
        size_t at = (seed >> 33) % count;
        free(table[at]);
        table[at] = table[--count];
    }
    madvise(table, bytes, MADV_DONTNEED);
}

static void pairs(size_t size) {
    for (int at = 0; at < PAIRS; at++) {
        char *volatile block = malloc(size);
        if (!block)
            exit(2);
        *block = 1;
        free(block);
    }
}

static void many(void) {
    static char *block[MANY];
    for (int at = 0; at < MANY; at++)
        if (!(block[at] = malloc(64)))
            exit(2);
    for (int at = 0; at < MANY; at++)
        free(block[at]);
}

int main(int count, char **arguments) {
    static long at_end[64];
    if (count < 5)
        return 3;
    size_t bytes = strtoul(arguments[1], NULL, 10) << 10;
    int swings = atoi(arguments[2]);
    size_t fixed = strtoul(arguments[3], NULL, 10);
    const char *then = arguments[4];
    if (swings < 1 || swings > 64)
        return 3;
    void (*turn)(size_t, size_t) = count > 5 ? swing_shuffled : swing;
    swing(1 << 10, fixed);
    long before = resident_kib(), faulted = faults();
    for (int at = 0; at < swings; at++) {
        turn(bytes, fixed);
        at_end[at] = resident_kib() - before;
    }
    faulted = faults() - faulted;
    if (!strcmp(then, "small"))
        pairs(16);
    else if (!strcmp(then, "huge"))
        pairs(1 << 20);
    else if (!strcmp(then, "many"))
        many();
    else if (strcmp(then, "sit"))
        return 3;
    long last = resident_kib() - before;
    printf("%ld", faulted);
    for (int at = 0; at < swings; at++)
        printf(" %ld", at_end[at]);
    printf(" %ld\n", last);
    return 0;
}

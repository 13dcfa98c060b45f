/* Random programs that check every byte they can: programs SEED THREADS STEPS LETTERS.

     x  blocks go between threads      f  threads fork; children go on and free all
     c  threads end and leave their    s  signal handlers allocate and free
        blocks to a new one            t  malloc_trim and mallinfo2 in between
     d  sizes drift                    h  some blocks of up to 20 MB
     l  400 MB of address space; NULL is an answer, but not of a realloc that shrinks

   Every way to allocate is used, alignments up to 128 KiB, and now and then all of malloc_usable_size. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 1100, BOXES = 4096, HANDLED = 32, CHILD_STEPS = 20000, EDGE = 64, STRIDE = 257 };

struct block {
    unsigned char *bytes;
    size_t size;
    uint64_t stamp;
};

struct worker {
    struct block *blocks;
    uint64_t random;
    long steps;
};

static uint64_t seed;
static int exchanges, forks, hands_over, handles, trims, drifts, huge, limited;
static _Atomic(struct block *) *boxes;

static uint64_t draw(uint64_t *random) {
    uint64_t x = *random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static void broken(const char *what, const struct block *block) {
    char line[160];
    int length = snprintf(line, sizeof line, "%s: block %p of %zu bytes, seed %llu\n", what,
                          block ? (void *)block->bytes : NULL, block ? block->size : 0, (unsigned long long)seed);
    write(2, line, length);
    abort();
}

static void expect(int right, const char *what, const struct block *block) {
    if (!right) broken(what, block);
}

/* All bytes at both ends, some between. */
static size_t after(size_t at, size_t size) {
    if (at < EDGE || size - at <= EDGE) return at + 1;
    return at + STRIDE < size - EDGE ? at + STRIDE : size - EDGE;
}

static unsigned char stamped(uint64_t stamp, size_t at) {
    return (unsigned char)(stamp >> (at & 7) * 8) ^ (unsigned char)at;
}

static void fill(struct block *block, uint64_t stamp) {
    block->stamp = stamp;
    for (size_t at = 0; at < block->size; at = after(at, block->size)) block->bytes[at] = stamped(stamp, at);
}

static void check(const struct block *block, const char *when) {
    for (size_t at = 0; at < block->size; at = after(at, block->size))
        expect(block->bytes[at] == stamped(block->stamp, at), when, block);
}

static size_t some_size(uint64_t *random, long step) {
    uint64_t kind = draw(random);
    if (huge && kind % 3000 == 0) return draw(random) % (20u << 20);
    if (kind % 400 == 1) return draw(random) % 300000;
    if (kind % 200 == 2) return 0;
    /* Exponents in 256ths: from 3 to 12, or half an exponent around one that goes from 2 to 10 and back. */
    unsigned power = 768 + (kind >> 20) % 2304;
    if (drifts) {
        long part = step / (50 + (long)(seed % 7) * 20) % 4096;
        power = 512 + (part < 2048 ? part : 4096 - part) + (kind >> 20) % 256;
    }
    size_t whole = (size_t)1 << power / 256;
    return whole + whole * (power % 256) / 256;
}

static void allocate(struct block *block, uint64_t *random, long step) {
    size_t size = some_size(random, step), align = 1;
    void *bytes = NULL;
    uint64_t way = draw(random) % 16;
    switch (way) {
    case 0:
    case 1:
        bytes = calloc(1, size);
        for (size_t at = 0; bytes && at < size; at++)
            expect(((unsigned char *)bytes)[at] == 0, "calloc: not zero", block);
        break;
    case 2:
        align = draw(random) % 64 ? 16u << draw(random) % 9 : 8u << draw(random) % 15;
        if (posix_memalign(&bytes, align, size)) bytes = NULL;
        break;
    case 3: bytes = memalign(align = 1u << draw(random) % 13, size); break;
    case 4: bytes = realloc(NULL, size); break;
    case 5: bytes = reallocarray(NULL, size / 4 + 1, 4), size = (size / 4 + 1) * 4; break;
    default: bytes = malloc(size);
    }
    *block = (struct block){bytes, size, 0};
    if (bytes == NULL) {
        expect(limited || size == 0, "NULL", block);
        return;
    }
    expect((uintptr_t)bytes % align == 0 && (uintptr_t)bytes % (size > 8 ? 16 : 8) == 0, "not aligned", block);
    if (draw(random) % 4 == 0) {
        block->size = malloc_usable_size(bytes);
        expect(block->size >= size, "malloc_usable_size is less than asked for", block);
    }
    fill(block, draw(random));
}

static void release(struct block *block, const char *when) {
    if (block->bytes == NULL) return;
    check(block, when);
    free(block->bytes);
    block->bytes = NULL;
}

static void resize(struct block *block, uint64_t *random, long step) {
    if (block->bytes == NULL) return;
    check(block, "before realloc");
    size_t old = block->size, size;
    switch (draw(random) % 4) {
    case 0: size = old < 32u << 20 ? old * 2 + 1 : 1; break;
    case 1: size = old / 2 + 1; break;
    case 2: size = old + draw(random) % 64 + 1; break;
    default: size = some_size(random, step) + 1;
    }
    unsigned char *bytes = realloc(block->bytes, size);
    if (bytes == NULL) {
        expect(limited && size > old, "realloc: NULL", block);
        return;
    }
    block->bytes = bytes;
    if (size >= old) check(block, "after realloc");
    for (size_t at = 0; at < size && at < old && at < EDGE; at++)
        expect(bytes[at] == stamped(block->stamp, at), "after realloc", block);
    block->size = size;
    fill(block, draw(random));
}

static __thread struct block handled[HANDLED];
static __thread uint64_t handlers_random;
static __thread int ready;

static void handler(int signal) {
    (void)signal;
    int error = errno;
    for (int turn = 0; ready && turn < 4; turn++) {
        struct block *block = &handled[draw(&handlers_random) % HANDLED];
        if (block->bytes) {
            release(block, "in a handler");
            continue;
        }
        size_t size = draw(&handlers_random) % (draw(&handlers_random) % 50 ? 3000 : 200000);
        *block = (struct block){malloc(size), size, 0};
        if (block->bytes)
            fill(block, draw(&handlers_random));
        else
            expect(limited, "NULL in a handler", block);
    }
    errno = error;
}

static void end_handlers(void) {
    ready = 0;
    for (int at = 0; at < HANDLED; at++) release(&handled[at], "at the end of a thread");
}

static void go_on_as_a_child(struct worker *worker) {
    for (int step = 0; step < CHILD_STEPS; step++) {
        struct block *block = &worker->blocks[draw(&worker->random) % SLOTS];
        if (draw(&worker->random) % 8 < 5) {
            release(block, "in a child");
            allocate(block, &worker->random, step);
        } else
            resize(block, &worker->random, step);
    }
    for (int at = 0; at < SLOTS; at++) release(&worker->blocks[at], "at the end of a child");
    malloc_trim(0);
    _exit(0);
}

static void fork_once(struct worker *worker) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) go_on_as_a_child(worker);
    while (child > 0 && waitpid(child, &status, 0) < 0) {}
    expect(child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "a child failed", NULL);
}

static void put_into_a_box(struct block *block, uint64_t *random) {
    struct block *mine = malloc(sizeof *mine);
    if (mine == NULL) return;
    *mine = *block;
    block->bytes = NULL;
    struct block *theirs = atomic_exchange(&boxes[draw(random) % BOXES], mine);
    if (theirs) *block = *theirs;
    if (block->bytes) check(block, "of another thread");
    free(theirs);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    uint64_t *random = &worker->random;
    handlers_random = *random ^ 77;
    ready = handles;
    for (long step = 0; step < worker->steps; step++) {
        struct block *block = &worker->blocks[draw(random) % SLOTS];
        uint64_t kind = draw(random);
        if (kind % 16 < 9) {
            release(block, "before free");
            allocate(block, random, step);
        } else if (kind % 16 < 11)
            resize(block, random, step);
        else if (kind % 16 < 13)
            release(block, "before free");
        else if (exchanges)
            put_into_a_box(block, random);
        if (trims && kind % 20011 == 5) malloc_trim(0);
        if (trims && kind % 9973 == 5) (void)mallinfo2();
        if (forks && kind % 40009 == 7) fork_once(worker);
        if (drifts && kind % 150001 == 9)
            for (int at = 0; at < SLOTS; at++)
                if (draw(random) % 10) release(&worker->blocks[at], "at the end of a wave");
        if (hands_over && kind % 60013 == 11) {
            struct worker heir = {worker->blocks, *random ^ (uint64_t)step, worker->steps - step};
            pthread_t thread;
            end_handlers();
            if (pthread_create(&thread, NULL, work, &heir) == 0) {
                pthread_join(thread, NULL);
                return NULL;
            }
            ready = handles;
        }
    }
    end_handlers();
    return NULL;
}

static atomic_int over;

static void *send_signals(void *argument) {
    uint64_t random = seed ^ 99;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    while (!over) {
        kill(getpid(), SIGUSR1);
        usleep(100 + draw(&random) % 300);
    }
    return argument;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    seed = strtoull(words[1], NULL, 10);
    int threads = atoi(words[2]);
    const char *letters = words[4];
    exchanges = strchr(letters, 'x') != NULL, forks = strchr(letters, 'f') != NULL;
    hands_over = strchr(letters, 'c') != NULL, handles = strchr(letters, 's') != NULL;
    trims = strchr(letters, 't') != NULL, drifts = strchr(letters, 'd') != NULL;
    huge = strchr(letters, 'h') != NULL, limited = strchr(letters, 'l') != NULL;
    boxes = calloc(BOXES, sizeof *boxes);
    struct worker workers[64];
    pthread_t thread[64], sender;
    if (boxes == NULL || threads < 1 || threads > 64) return 2;
    if (limited) setrlimit(RLIMIT_AS, &(struct rlimit){400u << 20, 400u << 20});
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
    for (int at = 0; at < threads; at++) {
        workers[at] = (struct worker){calloc(SLOTS, sizeof(struct block)), seed * 1000 + at, atol(words[3])};
        if (workers[at].blocks == NULL || pthread_create(&thread[at], NULL, work, &workers[at])) return 4;
    }
    /* The main thread only waits: signals go to the workers. */
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &ours, NULL);
    if (handles && pthread_create(&sender, NULL, send_signals, NULL)) return 4;
    for (int at = 0; at < threads; at++) pthread_join(thread[at], NULL);
    over = 1;
    if (handles) pthread_join(sender, NULL);
    for (int at = 0; at < threads; at++) {
        for (int slot = 0; slot < SLOTS; slot++) release(&workers[at].blocks[slot], "at the end");
        free(workers[at].blocks);
    }
    for (int at = 0; at < BOXES; at++) {
        if (boxes[at]) release(boxes[at], "in a box");
        free(boxes[at]);
    }
    free(boxes);
    return 0;
}

// Places that allocate known amounts: half of each stays. Called with a number of MiB for each place; prints
// "ready" and, with a second argument, works until its standard input ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <poll.h>

#define PLACE __attribute__((noinline, noclone))
static void *volatile keep;

template <size_t Bytes> struct Block { char bytes[Bytes]; };

PLACE static void *place_tiny() { void *p = malloc(48); keep = p; return p; }
PLACE static void *place_zeroed() { void *p = calloc(3, 1000); keep = p; return p; }
PLACE static void *place_aligned() { void *p = aligned_alloc(256, 4096); keep = p; return p; }
PLACE static void *place_large() { void *p = malloc(100000); keep = p; return p; }
PLACE static void *place_huge() { void *p = malloc(8 << 20); keep = p; return p; }
template <size_t Bytes> PLACE static void *place_typed() { void *p = new Block<Bytes>; keep = p; return p; }
PLACE static void *place_grown() {
    void *p = malloc(700);
    p = realloc(p, 1400);
    keep = p;
    return p;
}
// 100 frames that the compiler cannot fold, with a frame of changing size: found by the frame pointer alone.
PLACE static void *place_deep(int depth) {
    char *room = (char *)__builtin_alloca(16 + depth % 7 * 16);
    memset(room, depth, 16);
    keep = room;
    if (depth == 0) return malloc(500);
    void *p = place_deep(depth - 1);
    keep = p;
    return p;
}
PLACE static void *place_in_thread() { void *p = malloc(2000); keep = p; return p; }

template <typename Get> static void fill(size_t total, size_t bytes, Get get) {
    for (size_t at = 0; at < total; at += 2 * bytes) {
        free(get());
        keep = get();
    }
}

int main(int argc, char **argv) {
    size_t total = (size_t)atoi(argv[1]) << 20;
    std::thread thread([=] { fill(total, 2000, place_in_thread); });
    fill(total, 48, place_tiny);
    fill(total, 3000, place_zeroed);
    fill(total, 4096, place_aligned);
    fill(total, 100000, place_large);
    fill(total, 8 << 20, place_huge);
    fill(total, 64, place_typed<64>);
    fill(total, 1024, place_typed<1024>);
    fill(total, 2100, place_grown);
    fill(total, 500, [] { return place_deep(99); });
    thread.join();
    puts("ready");
    fflush(stdout);
    pollfd input = {0, POLLIN, 0};
    while (argc > 2 && poll(&input, 1, 0) == 0)
        fill(1 << 20, 48, place_tiny);
    return 0;
}

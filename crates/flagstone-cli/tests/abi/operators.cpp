// Every operator new and delete, the new-handler and std::bad_alloc.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

static int failures;
#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            std::printf("line %d: %s\n", __LINE__, #what);                                       \
            failures++;                                                                          \
        }                                                                                        \
    } while (0)

static int handler_calls;
static void handler() {
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

static volatile std::size_t impossible = PTRDIFF_MAX;

struct alignas(256) Wide {
    char bytes[256];
};

static void forms() {
    std::align_val_t align{128};
    void *blocks[] = {
        ::operator new(40),          ::operator new[](40),
        ::operator new(40, std::nothrow), ::operator new[](40, std::nothrow),
        ::operator new(40, align),   ::operator new[](40, align),
        ::operator new(40, align, std::nothrow), ::operator new[](40, align, std::nothrow),
        ::operator new(40),          ::operator new[](40),
        ::operator new(40, align),   ::operator new[](40, align),
    };
    for (void *block : blocks) CHECK(block);
    for (int i : {4, 5, 6, 7, 10, 11}) CHECK(reinterpret_cast<std::uintptr_t>(blocks[i]) % 128 == 0);
    ::operator delete(blocks[0]);
    ::operator delete[](blocks[1]);
    ::operator delete(blocks[2], std::nothrow);
    ::operator delete[](blocks[3], std::nothrow);
    ::operator delete(blocks[4], align);
    ::operator delete[](blocks[5], align);
    ::operator delete(blocks[6], align, std::nothrow);
    ::operator delete[](blocks[7], align, std::nothrow);
    ::operator delete(blocks[8], 40);
    ::operator delete[](blocks[9], 40);
    ::operator delete(blocks[10], 40, align);
    ::operator delete[](blocks[11], 40, align);
    ::operator delete(nullptr);
    Wide *wide = new Wide[3];
    CHECK(reinterpret_cast<std::uintptr_t>(wide) % 256 == 0);
    delete[] wide;
}

static void *volatile sink;

template <class Attempt> static bool throws(Attempt attempt) {
    try {
        attempt();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void exhaustion() {
    CHECK(throws([] { sink = ::operator new(impossible); }));
    CHECK(throws([] { sink = ::operator new[](impossible); }));
    CHECK(throws([] { sink = ::operator new(impossible, std::align_val_t{64}); }));
    CHECK(throws([] { std::vector<char> v(impossible - 1); }));
    CHECK(::operator new(impossible, std::nothrow) == nullptr);
    CHECK(::operator new(impossible, std::align_val_t{64}, std::nothrow) == nullptr);
    std::set_new_handler(handler);
    CHECK(throws([] { sink = ::operator new(impossible); }));
    CHECK(handler_calls == 3);
    std::set_new_handler([] { throw 42; });
    int caught = 0;
    try {
        sink = ::operator new(impossible);
    } catch (int value) {
        caught = value;
    }
    CHECK(caught == 42);
    std::set_new_handler(nullptr);
}

static void containers() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([t] {
            std::map<int, std::string> map;
            for (int i = 0; i < 20000; i++) {
                map[i * 7919 % 5003] = std::string(static_cast<std::size_t>(i % 300 + t), 'x');
                if (i % 3 == 0) map.erase(i * 31 % 5003);
            }
        });
    for (auto &thread : threads) thread.join();
}

int main() {
    forms();
    exhaustion();
    containers();
    if (!failures) std::puts("ok");
    return failures != 0;
}

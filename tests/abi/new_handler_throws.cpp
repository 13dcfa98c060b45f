// A new_handler that throws: operator new lets it pass, the nothrow forms swallow it.
#include "check.h"
#include <cstdint>
#include <new>

static const std::size_t impossible = std::size_t(PTRDIFF_MAX) - 4096;
static int calls;
// Keeps the compiler from dropping a call whose result nobody looks at.
static void *volatile sink;

static void throw_at_the_second_call() {
    if (++calls == 2)
        throw std::bad_alloc();
}

template <typename Attempt> static bool throws_at_the_second_call(Attempt attempt) {
    calls = 0;
    std::set_new_handler(throw_at_the_second_call);
    bool thrown = false;
    try {
        attempt();
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    std::set_new_handler(nullptr);
    return thrown && calls == 2;
}

template <typename Attempt> static bool null_after_the_second_call(Attempt attempt) {
    calls = 0;
    std::set_new_handler(throw_at_the_second_call);
    const void *got = attempt();
    std::set_new_handler(nullptr);
    return got == nullptr && calls == 2;
}

int main() {
    volatile std::size_t size = impossible;
    const auto at = std::align_val_t(64);
    CHECK(throws_at_the_second_call([&] { sink = ::operator new(size); }));
    CHECK(throws_at_the_second_call([&] { sink = ::operator new[](size); }));
    CHECK(throws_at_the_second_call([&] { sink = ::operator new(size, at); }));
    CHECK(null_after_the_second_call([&] { return ::operator new(size, std::nothrow); }));
    CHECK(null_after_the_second_call([&] { return ::operator new[](size, std::nothrow); }));
    CHECK(null_after_the_second_call([&] { return ::operator new(size, at, std::nothrow); }));
    DONE();
}

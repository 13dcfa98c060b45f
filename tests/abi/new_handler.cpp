// Refused operator new: bad_alloc, nullptr for nothrow, and the new_handler loop of [new.delete].
#include "check.h"
#include <cstdint>
#include <cstdlib>
#include <new>

static const std::size_t impossible = std::size_t(PTRDIFF_MAX) - 4096;
static int calls;
// Keeps the compiler from dropping a call whose result nobody looks at.
static void *volatile sink;

template <typename Attempt> static bool throws_bad_alloc(Attempt attempt) {
    try {
        attempt();
    } catch (const std::bad_alloc &) {
        return true;
    } catch (...) {
        return false;
    }
    return false;
}

static void give_up_at_the_third_call() {
    if (++calls == 3)
        std::set_new_handler(nullptr);
}

template <typename Attempt> static int handler_calls(void (*handler)(), Attempt attempt) {
    calls = 0;
    std::set_new_handler(handler);
    CHECK(throws_bad_alloc(attempt));
    std::set_new_handler(nullptr);
    return calls;
}

int main() {
    volatile std::size_t size = impossible;
    const auto at = std::align_val_t(64);
    CHECK(throws_bad_alloc([&] { sink = ::operator new(size); }));
    CHECK(throws_bad_alloc([&] { sink = ::operator new[](size); }));
    CHECK(throws_bad_alloc([&] { sink = ::operator new(size, at); }));
    CHECK(throws_bad_alloc([&] { sink = ::operator new[](size, at); }));
    CHECK(::operator new(size, std::nothrow) == nullptr);
    CHECK(::operator new[](size, std::nothrow) == nullptr);
    CHECK(::operator new(size, at, std::nothrow) == nullptr);
    CHECK(::operator new[](size, at, std::nothrow) == nullptr);

    CHECK(handler_calls(give_up_at_the_third_call, [&] { sink = ::operator new(size); }) == 3);
    CHECK(handler_calls(give_up_at_the_third_call, [&] { sink = ::operator new(size, at); }) == 3);

    // The nothrow forms call the handler too.
    calls = 0;
    std::set_new_handler(give_up_at_the_third_call);
    CHECK(::operator new(size, std::nothrow) == nullptr && calls == 3);
    std::set_new_handler(nullptr);

    // malloc never calls it.
    calls = 0;
    std::set_new_handler(give_up_at_the_third_call);
    CHECK(std::malloc(size) == nullptr && calls == 0);
    std::set_new_handler(nullptr);
    DONE();
}

// Every form of operator new and delete. C++17 [new.delete].
#include "check.h"
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

static void *aligned_to(void *object, std::size_t alignment, std::size_t size) {
    CHECK(object != nullptr && reinterpret_cast<std::uintptr_t>(object) % alignment == 0);
    std::memset(object, 0x5a, size);
    return object;
}

static void every_form(std::size_t size) {
    const std::nothrow_t &quiet = std::nothrow;
    ::operator delete(aligned_to(::operator new(size), size >= 16 ? 16 : 1, size));
    ::operator delete(aligned_to(::operator new(size), 1, size), size);
    ::operator delete(aligned_to(::operator new(size, quiet), 1, size), quiet);
    ::operator delete[](aligned_to(::operator new[](size), 1, size));
    ::operator delete[](aligned_to(::operator new[](size), 1, size), size);
    ::operator delete[](aligned_to(::operator new[](size, quiet), 1, size), quiet);
    for (std::size_t alignment = 8; alignment <= 16384; alignment *= 2) {
        const auto at = static_cast<std::align_val_t>(alignment);
        ::operator delete(aligned_to(::operator new(size, at), alignment, size), at);
        ::operator delete(aligned_to(::operator new(size, at), alignment, size), size, at);
        ::operator delete(aligned_to(::operator new(size, at, quiet), alignment, size), at, quiet);
        ::operator delete[](aligned_to(::operator new[](size, at), alignment, size), at);
        ::operator delete[](aligned_to(::operator new[](size, at), alignment, size), size, at);
        ::operator delete[](aligned_to(::operator new[](size, at, quiet), alignment, size), at, quiet);
    }
}

static void null_is_deleted() {
    void *none = nullptr;
    ::operator delete(none);
    ::operator delete(none, 8);
    ::operator delete(none, std::nothrow);
    ::operator delete(none, std::align_val_t(64));
    ::operator delete(none, 8, std::align_val_t(64));
    ::operator delete[](none);
    ::operator delete[](none, 8);
}

static void zero_is_distinct() {
    void *a = ::operator new(0), *b = ::operator new(0), *c = ::operator new(0, std::align_val_t(64));
    CHECK(a && b && c && a != b && b != c);
    ::operator delete(a, std::size_t(0));
    ::operator delete(b);
    ::operator delete(c, std::size_t(0), std::align_val_t(64));
}

struct alignas(128) Wide {
    char bytes[200];
};

struct Tree {
    std::unique_ptr<Tree> left, right;
    std::string name;
    virtual ~Tree() = default;
};

static std::unique_ptr<Tree> grow(int depth) {
    auto tree = std::make_unique<Tree>();
    tree->name = std::string(20 + depth, 'x');
    if (depth > 0) {
        tree->left = grow(depth - 1);
        tree->right = grow(depth - 1);
    }
    return tree;
}

// What compilers emit: sized deletes of classes, arrays and over-aligned types.
static void as_programs_use_it() {
    for (int round = 0; round < 50; round++) {
        grow(10);
        std::vector<std::unique_ptr<Wide>> wide;
        for (int at = 0; at < 100; at++) {
            wide.push_back(std::make_unique<Wide>());
            CHECK(reinterpret_cast<std::uintptr_t>(wide.back().get()) % 128 == 0);
        }
        delete[] new Wide[7];
        delete[] new std::string[33];
    }
}

int main() {
    for (std::size_t size = 1; size < 400000; size = size * 3 / 2 + 1)
        every_form(size);
    null_is_deleted();
    zero_is_distinct();
    as_programs_use_it();
    DONE();
}

// std::pmr::memory_resource over flagstone: the heap itself, and a pool of one size of object.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef FLAGSTONE_MEMORY_RESOURCE_HPP
#define FLAGSTONE_MEMORY_RESOURCE_HPP

#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>

#include <flagstone/flagstone.h>

namespace flagstone {

// A cache of objects of one size as a memory resource. A request that is larger or more aligned than its
// objects goes upstream. Node-based containers (list, map, set) ask for one size, that of their node.
class cache_resource final : public std::pmr::memory_resource {
public:
    cache_resource(const char *name, std::size_t object_size,
                   std::size_t align = alignof(std::max_align_t), std::size_t limit = 0,
                   std::pmr::memory_resource *upstream = std::pmr::get_default_resource())
        : size_(object_size), align_(align), upstream_(upstream) {
        fs_cache_options options{sizeof options, align, nullptr, limit};
        cache_ = fs_cache_create(name, object_size, &options);
        if (!cache_)
            throw std::bad_alloc();
    }
    cache_resource(const cache_resource &) = delete;
    cache_resource &operator=(const cache_resource &) = delete;
    // Objects still handed out keep their cache.
    ~cache_resource() override { (void)fs_cache_destroy(cache_); }

    fs_cache *native_handle() const noexcept { return cache_; }
    std::size_t object_size() const noexcept { return size_; }

private:
    bool serves(std::size_t bytes, std::size_t align) const noexcept {
        return bytes <= size_ && align <= align_;
    }
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        if (!serves(bytes, align))
            return upstream_->allocate(bytes, align);
        if (void *object = fs_cache_alloc(cache_))
            return object;
        throw std::bad_alloc();
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override {
        if (serves(bytes, align))
            fs_cache_free(cache_, block);
        else
            upstream_->deallocate(block, bytes, align);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }

    fs_cache *cache_;
    std::size_t size_;
    std::size_t align_;
    std::pmr::memory_resource *upstream_;
};

// The heap as a memory resource, by its aligned functions.
class heap_resource final : public std::pmr::memory_resource {
private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        void *block = align <= alignof(std::max_align_t) ? std::malloc(bytes)
                                                         : aligned_alloc(align, bytes);
        if (block)
            return block;
        throw std::bad_alloc();
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override { std::free(block); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other || dynamic_cast<const heap_resource *>(&other) != nullptr;
    }
};

} // namespace flagstone

#endif

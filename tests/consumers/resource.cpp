// std::pmr containers on a typed cache and on the heap.
#include <cstdio>
#include <flagstone/memory_resource.hpp>
#include <list>
#include <string>
#include <vector>

int main() {
    flagstone::cache_resource nodes("list-node", 64, 16);
    {
        std::pmr::list<long> list(&nodes);
        for (long n = 0; n < 10000; n++)
            list.push_back(n);
        std::uint64_t size = 0;
        if (flagstone_get("cache.list-node.object_size", &size) != 0 || size != 64)
            return 1;
        long sum = 0;
        for (long n : list)
            sum += n;
        if (sum != 49995000)
            return 2;
    }
    flagstone::heap_resource heap, same;
    if (!heap.is_equal(same) || heap.is_equal(nodes))
        return 3;
    std::pmr::vector<std::pmr::string> words(&heap);
    for (int n = 0; n < 1000; n++)
        words.emplace_back("a word that is too long for the object itself");
    flagstone::cache_resource one("one", 64, 16, 1);
    void *first = one.allocate(64, 16);
    try {
        (void)one.allocate(64, 16);
        return 4;
    } catch (const std::bad_alloc &) {
    }
    one.deallocate(first, 64, 16);
    // Too large for an object: from upstream.
    void *large = one.allocate(1000, 16);
    one.deallocate(large, 1000, 16);
    std::puts("all held");
    return 0;
}

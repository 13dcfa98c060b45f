// Threads that build, hand over and destroy C++ objects; compiled with sized deletes.
// Prints a sum that does not depend on the allocator or the order.
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
};
struct Square : Shape {
    long side;
    explicit Square(long side) : side(side) {}
    long area() const override { return side * side; }
};
struct alignas(64) Field : Shape {
    long sides[20];
    explicit Field(long side) {
        for (long &one : sides)
            one = side;
    }
    long area() const override { return sides[0] * sides[19]; }
};

static std::mutex lock;
static std::vector<std::unique_ptr<Shape>> handed;
static std::atomic<long> total;

static void work(int seed) {
    thread_local std::vector<std::string> scratch;
    std::map<int, std::string> sorted;
    std::unordered_map<std::string, std::vector<int>> table;
    long sum = 0;
    for (int round = 0; round < 4000; round++) {
        std::unique_ptr<Shape> shape;
        if (round % 3)
            shape = std::make_unique<Square>(round % 100 + seed);
        else
            shape = std::make_unique<Field>(round % 50 + seed);
        std::unique_ptr<Shape> other;
        {
            std::lock_guard<std::mutex> guard(lock);
            handed.push_back(std::move(shape));
            if (handed.size() > 100) {
                other = std::move(handed[handed.size() / 2]);
                handed.erase(handed.begin() + handed.size() / 2);
            }
        }
        if (other)
            total += other->area();
        sorted[round * 7919 % 1009] = std::string(round % 200, 'a' + round % 26);
        table[std::to_string(round % 300)].push_back(round);
        scratch.emplace_back(round % 77, 'z');
        if (scratch.size() > 500)
            scratch.clear();
    }
    for (auto &[key, text] : sorted)
        sum += key + long(text.size());
    for (auto &[key, list] : table)
        sum += long(key.size() * list.size());
    total += sum;
}

int main() {
    for (int round = 0; round < 5; round++) {
        std::vector<std::thread> threads;
        for (int seed = 0; seed < 8; seed++)
            threads.emplace_back(work, seed);
        for (auto &thread : threads)
            thread.join();
    }
    for (auto &shape : handed)
        total += shape->area();
    handed.clear();
    std::printf("%ld\n", total.load());
}

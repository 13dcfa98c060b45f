/* What a C program does with the installed library: typed caches, statistics, knobs. */
#include <errno.h>
#include <flagstone/flagstone.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);          \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

struct node {
    char key[40];
    struct node *next;
};

static void mark(void *object) { memset(object, 0x5a, sizeof(struct node)); }

static void *use(void *cache) {
    for (int round = 0; round < 200; round++) {
        void *nodes[50];
        CHECK(fs_cache_alloc_bulk(cache, 50, nodes) == 50);
        for (int at = 0; at < 50; at++)
            memset(nodes[at], at, sizeof(struct node));
        fs_cache_free_bulk(cache, 50, nodes);
    }
    return NULL;
}

static void limits(void) {
    struct fs_cache_options options = {sizeof options, 64, NULL, 10};
    fs_cache *cache = fs_cache_create("limited", 100, &options);
    CHECK(cache != NULL);
    fs_sheaf *aside = fs_cache_prefill(cache, 8);
    void *pair[2], *three[3];
    CHECK(aside != NULL && fs_sheaf_left(aside) == 8);
    errno = 0;
    CHECK(fs_cache_alloc_bulk(cache, 3, three) == 0 && errno == ENOMEM);
    CHECK(fs_cache_alloc_bulk(cache, 2, pair) == 2);
    CHECK(fs_cache_alloc(cache) == NULL);
    CHECK((size_t)pair[0] % 64 == 0 && (size_t)pair[1] % 64 == 0);
    void *object = fs_sheaf_alloc(aside);
    CHECK(object != NULL && fs_sheaf_left(aside) == 7);
    fs_sheaf_return(aside);
    CHECK(fs_cache_destroy(cache) == EBUSY);
    fs_cache_free(cache, object);
    fs_cache_free_bulk(cache, 2, pair);
    CHECK(fs_cache_set_limit(cache, 1) == 0);
    object = fs_cache_alloc(cache);
    CHECK(object != NULL && fs_cache_alloc(cache) == NULL);
    fs_cache_free(cache, object);
    CHECK(fs_cache_destroy(cache) == 0);
    CHECK(fs_cache_create("none", 0, NULL) == NULL && errno == EINVAL);
    options.align = 3;
    CHECK(fs_cache_create("odd", 10, &options) == NULL && errno == EINVAL);
}

static void knobs(void) {
    uint64_t value = 0;
    CHECK(flagstone_get("cache.node.object_size", &value) == 0 && value == sizeof(struct node));
    CHECK(flagstone_set("cache.node.min_partial", 3) == 0);
    CHECK(flagstone_get("cache.node.min_partial", &value) == 0 && value == 3);
    CHECK(flagstone_set("cache.node.min_partial", 1u << 30) == EINVAL);
    CHECK(flagstone_set("cache.node.size", 3) == EPERM);
    CHECK(flagstone_set("cache.none.min_partial", 3) == ENOENT);
    CHECK(flagstone_get("nothing", &value) == ENOENT);
    CHECK(flagstone_set("cache.node.shrink", 1) == 0);
    CHECK(flagstone_get("page_size", &value) == 0 && value >= 4096);
}

static void statistics(void) {
    struct flagstone_stats before = {.size = sizeof before}, after = before;
    CHECK(flagstone_stats_get(&before) == 0 && before.version == 1);
    char *block = malloc(3 << 20), *huge = malloc(64 << 20);
    memset(block, 1, 3 << 20);
    huge[0] = 1;
    CHECK(flagstone_stats_get(&after) == 0);
    /* The program's malloc is this heap's. */
    CHECK(after.in_use >= before.in_use + (67u << 20));
    CHECK(after.huge >= before.huge + (64u << 20));
    free(block);
    free(huge);
    /* An older header: what it does not know stays as it is. */
    struct flagstone_stats older = {.size = 32, .slabs_and_runs = 7};
    CHECK(flagstone_stats_get(&older) == 0 && older.slabs_and_runs == 7 && older.huge == 0);
    older.size = 3;
    CHECK(flagstone_stats_get(&older) == EINVAL);
    CHECK(flagstone_trim(0) > 0);
}

int main(void) {
    struct fs_cache_options options = {sizeof options, 0, mark, 0};
    fs_cache *cache = fs_cache_create("node", sizeof(struct node), &options);
    CHECK(cache != NULL);
    struct node *node = fs_cache_alloc(cache);
    CHECK(node != NULL && node->key[39] == 0x5a);
    fs_cache_free(cache, node);
    pthread_t threads[4];
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&threads[at], NULL, use, cache) == 0);
    for (int at = 0; at < 4; at++)
        pthread_join(threads[at], NULL);
    knobs();
    fs_cache_shrink(cache);
    CHECK(fs_cache_destroy(cache) == 0);
    limits();
    statistics();
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", FLAGSTONE_VERSION_MAJOR, FLAGSTONE_VERSION_MINOR,
             FLAGSTONE_VERSION_PATCH);
    CHECK(strcmp(version, flagstone_version()) == 0);
    printf("flagstone %s: all held\n", flagstone_version());
    return 0;
}

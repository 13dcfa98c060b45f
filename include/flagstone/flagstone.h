/* flagstone: typed object caches, statistics, trim and knobs.
 *
 * malloc, free and their kin are replaced by linking or preloading the library; this header is for
 * what the C library has no name for. All functions may be called from any thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef FLAGSTONE_H
#define FLAGSTONE_H

#include <stddef.h>
#include <stdint.h>

#define FLAGSTONE_VERSION_MAJOR 0
#define FLAGSTONE_VERSION_MINOR 1
#define FLAGSTONE_VERSION_PATCH 0

#if defined(__GNUC__)
#define FS_MALLOC_ __attribute__((malloc, warn_unused_result))
#else
#define FS_MALLOC_
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version as text, such as "0.1.0". */
const char *flagstone_version(void);

/* ---- Typed object caches ------------------------------------------------------------------ */

/* Objects of one size and alignment, with a line of their own in every report. */
typedef struct fs_cache fs_cache;

struct fs_cache_options {
    /* sizeof(struct fs_cache_options), so that a newer library serves an older header. */
    size_t size;
    /* Alignment of objects: a power of two up to a page, or 0 for the default. */
    size_t align;
    /* Run once over each object before it is handed out the first time, or NULL. A freed object
     * keeps its content: its next owner finds it as it was left. */
    void (*ctor)(void *object);
    /* The most objects handed out at once, or 0 for no limit. With a limit threads share a counter. */
    size_t limit;
};

/* Makes a cache. The name is copied, up to 32 bytes of it; options may be NULL. NULL with EINVAL for a
 * size or alignment that cannot be, with ENOMEM where no more caches can be made (about 170). */
FS_MALLOC_ fs_cache *fs_cache_create(const char *name, size_t object_size,
                                     const struct fs_cache_options *options);

/* Ends a cache: 0, or EBUSY while objects are handed out. NULL is fine. */
int fs_cache_destroy(fs_cache *cache);

/* An object, or NULL with ENOMEM at the limit and without memory. */
FS_MALLOC_ void *fs_cache_alloc(fs_cache *cache);

/* Gives an object of this cache back. NULL is fine. */
void fs_cache_free(fs_cache *cache, void *object);

/* Takes count objects or none: answers count or 0 (ENOMEM). */
size_t fs_cache_alloc_bulk(fs_cache *cache, size_t count, void **out);

/* Gives count objects back. */
void fs_cache_free_bulk(fs_cache *cache, size_t count, void *const *objects);

/* Changes the limit of a cache made with one: 0, or EINVAL for another cache and for 0. */
int fs_cache_set_limit(fs_cache *cache, size_t limit);

/* Gives back what the cache holds beyond the objects handed out. */
void fs_cache_shrink(fs_cache *cache);

/* Objects set aside, so that taking them cannot fail. One thread at a time uses a sheaf. */
typedef struct fs_sheaf fs_sheaf;

/* Sets count objects aside; NULL with ENOMEM, or with EINVAL for none. */
FS_MALLOC_ fs_sheaf *fs_cache_prefill(fs_cache *cache, size_t count);

/* One of them, to be freed by fs_cache_free; NULL only when none is left. */
void *fs_sheaf_alloc(fs_sheaf *sheaf);

/* How many are left. */
size_t fs_sheaf_left(const fs_sheaf *sheaf);

/* Gives back those that are left, and the sheaf. NULL is fine. */
void fs_sheaf_return(fs_sheaf *sheaf);

/* ---- Statistics, trim, knobs -------------------------------------------------------------- */

/* Bytes, at one moment; other threads may move them meanwhile. Fields are only ever added. */
struct flagstone_stats {
    /* In: sizeof(struct flagstone_stats). */
    size_t size;
    /* Out: version of this structure in the library, 1 today. */
    uint32_t version;
    uint32_t reserved;
    /* Held by the program, huge blocks included. */
    uint64_t in_use;
    /* Of those, in huge blocks, which have mappings of their own. */
    uint64_t huge;
    /* In slabs and runs of pages, free objects in them included. */
    uint64_t slabs_and_runs;
    /* In free pages with memory behind them. */
    uint64_t free_resident;
    /* May be written; huge blocks not included. */
    uint64_t committed;
    /* The allocator's own. */
    uint64_t metadata;
    /* Numbers of blocks, not bytes. */
    uint64_t huge_blocks;
    uint64_t free_blocks;
};

/* Fills in the fields that `size` covers: 0, or EINVAL for a size that cannot be. */
int flagstone_stats_get(struct flagstone_stats *stats);

/* Gives free memory back to the system, but keep bytes; answers the bytes given back. */
size_t flagstone_trim(size_t keep);

/* Asked where a request of `wanted` bytes meets the limit, the heap having given back all it kept, of which it still
 * holds `held`: not 0 to have it tried again, 0 to have it answered with NULL and ENOMEM. It runs in the thread that
 * asked and may free; what it allocates itself beyond the limit gets NULL. After 100 times the answer is NULL. */
typedef int (*flagstone_limit_callback)(size_t wanted, size_t held, void *argument);

/* Limits what the heap may hold from the system: blocks, free pages, its own tables. 0 for no limit; the callback
 * may be NULL. What is held beyond a new limit stays. 0, or EINVAL for less than 1 MiB. */
int flagstone_set_limit(size_t bytes, flagstone_limit_callback callback, void *argument);

/* Reads a knob or figure by name: 0 or ENOENT.
 *   cpus  caches  page_size  rseq  profile  limit  pressure  retain_bytes_min  retain_share  allowance
 *   cache.<name>.object_size  .size  .align  .order  .objs_per_slab  .sheaf_capacity  .min_partial
 */
int flagstone_get(const char *name, uint64_t *value);

/* Sets a knob by name: 0, ENOENT, EPERM for what can only be read, EINVAL for the value.
 *   cache.<name>.min_partial   empty slabs that a memory node keeps
 *   cache.<name>.sheaf_capacity  objects in a sheaf, 1 to 253, for a cache that has sheaves
 *   cache.<name>.shrink        1: give back what the cache holds beyond the objects handed out
 *   trim                       give back free memory, but so many bytes
 *   limit                      bytes the heap may hold; 0: no limit
 *   retain_bytes_min           bytes that may always be free
 *   retain_share               one part in so many of the bytes in use may be free as well; 0: none
 *   allowance                  per cent of time that giving back may cost, 1 to 100
 *   pressure                   1: give back free memory where memory is short; 0: not
 *   profile                    mean bytes between samples of a heap profile; 0: none
 */
int flagstone_set(const char *name, uint64_t value);

#ifdef __cplusplus
}
#endif

#endif

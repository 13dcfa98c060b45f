/* A failed check prints where and what and is counted; main returns the count. */
#ifndef FLAGSTONE_CHECK_H
#define FLAGSTONE_CHECK_H

#include <errno.h>
#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            failures++;                                                                       \
        }                                                                                     \
    } while (0)

/* The expression is NULL and sets errno to `code`. */
#define REFUSED(expression, code)           \
    do {                                    \
        errno = 0;                          \
        void *refused_ = (void *)(expression); \
        int errno_ = errno;                 \
        CHECK(refused_ == NULL);            \
        errno = errno_;                     \
        CHECK(errno == (code));             \
    } while (0)

#define DONE() return failures == 0 ? 0 : 1

#endif

/* Random numbers of a test. */
#ifndef QFW_TARGET_SOURCE_H
#define QFW_TARGET_SOURCE_H

#include "base/random.h"

typedef struct {
    qfw_key key;
    uint32_t next;
} source;

static inline uint32_t word(source *s)
{
    return qfw_draw(&s->key, s->next++);
}

static inline uint32_t below(source *s, uint32_t n)
{
    return word(s) % n;
}

#endif

/* Tables beside each other: numbers of every edge, and a check of every table at every tail length. */
#ifndef QFW_TARGET_TWINS_H
#define QFW_TARGET_TWINS_H

#include "kernels/kernels.h"
#include "report.h"
#include "source.h"

enum { TAILS = 200, ROOM = QFW_LANES * TAILS + 64 };

/* Zeros, ends and anything. */
static inline int8_t code(source *s)
{
    static const int8_t edges[] = {0, 0, 1, -1, 127, -127, -128, 126};
    return below(s, 3) == 0 ? edges[below(s, 8)] : (int8_t)((int32_t)below(s, 256) - 128);
}

static inline void fill(source *s, int8_t *x, size_t n, uint32_t how)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = how == 0 ? 0 : how == 1 ? code(s) : (int8_t)((int32_t)below(s, 7) - 3);
    }
}

/* A scale of any exponent, or one of the `usual`. */
static inline float scale(source *s, bool usual)
{
    const uint32_t e = usual ? 110 + below(s, 20) : 1 + below(s, 254);
    return qfw_from_bits_f32(e << 23 | (below(s, 4) == 0 ? 0 : word(s) >> 9));
}

static inline bool same(const void *a, const void *b, size_t n)
{
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i]) {
            return false;
        }
    }
    return true;
}

typedef void check_fn(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n);

static inline void run(const char *name, check_fn *check, unsigned times)
{
    source s = {{7, 11}, 0};
    unsigned cases = 0;
    report_suite(name);
    for (int isa = QFW_ISA_PORTABLE; isa < QFW_ISA_COUNT; isa++) {
        const qfw_kernels *fast = qfw_host_kernels((qfw_isa)isa);
        for (unsigned i = 0; fast != NULL && i < times * TAILS; i++, cases++) {
            check(fast, qfw_kernels_portable(), &s, i % TAILS);
        }
    }
    report_suite_end(cases);
}

#endif

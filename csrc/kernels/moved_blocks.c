/* Rows of a parameter and its state that are whole blocks of random words: by loops of moved.c alone. */
#include "kernels/moved.h"

#if !defined(__ARM_FEATURE_DSP)

bool qfw_begin_blocks(qfw_blocks *b, const qfw_key *key, const qfw_key *key_v, size_t n,
                      qfw_slope own)
{
    (void)b, (void)key, (void)key_v, (void)n, (void)own;
    return false;
}

uint32_t qfw_move_blocks(qfw_blocks *b, size_t first, int8_t *m, int8_t *v, const int8_t *x,
                         int32_t code, const qfw_slopes *s)
{
    (void)b, (void)first, (void)m, (void)v, (void)x, (void)code, (void)s;
    return 4;
}

void qfw_halve_row(int8_t *m, ptrdiff_t first, size_t n, const qfw_key *key)
{
    for (size_t i = 0, some; i < n; i += some) {
        some = moved_count(first + (ptrdiff_t)i, n - i);
        moved_halve(m + i, some, moved_words(key, first + (ptrdiff_t)i));
    }
}

#else
typedef int qfw_no_scalar; /* a unit that is not empty */
#endif

/* What follows an integer product: the definition. */
#include "kernels/loops.h"

/* A row whose columns have absmaxes of their own, each accumulator once. */
static void finish_columns(int32_t *acc, size_t n, const qfw_finish *f)
{
    const int32_t *seed = f->seed, *end = acc + n;
    const uint8_t *shift = f->shift;
    const int32_t least = f->relu ? 0 : INT32_MIN;
    for (uint32_t *absmax = f->absmax; acc < end; absmax++) {
        const int32_t sum = (*acc >> *shift++) + *seed++, v = sum > least ? sum : least;
        const uint32_t size = qfw_abs32(v);
        *acc++ = v;
        *absmax = size > *absmax ? size : *absmax;
    }
}

void qfw_finish_s32_scalar(int32_t *acc, size_t rows, size_t n, const qfw_finish *finish)
{
    if (QFW_DIRECT && rows == 1 && finish->columns && finish->seed != NULL &&
        finish->mask == NULL) {
        finish_columns(acc, n, finish);
    } else {
        loop_finish(acc, rows, n, finish, loop_finish_rows);
    }
}

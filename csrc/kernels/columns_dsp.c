/* Rows of sums whose columns have scales of their own, as codes of one scale, with the DSP extension of a
 * Cortex-M: where no code can leave its range. */
#include "kernels/at_once.h"
#include "kernels/codes.h"
#include "kernels/dsp.h"
#include "kernels/ratio.h"

#if defined(__ARM_FEATURE_DSP)

/* How a column's sums become codes: of x = a << up, by dsp_nearest. plain: up is 0, and half up is half
 * away, as there are no ties. */
typedef struct {
    int32_t mult, half;
    uint32_t up, shift;
    bool plain;
} within;

/* As code_near of row.c; false: it is another ratio, or a sum is beyond its limit. */
QFW_ALWAYS_INLINE bool find_within(float from, const qfw_ratio_to *one, uint32_t last,
                                   uint32_t most, within *to)
{
    uint32_t down;
    const uint32_t mult = qfw_ratio_mult(qfw_bits_f32(from), one, &down);
    const bool near = down < last; /* the ratio is mult 2^-(33 + down) */
    const uint32_t shift = (near ? down : last) + 1, up = near ? 0 : qfw_sub32(last, down);
    to->mult = (int32_t)mult;
    to->half = (int32_t)(UINT32_C(1) << (shift - 1));
    to->up = up;
    to->shift = shift;
    to->plain = near && (mult & ((UINT32_C(2) << shift) - 1)) != 0;
    return up <= 30 && most <= (uint32_t)INT32_MAX >> (up & 31);
}

QFW_ALWAYS_INLINE int32_t code_of(int32_t a, const within *r, const bool plain)
{
    return plain ? dsp_most(a, 0, r->mult, r->half) >> r->shift
                 : dsp_nearest((int32_t)((uint32_t)a << r->up), r->mult, r->half, r->shift);
}

QFW_ALWAYS_INLINE void put_code(void *to, size_t i, int32_t v, const int32_t width)
{
    if (width == 8) {
        ((int8_t *)to)[i] = (int8_t)v;
    } else {
        ((int16_t *)to)[i] = (int16_t)v;
    }
}

/* Rows of one column, n apart, four at a time. */
QFW_ALWAYS_INLINE void code_column(const int32_t *a, void *to, const int32_t width, size_t rows,
                                   size_t n, const within *of, const bool plain)
{
    const within r = *of;
    for (; rows >= 4; rows -= 4, a += 4 * n) {
        put_code(to, 0, code_of(a[0], &r, plain), width);
        put_code(to, n, code_of(a[n], &r, plain), width);
        put_code(to, 2 * n, code_of(a[2 * n], &r, plain), width);
        put_code(to, 3 * n, code_of(a[3 * n], &r, plain), width);
        to = (uint8_t *)to + 4 * n * (size_t)(width / 8);
    }
    for (size_t i = 0; rows > 0; rows--, i += n) {
        put_code(to, i, code_of(a[i], &r, plain), width);
    }
}

bool qfw_codes_of_rows(const int32_t *a, size_t rows, size_t n, const float *from,
                       const uint32_t *absmax, const qfw_tensor *to, const qfw_code_rule *rule)
{
    const int32_t q = rule->qmax, width = qfw_slot(&to->format);
    if (rule->rounding != QFW_HALF_AWAY || rule->zp != 0 || rule->qmin != -q ||
        to->format.kind != QFW_SYM || (width != 8 && width != 16) || a == to->codes) {
        return false;
    }
    const qfw_ratio_to one = qfw_ratio_to_of(to->scale[0]);
    const uint32_t last = (uint32_t)(28 - to->format.bits);
    uint8_t *at = to->codes;
    for (const float *end = from + n; from < end; a++, at += width / 8) {
        const uint32_t most = *absmax++;
        within r;
        if (!find_within(*from++, &one, last, most, &r) || code_of((int32_t)most, &r, false) > q) {
            return false;
        }
        if (width == 8) {
            r.plain ? code_column(a, at, 8, rows, n, &r, true)
                    : code_column(a, at, 8, rows, n, &r, false);
        } else {
            r.plain ? code_column(a, at, 16, rows, n, &r, true)
                    : code_column(a, at, 16, rows, n, &r, false);
        }
    }
    return true;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

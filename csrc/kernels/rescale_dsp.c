/* Requantization with a ratio a column on a Cortex-M with the DSP extension: columns one after the
 * other, so that a column's ratio stays in registers. */
#include "kernels/at_once.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* Rows of one column, `row` elements apart, at a ratio that makes no ties: then half up is half away. */
static inline uint32_t rescale_column(const void *from, const int32_t from_width, void *to,
                                      const int32_t to_width, size_t rows, size_t row,
                                      const dsp_ratio *ratio, int32_t q)
{
    const int32_t mult = ratio->mult, half = ratio->half;
    const uint32_t shift = ratio->shift;
    const int8_t *a8 = from;
    const int32_t *a32 = from;
    int8_t *to8 = to;
    int16_t *to16 = to;
    uint32_t saturated = 0;
    for (; rows > 0; rows--) {
        int32_t x;
        if (from_width == 8) {
            x = (int32_t)((uint32_t)*a8 << 23);
            a8 += row;
        } else {
            x = *a32;
            a32 += row;
        }
        int32_t v = dsp_most(x, 0, mult, half) >> shift;
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        if (to_width == 8) {
            *to8 = (int8_t)v;
            to8 += row;
        } else {
            *to16 = (int16_t)v;
            to16 += row;
        }
    }
    return saturated;
}

/* Any column. What has to be moved up first has |a| <= limit, as what is beyond leaves the codes. */
static uint32_t rescale_lifted(const void *from, int32_t from_width, void *to, int32_t to_width,
                               size_t rows, size_t row, const qfw_ratio *ratio, int32_t q)
{
    const int32_t mult = (int32_t)ratio->mult, half = (int32_t)(UINT32_C(1) << (ratio->down - 1));
    const uint32_t limit = ratio->limit, up = ratio->up, shift = ratio->down;
    uint32_t saturated = 0;
    for (size_t i = 0; rows > 0; rows--, i += row) {
        const int32_t a = from_width == 8 ? ((const int8_t *)from)[i] : ((const int32_t *)from)[i];
        int32_t v;
        if (__builtin_expect((uint32_t)a + limit > 2 * limit, 0)) {
            v = qfw_rescale(a, ratio, QFW_HALF_AWAY, 0);
        } else {
            v = dsp_nearest((int32_t)((uint32_t)a << up), mult, half, shift);
        }
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        if (to_width == 8) {
            ((int8_t *)to)[i] = (int8_t)v;
        } else {
            ((int16_t *)to)[i] = (int16_t)v;
        }
    }
    return saturated;
}

/* One row in order, each code after its number is read. */
static inline uint32_t rescale_row(const qfw_rescaling *c, size_t row, const int32_t from_width,
                                   const int32_t to_width, int32_t q)
{
    const qfw_ratios *r = &c->ratios;
    const uint32_t before = from_width == 8 ? 23 : 0;
    uint32_t saturated = 0;
    for (size_t j = 0, i = row * c->columns; j < c->columns; i++, j++) {
        const uint32_t up = r->up[j], down = r->down[j], shift = down - up + before;
        const int32_t a =
            from_width == 8 ? ((const int8_t *)c->from)[i] : ((const int32_t *)c->from)[i];
        const qfw_ratio ratio = {r->mult[j], (uint8_t)up, (uint8_t)down, r->limit[j]};
        int32_t v;
        if (up > 0 && shift - 1 < 30) {
            v = dsp_nearest((int32_t)((uint32_t)a << before), (int32_t)ratio.mult,
                            (int32_t)(UINT32_C(1) << (shift - 1)), shift);
        } else {
            v = qfw_rescale(a, &ratio, QFW_HALF_AWAY, 0);
        }
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        if (to_width == 8) {
            ((int8_t *)c->to)[i] = (int8_t)v;
        } else {
            ((int16_t *)c->to)[i] = (int16_t)v;
        }
    }
    return saturated;
}

uint32_t qfw_rescale_rows_dsp(const qfw_rescaling *c, const qfw_code_rule *rule)
{
    const int32_t q = rule->qmax;
    if (QFW_HAS_MANY_ROWS && (rule->rounding != QFW_HALF_AWAY || rule->zp != 0 ||
                              rule->qmin != -q || c->from_width == 16 || c->to_width == 32)) {
        return qfw_rescale_rows_scalar(c, rule);
    }
    if (!QFW_HAS_MANY_ROWS) { /* one loop for all widths: a row is short */
        return rescale_row(c, 0, c->from_width, c->to_width, q);
    }
    uint32_t saturated = 0;
    const bool one = !(QFW_HAS_BATCH || QFW_HAS_PANELS) || c->rows == 1; /* of one plan: always */
    if (one || c->from == c->to) {
        for (size_t i = 0; i < c->rows; i++) {
            if (c->from_width == 8) {
                saturated +=
                    c->to_width == 8 ? rescale_row(c, i, 8, 8, q) : rescale_row(c, i, 8, 16, q);
            } else {
                saturated +=
                    c->to_width == 8 ? rescale_row(c, i, 32, 8, q) : rescale_row(c, i, 32, 16, q);
            }
        }
        return saturated;
    }
    for (size_t j = 0; j < c->columns; j++) {
        const void *from = (const uint8_t *)c->from + j * (size_t)(c->from_width / 8);
        void *to = (uint8_t *)c->to + j * (size_t)(c->to_width / 8);
        const qfw_ratio any = {c->ratios.mult[j], (uint8_t)c->ratios.up[j],
                               (uint8_t)c->ratios.down[j], c->ratios.limit[j]};
        dsp_ratio r;
        if (!dsp_takes(any.mult, any.up, any.down, c->from_width, &r) || dsp_ties(&r)) {
            saturated +=
                rescale_lifted(from, c->from_width, to, c->to_width, c->rows, c->columns, &any, q);
        } else if (c->from_width == 8) {
            saturated += c->to_width == 8
                             ? rescale_column(from, 8, to, 8, c->rows, c->columns, &r, q)
                             : rescale_column(from, 8, to, 16, c->rows, c->columns, &r, q);
        } else {
            saturated += c->to_width == 8
                             ? rescale_column(from, 32, to, 8, c->rows, c->columns, &r, q)
                             : rescale_column(from, 32, to, 16, c->rows, c->columns, &r, q);
        }
    }
    return saturated;
}

/* ---- where no code can leave its range ---- */

/* Of x = a << up; plain: half up is half away, and up is 0. */
QFW_ALWAYS_INLINE int32_t code_within(int32_t a, const dsp_ratio *r, const bool plain)
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
QFW_ALWAYS_INLINE void column_within(const int32_t *a, void *to, const int32_t width, size_t rows,
                                     size_t n, const dsp_ratio *of, const bool plain)
{
    const dsp_ratio r = *of;
    for (; rows >= 4; rows -= 4, a += 4 * n) {
        put_code(to, 0, code_within(a[0], &r, plain), width);
        put_code(to, n, code_within(a[n], &r, plain), width);
        put_code(to, 2 * n, code_within(a[2 * n], &r, plain), width);
        put_code(to, 3 * n, code_within(a[3 * n], &r, plain), width);
        to = (uint8_t *)to + 4 * n * (size_t)(width / 8);
    }
    for (size_t i = 0; i < rows * n; i += n) {
        put_code(to, i, code_within(a[i], &r, plain), width);
    }
}

bool qfw_rows_within(const qfw_rescaling *c, const qfw_code_rule *rule, const uint32_t *absmax)
{
    const int32_t q = rule->qmax, width = c->to_width;
    const size_t n = c->columns, rows = c->rows;
    const int32_t *a = c->from;
    uint8_t *to = c->to;
    if (rule->rounding != QFW_HALF_AWAY || rule->zp != 0 || rule->qmin != -q ||
        c->from_width != 32 || (width != 8 && width != 16)) {
        return false;
    }
    for (size_t j = 0; j < n; j++, a++, to += width / 8) {
        const uint32_t up = c->ratios.up[j], down = c->ratios.down[j], most = absmax[j];
        dsp_ratio r;
        const bool plain = dsp_takes(c->ratios.mult[j], up, down, 32, &r) && !dsp_ties(&r);
        if (!plain) { /* x = a << up, by dsp_nearest */
            r.up = up;
            r.shift = down;
            r.half = (int32_t)(UINT32_C(1) << (down - 1));
        }
        if (most > c->ratios.limit[j] || code_within((int32_t)most, &r, plain) > q) {
            return false;
        }
        if (width == 8) {
            plain ? column_within(a, to, 8, rows, n, &r, true)
                  : column_within(a, to, 8, rows, n, &r, false);
        } else {
            plain ? column_within(a, to, 16, rows, n, &r, true)
                  : column_within(a, to, 16, rows, n, &r, false);
        }
    }
    return true;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

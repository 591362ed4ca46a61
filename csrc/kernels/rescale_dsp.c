/* Requantization with a ratio a column on a Cortex-M with the DSP extension: columns one after the
 * other, so that a column's ratio stays in registers. */
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

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

/* Accumulators and scales that go by column, or by element. */
#include "base/layout.h"
#include "base/round.h"
#include "kernels/at_once.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

/* The largest product over q, rounded up, on a device: there a product of words costs less than one of
 * floats. Scales are normal: mantissa and size are moved up to words of 32 bits, so the product has 63
 * or 64, the last eight of which are 0. */
static qfw_num largest_exact(const float *scale, const uint32_t *absmax, ptrdiff_t n, uint32_t q)
{
    uint64_t most = 0;
    int32_t exp = -64; /* below every other */
    for (const float *end = scale + n; scale < end; scale++, absmax++) {
        if (*absmax != 0) {
            const uint32_t bits = qfw_bits_f32(*scale);
            const int up = 31 - qfw_msb64(*absmax);
            uint64_t p = qfw_mul64(*absmax << up, qfw_mul32(bits, 1u << 8) | 0x80000000u);
            int32_t e = (int32_t)(bits >> 23) - up;
            if (p >> 63 == 0) {
                p <<= 1;
                e--;
            }
            if (e > exp || (e == exp && p > most)) {
                most = p;
                exp = e;
            }
        }
    }
    return qfw_num_short_up(most, exp - 158, q);
}

qfw_num qfw_largest_s32_scalar(const float *scale, const uint32_t *most, size_t n)
{
    qfw_num found = {0, 0};
    float about = 0.0f;
    for (size_t i = 0; i < n; i++) {
        const float p = scale[i] * (float)most[i];
        about = p > about ? p : about;
    }
    for (size_t i = 0; i < n; i++) {
        if (most[i] != 0 && scale[i] * (float)most[i] >= about * QFW_NEAR_LARGEST) {
            found = qfw_num_max(found, qfw_num_product(scale[i], most[i]));
        }
    }
    return found;
}

/* Rounding up is monotone, so the largest product is rounded alone. */
qfw_num qfw_known_scale(const qfw_kernels *kernels, const float *scale, const uint32_t *absmax,
                        ptrdiff_t n, uint32_t q)
{
    if (QFW_DIRECT) {
        return largest_exact(scale, absmax, n, q);
    }
    return qfw_num_ratio_up(QFW_K(kernels, largest_s32)(scale, absmax, (size_t)n), 1, q, 24);
}

/* And dst's one scale, codes being at most q. */
static void set_scale(const qfw_kernels *kernels, const qfw_tensor *src, const uint32_t *absmax,
                      uint32_t q, const qfw_tensor *dst)
{
    const qfw_num found = qfw_known_scale(kernels, src->scale, absmax, qfw_scales(&src->layout), q);
    dst->scale[0] = qfw_num_scale_f32(found, qfw_is_pow2(dst->format.pow2));
}

void qfw_find_ratios(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                     uint32_t *ratios)
{
    const size_t columns = (size_t)src->layout.axis;
    QFW_K(kernels, ratios_f32)(src->scale, columns, dst->scale[0], qfw_signed_bits(&dst->format),
                               ratios, columns);
}

/* A tile at a time, where one of the two has other slots than whole bytes or a zero point. */
static uint64_t encode_tiles(const qfw_kernels *kernels, const qfw_tensor *src,
                             const qfw_tensor *dst, const qfw_code_rule *rule, qfw_rescaling c)
{
    const size_t columns = c.columns, rows = c.rows;
    const qfw_ratios all = c.ratios;
    const uint64_t first = c.first;
    uint64_t saturated = 0;
    int32_t m[QFW_TILE];
    c.from = c.to = m;
    c.from_width = c.to_width = 32;
    c.rows = 1;
    for (size_t i = 0; i < rows * columns; i += c.columns) {
        const size_t j = i % columns, left = columns - j;
        const qfw_ratios here = {all.mult + j, all.limit + j, all.up + j, all.down + j};
        c.columns = left < QFW_TILE ? left : QFW_TILE;
        c.ratios = here;
        c.first = first + i;
        qfw_load_codes(src, (ptrdiff_t)i, c.columns, 0, m);
        saturated += QFW_K(kernels, rescale_rows)(&c, rule);
        qfw_store_codes(dst, (ptrdiff_t)i, c.columns, m);
    }
    return saturated;
}

uint64_t qfw_encode_rows(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, const uint32_t *ratios,
                         size_t rows, size_t n)
{
    const qfw_rescaling c = {src->codes,
                             dst->codes,
                             qfw_slot(&src->format),
                             qfw_slot(&dst->format),
                             rows,
                             n,
                             {ratios, ratios + n, ratios + 2 * n, ratios + 3 * n},
                             &how->key,
                             how->first};
    const bool whole = (!QFW_HAS_PACKED || (c.from_width != 0 && c.to_width != 0)) &&
                       !qfw_is_asym(src->format.kind);
    return whole ? QFW_K(kernels, rescale_rows)(&c, rule)
                 : encode_tiles(kernels, src, dst, rule, c);
}

bool qfw_has_columns(const qfw_tensor *src, const qfw_tensor *dst, const qfw_encoding *how,
                     const qfw_convert_hints *hints)
{
    const qfw_layout *l = &src->layout;
    const bool sums = src->format.kind == QFW_SYM && src->format.container == 32;
    const bool one = sums && l->group == 1 && l->inner == 1 && (l->shared != 0 || l->outer == 1) &&
                     qfw_scales(&dst->layout) == 1 && dst->format.kind != QFW_FLOAT32;
    const bool known = how->dynamic == 0 || (dst->format.kind == QFW_SYM && hints->absmax != NULL);
    return hints->ratios != NULL && (!QFW_HAS_ANY_CONVERT || (one && known));
}

qfw_status qfw_convert_columns(const qfw_kernels *kernels, const qfw_tensor *src,
                               const qfw_tensor *dst, const qfw_encoding *how,
                               const qfw_convert_hints *hints, uint64_t *saturated)
{
    const size_t rows = (size_t)qfw_outer_of(&src->layout), columns = (size_t)src->layout.axis;
    const int32_t q = (1 << (dst->format.bits - 1)) - 1;
    qfw_code_rule rule = {(qfw_rounding)how->rounding, 0, -q, q};
    if (QFW_HAS_ASYM) {
        qfw_code_range(&dst->format, &rule.qmin, &rule.qmax);
    }
    qfw_clear_last_byte(dst, qfw_elements(&dst->layout));
    if (how->dynamic != 0) {
        set_scale(kernels, src, hints->absmax, (uint32_t)rule.qmax, dst);
    }
    rule.zp = qfw_is_asym(dst->format.kind) ? dst->zero_point[0] : 0;
    const qfw_finish nothing = {NULL, NULL, false, true, NULL, 0, NULL};
    if (QFW_DIRECT && (!QFW_HAS_MANY_ROWS || rows == 1) &&
        (qfw_codes_of_row(src->codes, columns, &nothing, src->scale, dst, &rule, dst->codes,
                          saturated) ||
         !QFW_HAS_MANY_ROWS)) {
        return QFW_OK;
    }
    if (QFW_DIRECT && QFW_HAS_BATCH && rows > 1 && hints->absmax != NULL &&
        qfw_codes_of_rows(src->codes, rows, columns, src->scale, hints->absmax, dst, &rule)) {
        return QFW_OK;
    }
    qfw_find_ratios(kernels, src, dst, hints->ratios);
    *saturated += qfw_encode_rows(kernels, src, dst, how, &rule, hints->ratios, rows, columns);
    return QFW_OK;
}

bool qfw_has_sums(const qfw_tensor *src, const qfw_tensor *dst, const qfw_encoding *how,
                  const qfw_convert_hints *hints)
{
    if (!QFW_HAS_ANY_CONVERT) {
        return dst->format.kind != QFW_FLOAT32;
    }
    const bool known = how->dynamic == 0 || hints->absmax != NULL;
    return src->format.kind == QFW_SYM && src->format.container == 32 &&
           dst->format.kind == QFW_SYM && qfw_slot(&dst->format) == 8 && known &&
           qfw_scales(&src->layout) == 1 && qfw_scales(&dst->layout) == 1;
}

qfw_status qfw_convert_sums(const qfw_kernels *kernels, const qfw_tensor *src,
                            const qfw_tensor *dst, const qfw_encoding *how,
                            const qfw_convert_hints *hints, uint64_t *saturated)
{
    const int32_t q = (1 << (dst->format.bits - 1)) - 1;
    const qfw_code_rule rule = {(qfw_rounding)how->rounding, 0, -q, q};
    if (how->dynamic != 0) {
        set_scale(kernels, src, hints->absmax, (uint32_t)q, dst);
    }
    const qfw_ratio ratio = qfw_ratio_of(src->scale[0], dst->scale[0], dst->format.bits);
    *saturated += qfw_rescale_known(kernels, src->codes, (size_t)qfw_elements(&src->layout), &ratio,
                                    &rule, &how->key, how->first, hints->absmax, 0, dst->codes);
    return QFW_OK;
}

void qfw_scales_s32_scalar(float s_in, const uint32_t *most, size_t n, uint32_t q, bool pow2,
                           float *scale)
{
    for (size_t i = 0; i < n; i++) {
        scale[i] = most[i] != 0 ? qfw_num_scale_f32(qfw_scale_for(s_in, most[i], q), pow2) : 1.0f;
    }
}

/* What becomes of a at its own scale: a s_in / s_out is within 2^-14 of +-q (docs/numerics.md
 * section 6, point 5) unless that scale was clamped or is a power of two, and then all but the words
 * next to 0 and 2^32 round it to that. */
enum { NEAR = 1 << 18 };

/* All of a tile, if every word and scale is such; no code saturates. Without a branch an element. */
static bool are_sure(const int32_t *a, const float *scale, const uint32_t *u, size_t n,
                     const qfw_code_rule *rule, int8_t *codes)
{
    const uint32_t inside = UINT32_MAX - 2 * NEAR;
    int32_t unsure = 0;
    for (size_t k = 0; k < n; k++) {
        unsure |= !(scale[k] > FLT_MIN && scale[k] < FLT_MAX);
        codes[k] = (int8_t)(a[k] > 0 ? rule->qmax : a[k] < 0 ? rule->qmin : 0);
    }
    for (size_t k = 0; k < n && rule->rounding == QFW_STOCHASTIC; k++) {
        unsure |= qfw_sub32(u[k], NEAR) > inside;
    }
    return unsure == 0;
}

static int32_t single(int32_t a, float s_in, const qfw_tensor *dst, ptrdiff_t i,
                      const qfw_code_rule *rule, uint32_t u)
{
    const uint32_t near = NEAR;
    const float s_out = dst->scale[i];
    const bool sure = rule->rounding != QFW_STOCHASTIC || (u >= near && u <= UINT32_MAX - near);
    if (sure && !qfw_is_pow2(dst->format.pow2) && s_out > FLT_MIN && s_out < FLT_MAX) {
        return a < 0 ? rule->qmin : rule->qmax;
    }
    const qfw_ratio ratio = qfw_ratio_of(s_in, s_out, dst->format.bits);
    return qfw_rescale(a, &ratio, rule->rounding, u);
}

/* Runs of one element. */
static uint64_t encode_singles(const qfw_kernels *kernels, const qfw_tensor *src,
                               const qfw_tensor *dst, const qfw_encoding *how,
                               const qfw_code_rule *rule, ptrdiff_t n)
{
    const int32_t *a = src->codes;
    int8_t *codes = dst->codes;
    uint64_t saturated = 0;
    uint32_t u[QFW_TILE] = {0}, most[QFW_TILE];
    int8_t sure[QFW_TILE];
    const bool quick = !QFW_DIRECT && !qfw_is_pow2(dst->format.pow2) && rule->qmax >= 64;
    const qfw_key *key = rule->rounding == QFW_STOCHASTIC ? &how->key : NULL;
    for (ptrdiff_t i = 0, step; i < n; i += step) {
        step = quick ? (ptrdiff_t)QFW_K(kernels, singles_s8)(
                           a + i, (size_t)(n - i), src->scale[0], (uint32_t)rule->qmax, key,
                           how->first + (uint64_t)i, dst->scale + i, codes + i)
                     : 0;
        if (step > 0) {
            continue;
        }
        step = n - i < QFW_TILE ? n - i : QFW_TILE;
        const size_t count = (size_t)step;
        for (size_t k = 0; k < count; k++) {
            most[k] = qfw_abs32(a[i + (ptrdiff_t)k]);
        }
        QFW_K(kernels, scales_s32)(src->scale[0], most, count, (uint32_t)rule->qmax,
                                   qfw_is_pow2(dst->format.pow2), dst->scale + i);
        if (rule->rounding == QFW_STOCHASTIC) {
            qfw_uniforms(&how->key, how->first + (uint64_t)i, count, u);
        }
        if (!QFW_DIRECT && !qfw_is_pow2(dst->format.pow2) &&
            are_sure(a + i, dst->scale + i, u, count, rule, sure)) {
            memcpy(codes + i, sure, count); /* which may lie over the sums */
            continue;
        }
        for (size_t k = 0; k < count; k++) {
            const ptrdiff_t at = i + (ptrdiff_t)k;
            const int32_t v = a[at] == 0 ? 0 : single(a[at], src->scale[0], dst, at, rule, u[k]);
            const int32_t code = v > rule->qmax ? rule->qmax : v < rule->qmin ? rule->qmin : v;
            saturated += code != v ? 1u : 0u;
            codes[at] = (int8_t)code;
        }
    }
    return saturated;
}

uint64_t qfw_encode_runs(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, ptrdiff_t scales)
{
    const ptrdiff_t n = qfw_run_length(&dst->layout);
    if (QFW_DIRECT || n == 1) {
        return encode_singles(kernels, src, dst, how, rule, scales);
    }
    const int32_t *a = src->codes;
    int8_t *codes = dst->codes;
    uint64_t saturated = 0;
    uint32_t most[QFW_TILE];
    for (ptrdiff_t i = 0; i < scales; i += QFW_TILE) {
        const ptrdiff_t left = scales - i, count = left < QFW_TILE ? left : QFW_TILE;
        for (ptrdiff_t k = 0; k < count; k++) {
            most[k] = QFW_K(kernels, absmax_s32)(a + (i + k) * n, (size_t)n);
        }
        QFW_K(kernels, scales_s32)(src->scale[0], most, (size_t)count, (uint32_t)rule->qmax,
                                   qfw_is_pow2(dst->format.pow2), dst->scale + i);
        for (ptrdiff_t k = 0; k < count; k++) {
            const ptrdiff_t at = (i + k) * n;
            const qfw_ratio ratio =
                qfw_ratio_of(src->scale[0], dst->scale[i + k], qfw_signed_bits(&dst->format));
            saturated += QFW_K(kernels, rescale_s8)(a + at, (size_t)n, &ratio, rule, &how->key,
                                                    how->first + (uint64_t)at, codes + at);
        }
    }
    return saturated;
}

/* Any format to any other: decode a tile, encode a tile (docs/numerics.md section 9). */
#include "base/layout.h"
#include "base/pack.h"
#include "base/random.h"
#include "base/round.h"
#include "kernels/kernels.h"

enum { TILE = 64 };

/* ---- tiles ---- */

/* m[i] = code of element first + i, minus the zero point: |m| < 2^17, or any int32 for an
 * accumulator. */
static void decode(const qfw_tensor *t, int64_t first, size_t n, int64_t scale, int32_t *m)
{
    const bool is_signed = t->format.kind == QFW_SYM;
    switch (t->format.container) {
    case 8:
        for (size_t i = 0; i < n; i++) {
            m[i] = is_signed ? ((const int8_t *)t->codes)[first + (int64_t)i]
                             : ((const uint8_t *)t->codes)[first + (int64_t)i];
        }
        break;
    case 16:
        for (size_t i = 0; i < n; i++) {
            m[i] = is_signed ? ((const int16_t *)t->codes)[first + (int64_t)i]
                             : ((const uint16_t *)t->codes)[first + (int64_t)i];
        }
        break;
    case 32:
        memcpy(m, (const int32_t *)t->codes + first, n * sizeof *m);
        break;
    default:
        qfw_unpack_tile(t->codes, (uint64_t)first, n, t->format.bits, is_signed, m);
        break;
    }
    if (!is_signed) {
        for (size_t i = 0; i < n; i++) {
            m[i] = (m[i] & 0xFFFF) -
                   t->zero_point[scale]; /* an Asym code has 16 bits whatever its container holds */
        }
    }
}

static void store(const qfw_tensor *t, int64_t first, size_t n, const int32_t *codes)
{
    switch (t->format.container) {
    case 8:
        for (size_t i = 0; i < n; i++) {
            ((uint8_t *)t->codes)[first + (int64_t)i] = (uint8_t)((uint32_t)codes[i] & 0xFFu);
        }
        break;
    case 16:
        for (size_t i = 0; i < n; i++) {
            ((uint16_t *)t->codes)[first + (int64_t)i] = (uint16_t)((uint32_t)codes[i] & 0xFFFFu);
        }
        break;
    case 32:
        memcpy((int32_t *)t->codes + first, codes, n * sizeof *codes);
        break;
    default:
        qfw_pack_tile(t->codes, (uint64_t)first, n, t->format.bits, codes);
        break;
    }
}

/* ---- runs: elements with one scale in src and one in dst ---- */

typedef struct {
    const qfw_kernels *kernels;
    const qfw_tensor *src, *dst;
    const qfw_encoding *how;
    int32_t qmin, qmax; /* codes of dst */
} job;

/* The range of a run's values so far: magnitudes of the largest and of the smallest value, each
 * with 0 in it. */
typedef struct {
    qfw_num hi, lo;
} extent;

static qfw_status extend(const job *j, qfw_run run, extent *e)
{
    if (j->src->format.kind == QFW_FLOAT32) {
        int32_t hi = 0, lo = 0;
        j->kernels->extent_f32((const float *)j->src->codes + run.first, (size_t)run.n, &hi, &lo);
        if (hi >= QFW_F32_INF || lo >= QFW_F32_INF) {
            return QFW_E_NONFINITE;
        }
        e->hi = qfw_num_max(e->hi, qfw_num_f32(qfw_from_bits_f32((uint32_t)hi)));
        e->lo = qfw_num_max(e->lo, qfw_num_f32(qfw_from_bits_f32((uint32_t)lo)));
        return QFW_OK;
    }
    int32_t most = 0, least = 0;
    int32_t m[TILE];
    for (int64_t at = 0; at < run.n; at += TILE) {
        const size_t n = run.n - at < TILE ? (size_t)(run.n - at) : TILE;
        decode(j->src, run.first + at, n, run.scale, m);
        for (size_t i = 0; i < n; i++) {
            most = m[i] > most ? m[i] : most;
            least = m[i] < least ? m[i] : least;
        }
    }
    const float s = j->src->scale[run.scale];
    const uint32_t hi = (uint32_t)most, lo = qfw_abs32(least);
    if (j->dst->format.kind == QFW_SYM) { /* one rounding: the scale itself */
        const qfw_num needed = qfw_scale_for(s, hi > lo ? hi : lo, (uint32_t)j->qmax);
        e->hi = qfw_num_max(e->hi, needed);
    } else {
        e->hi = qfw_num_max(e->hi, qfw_scale_for(s, hi, 1));
        e->lo = qfw_num_max(e->lo, qfw_scale_for(s, lo, 1));
    }
    return QFW_OK;
}

/* The scale (and zero point) that the extent asks for. */
static void settle(const job *j, const extent *e, int64_t scale)
{
    const bool pow2 = j->dst->format.pow2 != 0;
    float *out = &j->dst->scale[scale];
    if (j->dst->format.kind == QFW_SYM) {
        const qfw_num top = qfw_num_max(e->hi, e->lo);
        const bool is_scale = j->src->format.kind != QFW_FLOAT32;
        *out = qfw_num_scale_f32(is_scale ? top : qfw_num_ratio_up(top, 1, (uint32_t)j->qmax, 24),
                                 pow2);
        return;
    }
    const qfw_num d = qfw_num_add_up(e->hi, e->lo, 24);
    *out = qfw_num_scale_f32(qfw_num_ratio_up(d, 1, (uint32_t)j->qmax, 24), pow2);
    j->dst->zero_point[scale] =
        (uint16_t)qfw_num_zero_point(e->lo, qfw_num_f32(*out), (uint32_t)j->qmax);
}

static qfw_status check_finite(const job *j, qfw_run run)
{
    const float *x = (const float *)j->src->codes + run.first;
    return qfw_check_finite(j->kernels, x, (size_t)run.n, QFW_F32);
}

/* Codes of a run at the scale number `to`. A range that was found has seen every element; else
 * they are looked at here. */
static qfw_status encode(const job *j, qfw_run run, int64_t to, uint64_t *saturated)
{
    const bool from_float = j->src->format.kind == QFW_FLOAT32,
               sym = j->dst->format.kind == QFW_SYM;
    const float s_out = j->dst->scale[to];
    const qfw_code_rule rule = {(qfw_rounding)j->how->rounding, sym ? 0 : j->dst->zero_point[to],
                                j->qmin, j->qmax};
    qfw_ratio ratio = {0, 0, 0, 0};
    if (from_float && j->how->dynamic == 0) {
        QFW_TRY(check_finite(j, run));
    } else if (!from_float) {
        const int bits = sym ? j->dst->format.bits : j->dst->format.bits + 1;
        ratio = qfw_ratio_of(j->src->scale[run.scale], s_out, bits);
    }
    uint32_t u[TILE];
    int32_t m[TILE];
    for (int64_t at = 0; at < run.n; at += TILE) {
        const int64_t first = run.first + at;
        const size_t n = run.n - at < TILE ? (size_t)(run.n - at) : TILE;
        if (rule.rounding == QFW_STOCHASTIC) {
            qfw_uniforms(&j->how->key, (uint64_t)first, n, u);
        }
        if (from_float) {
            const float *x = (const float *)j->src->codes + first;
            *saturated += j->kernels->quotient_f32(x, u, n, s_out, &rule, m);
        } else {
            decode(j->src, first, n, run.scale, m);
            *saturated += j->kernels->rescale_s32(m, u, n, &ratio, &rule, m);
        }
        store(j->dst, first, n, m);
    }
    return QFW_OK;
}

/* ---- whole tensors ---- */

/* The part of `run` that starts at `at` and has one scale in src. */
static qfw_run source_run(const job *j, qfw_run run, int64_t at)
{
    const int64_t left = run.n - at;
    qfw_run part = {run.first + at, left, 0};
    if (j->src->format.kind != QFW_FLOAT32) {
        part = qfw_run_at(&j->src->layout, run.first + at);
        part.n = part.n < left ? part.n : left;
    }
    return part;
}

static qfw_status encode_scale(const job *j, int64_t scale, uint64_t *saturated)
{
    const int64_t runs = qfw_runs_per_scale(&j->dst->layout);
    if (j->how->dynamic != 0) {
        extent e = {{0, 0}, {0, 0}};
        for (int64_t r = 0; r < runs; r++) {
            const qfw_run run = qfw_run_of(&j->dst->layout, scale, r);
            for (int64_t at = 0; at < run.n;) {
                const qfw_run part = source_run(j, run, at);
                QFW_TRY(extend(j, part, &e));
                at += part.n;
            }
        }
        settle(j, &e, scale);
    }
    for (int64_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&j->dst->layout, scale, r);
        for (int64_t at = 0; at < run.n;) {
            const qfw_run part = source_run(j, run, at);
            QFW_TRY(encode(j, part, scale, saturated));
            at += part.n;
        }
    }
    return QFW_OK;
}

static qfw_status to_float(const qfw_tensor *src, float *y, int64_t scales)
{
    const int64_t runs = qfw_runs_per_scale(&src->layout);
    int32_t m[TILE];
    for (int64_t scale = 0; scale < scales; scale++) {
        const float s = src->scale[scale];
        for (int64_t r = 0; r < runs; r++) {
            const qfw_run run = qfw_run_of(&src->layout, scale, r);
            for (int64_t at = 0; at < run.n; at += TILE) {
                const size_t n = run.n - at < TILE ? (size_t)(run.n - at) : TILE;
                decode(src, run.first + at, n, scale, m);
                for (size_t i = 0; i < n; i++) {
                    y[run.first + at + (int64_t)i] = qfw_product_f32(m[i], s);
                }
            }
        }
    }
    return QFW_OK;
}

static qfw_status check_scales(const qfw_tensor *t, int64_t scales)
{
    for (int64_t i = 0; i < scales; i++) {
        if (!qfw_is_scale_f32(t->scale[i]) ||
            (t->format.pow2 != 0 && (qfw_bits_f32(t->scale[i]) & 0x7FFFFFu) != 0)) {
            return QFW_E_SCALE;
        }
        if (t->format.kind == QFW_ASYM && t->zero_point[i] >> t->format.bits != 0) {
            return QFW_E_ZERO_POINT;
        }
    }
    return QFW_OK;
}

static qfw_status check_tensor(const qfw_tensor *t, bool has_scales, int64_t *elements,
                               int64_t *scales)
{
    QFW_TRY(qfw_format_check(&t->format));
    QFW_TRY(qfw_layout_check(&t->layout, elements, scales));
    if (*elements > 0 && t->codes == NULL) {
        return QFW_E_NULL;
    }
    if (t->format.kind == QFW_FLOAT32) {
        return QFW_OK;
    }
    if (*scales > 0 &&
        (t->scale == NULL || (t->format.kind == QFW_ASYM && t->zero_point == NULL))) {
        return QFW_E_NULL;
    }
    return has_scales ? check_scales(t, *scales) : QFW_OK;
}

/* Rows of floats to plain int8 have a kernel of their own. */
static bool has_row_kernel(const qfw_tensor *src, const qfw_tensor *dst)
{
    const qfw_format *f = &dst->format;
    return src->format.kind == QFW_FLOAT32 && f->kind == QFW_SYM &&
           (f->container == 8 || (f->container == 0 && f->bits == 8)) &&
           (dst->layout.shared == 0 || dst->layout.outer == 1);
}

static qfw_status convert_rows(const job *j, uint64_t *saturated)
{
    const qfw_layout *l = &j->dst->layout;
    const int64_t row = l->axis * l->inner, groups = qfw_groups(l);
    for (int64_t o = 0; o < l->outer; o++) {
        const qfw_row_encoding how = {(uint32_t)j->qmax,
                                      j->how->dynamic != 0,
                                      j->dst->format.pow2 != 0,
                                      (qfw_rounding)j->how->rounding,
                                      &j->how->key,
                                      (uint64_t)(o * row)};
        QFW_TRY(j->kernels->quantize_s8((const float *)j->src->codes + o * row, (size_t)row,
                                        (size_t)qfw_run_length(l), &how, j->dst->scale + o * groups,
                                        (int8_t *)j->dst->codes + o * row, saturated));
    }
    return QFW_OK;
}

qfw_status qfw_convert(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                       const qfw_encoding *how, uint64_t *saturated)
{
    if (kernels == NULL || src == NULL || dst == NULL || how == NULL || saturated == NULL) {
        return QFW_E_NULL;
    }
    int64_t n_in = 0, n_out = 0, scales_in = 0, scales = 0;
    QFW_TRY(check_tensor(src, true, &n_in, &scales_in));
    QFW_TRY(check_tensor(dst, how->dynamic == 0, &n_out, &scales));
    if (n_in != n_out) {
        return QFW_E_SIZE;
    }
    const bool accumulator = dst->format.kind == QFW_SYM && dst->format.bits == 32;
    if (accumulator || how->rounding < QFW_HALF_AWAY || how->rounding > QFW_STOCHASTIC) {
        return QFW_E_KIND; /* nothing is quantized to 32 bits: an accumulator is made by adding */
    }
    *saturated = 0;
    if (dst->format.kind == QFW_FLOAT32) {
        if (src->format.kind != QFW_FLOAT32) {
            return to_float(src, dst->codes, scales_in);
        }
        QFW_TRY(qfw_check_finite(kernels, src->codes, (size_t)n_in, QFW_F32));
        memcpy(dst->codes, src->codes, (size_t)n_in * sizeof(float));
        return QFW_OK;
    }
    const int32_t qmax = dst->format.kind == QFW_SYM ? (1 << (dst->format.bits - 1)) - 1
                                                     : (1 << dst->format.bits) - 1;
    const job j = {kernels, src, dst, how, dst->format.kind == QFW_SYM ? -qmax : 0, qmax};
    if (n_in > 0 && has_row_kernel(src, dst)) {
        return convert_rows(&j, saturated);
    }
    if (dst->format.container == 0 && n_in > 0) { /* the bits after the last code */
        ((uint8_t *)dst->codes)[(n_in * dst->format.bits - 1) / 8] = 0;
    }
    for (int64_t i = 0; i < scales; i++) {
        QFW_TRY(encode_scale(&j, i, saturated));
    }
    return QFW_OK;
}

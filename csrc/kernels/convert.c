/* Any format to any other: decode a tile, encode a tile (docs/numerics.md section 9). */
#include "kernels/convert.h"
#include "base/layout.h"
#include "base/random.h"
#include "base/round.h"
#include "kernels/at_once.h"
#include "kernels/codes.h"

/* ---- runs: elements with one scale in src and one in dst ---- */

typedef struct {
    const qfw_kernels *kernels;
    const qfw_tensor *src, *dst;
    const qfw_encoding *how;
    const qfw_convert_hints *hints;
    int32_t qmin, qmax; /* codes of dst */
} job;

/* What a scale's elements ask for so far. Floats: bit patterns of the largest value and of the
 * largest negated one, at least 0. Integers: as numbers, for Sym the scale itself in hi. */
typedef struct {
    int32_t hi_bits, lo_bits;
    qfw_num hi, lo;
} extent;

/* Whether the source is plain int32: an accumulator. */
static bool has_int32(const job *j)
{
    return j->src->format.kind == QFW_SYM && j->src->format.container == 32;
}

static void extend(const job *j, qfw_run run, extent *e)
{
    if (j->src->format.kind == QFW_FLOAT32) {
        const float *x = (const float *)j->src->codes + run.first;
        QFW_K(j->kernels, extent_f32)(x, (size_t)run.n, &e->hi_bits, &e->lo_bits);
        return;
    }
    const float s = j->src->scale[run.scale];
    if (has_int32(j) && j->dst->format.kind == QFW_SYM) {
        const int32_t *a = (const int32_t *)j->src->codes + run.first;
        const uint32_t size = QFW_K(j->kernels, absmax_s32)(a, (size_t)run.n);
        e->hi = qfw_num_max(e->hi, qfw_scale_for(s, size, (uint32_t)j->qmax));
        return;
    }
    int32_t most = 0, least = 0;
    int32_t m[QFW_TILE];
    for (ptrdiff_t at = 0; at < run.n; at += QFW_TILE) {
        const size_t n = run.n - at < QFW_TILE ? (size_t)(run.n - at) : QFW_TILE;
        qfw_load_codes(j->src, run.first + at, n, run.scale, m);
        for (size_t i = 0; i < n; i++) {
            most = m[i] > most ? m[i] : most;
            least = m[i] < least ? m[i] : least;
        }
    }
    const uint32_t hi = (uint32_t)most, lo = qfw_abs32(least);
    if (j->dst->format.kind == QFW_SYM) { /* one rounding: the scale itself */
        e->hi = qfw_num_max(e->hi, qfw_scale_for(s, hi > lo ? hi : lo, (uint32_t)j->qmax));
    } else {
        e->hi = qfw_num_max(e->hi, qfw_scale_for(s, hi, 1));
        e->lo = qfw_num_max(e->lo, qfw_scale_for(s, lo, 1));
    }
}

/* The scale (and zero point) that the extent asks for. */
static qfw_status settle(const job *j, extent *e, ptrdiff_t scale)
{
    const bool pow2 = qfw_is_pow2(j->dst->format.pow2), sym = j->dst->format.kind == QFW_SYM;
    const uint32_t top = (uint32_t)j->qmax;
    if (e->hi_bits >= QFW_F32_INF || e->lo_bits >= QFW_F32_INF) {
        return QFW_E_NONFINITE;
    }
    qfw_num found = e->hi;
    if (j->src->format.kind == QFW_FLOAT32) {
        e->hi = qfw_num_f32(qfw_from_bits_f32((uint32_t)e->hi_bits));
        e->lo = qfw_num_f32(qfw_from_bits_f32((uint32_t)e->lo_bits));
        found = qfw_num_ratio_up(qfw_num_max(e->hi, e->lo), 1, top, 24);
    }
    if (!sym) {
        found = qfw_num_ratio_up(qfw_num_add_up(e->hi, e->lo, 24), 1, top, 24);
    }
    const float s = qfw_num_scale_f32(found, pow2);
    j->dst->scale[scale] = s;
    if (!sym) {
        j->dst->zero_point[scale] = (uint16_t)qfw_num_zero_point(e->lo, qfw_num_f32(s), top);
    }
    return QFW_OK;
}

static qfw_code_rule rule_of(const job *j, ptrdiff_t to)
{
    const int32_t zp = qfw_is_asym(j->dst->format.kind) ? j->dst->zero_point[to] : 0;
    const qfw_code_rule rule = {(qfw_rounding)j->how->rounding, zp, j->qmin, j->qmax};
    return rule;
}

/* Codes of a run at the scale number `to`. */
static void encode(const job *j, qfw_run run, ptrdiff_t to, uint64_t *saturated)
{
    const bool from_float = j->src->format.kind == QFW_FLOAT32;
    const float s_out = j->dst->scale[to], s_in = from_float ? s_out : j->src->scale[run.scale];
    const qfw_code_rule rule = rule_of(j, to);
    const qfw_ratio ratio = qfw_ratio_of(s_in, s_out, qfw_signed_bits(&j->dst->format));
    if (has_int32(j) && j->dst->format.kind == QFW_SYM && qfw_slot(&j->dst->format) == 8) {
        *saturated +=
            qfw_rescale_known(j->kernels, (const int32_t *)j->src->codes + run.first, (size_t)run.n,
                              &ratio, &rule, &j->how->key, j->how->first + (uint64_t)run.first,
                              j->hints->absmax, run.scale, (int8_t *)j->dst->codes + run.first);
        return;
    }
    uint32_t u[QFW_TILE];
    int32_t m[QFW_TILE];
    for (ptrdiff_t at = 0; at < run.n; at += QFW_TILE) {
        const ptrdiff_t first = run.first + at;
        const size_t n = run.n - at < QFW_TILE ? (size_t)(run.n - at) : QFW_TILE;
        if (rule.rounding == QFW_STOCHASTIC) {
            qfw_uniforms(&j->how->key, j->how->first + (uint64_t)first, n, u);
        }
        if (from_float) {
            const float *x = (const float *)j->src->codes + first;
            *saturated += QFW_K(j->kernels, quotient_f32)(x, u, n, s_out, &rule, m);
        } else {
            qfw_load_codes(j->src, first, n, run.scale, m);
            *saturated += QFW_K(j->kernels, rescale_s32)(m, u, n, &ratio, &rule, m);
        }
        qfw_store_codes(j->dst, first, n, m);
    }
}

enum { GATHER = QFW_TILE, SHORT = 8 };

/* Codes of a scale whose floats lie in many short runs (channels last): gathered, so that the
 * kernel has something to work on. */
static void encode_gathered(const job *j, ptrdiff_t to, uint64_t *saturated)
{
    const qfw_code_rule rule = rule_of(j, to);
    const ptrdiff_t runs = qfw_runs_per_scale(&j->dst->layout);
    const ptrdiff_t each = qfw_run_of(&j->dst->layout, to, 0).n, all = runs * each;
    ptrdiff_t where[GATHER];
    float x[GATHER];
    uint32_t u[GATHER];
    int32_t m[GATHER];
    for (ptrdiff_t at = 0; at < all; at += GATHER) {
        const size_t n = all - at < GATHER ? (size_t)(all - at) : GATHER;
        for (size_t i = 0; i < n; i++) {
            const ptrdiff_t k = at + (ptrdiff_t)i;
            where[i] = qfw_run_of(&j->dst->layout, to, k / each).first + k % each;
            x[i] = ((const float *)j->src->codes)[where[i]];
            if (rule.rounding == QFW_STOCHASTIC) {
                qfw_uniforms(&j->how->key, j->how->first + (uint64_t)where[i], 1, &u[i]);
            }
        }
        *saturated += QFW_K(j->kernels, quotient_f32)(x, u, n, j->dst->scale[to], &rule, m);
        for (size_t i = 0; i < n; i++) {
            qfw_store_codes(j->dst, where[i], 1, &m[i]);
        }
    }
}

/* An accumulator of one scale to int8 in single elements, or in runs, each with its scale. */
static bool has_runs(const job *j, ptrdiff_t elements, ptrdiff_t from, ptrdiff_t scales)
{
    const ptrdiff_t run = qfw_run_length(&j->dst->layout);
    const bool apart = !QFW_DIRECT && scales > 1 && qfw_runs_per_scale(&j->dst->layout) == 1;
    return j->how->dynamic != 0 && from == 1 && scales * run == elements && has_int32(j) &&
           j->dst->format.kind == QFW_SYM && qfw_slot(&j->dst->format) == 8 && (run == 1 || apart);
}

/* ---- whole tensors ---- */

/* The part of `run` that starts at `at` and has one scale in src. */
static qfw_run source_run(const job *j, qfw_run run, ptrdiff_t at)
{
    const ptrdiff_t left = run.n - at;
    qfw_run part = {run.first + at, left, 0};
    if (j->src->format.kind != QFW_FLOAT32) {
        part = qfw_run_at(&j->src->layout, run.first + at);
        part.n = part.n < left ? part.n : left;
    }
    return part;
}

static qfw_status find_scale(const job *j, ptrdiff_t scale)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&j->dst->layout);
    extent e = {0, 0, {0, 0}, {0, 0}};
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&j->dst->layout, scale, r);
        for (ptrdiff_t at = 0; at < run.n;) {
            const qfw_run part = source_run(j, run, at);
            extend(j, part, &e);
            at += part.n;
        }
    }
    return settle(j, &e, scale);
}

static void encode_scale(const job *j, ptrdiff_t scale, uint64_t *saturated)
{
    const bool from_float = j->src->format.kind == QFW_FLOAT32;
    const ptrdiff_t runs = qfw_runs_per_scale(&j->dst->layout);
    if (from_float && runs > 1 && qfw_run_length(&j->dst->layout) < SHORT) {
        encode_gathered(j, scale, saturated);
        return;
    }
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&j->dst->layout, scale, r);
        for (ptrdiff_t at = 0; at < run.n;) {
            const qfw_run part = source_run(j, run, at);
            encode(j, part, scale, saturated);
            at += part.n;
        }
    }
}

static void to_float(const job *j, float *y)
{
    const qfw_layout *l = &j->src->layout;
    const ptrdiff_t row = l->axis * l->inner, length = qfw_run_length(l), groups = qfw_groups(l);
    const bool sums = !QFW_HAS_ANY_CONVERT || has_int32(j);
    int32_t m[QFW_TILE];
    for (ptrdiff_t o = 0, rows = QFW_HAS_LINES ? l->outer : 1; o < rows; o++) {
        if (QFW_DIRECT && sums && (!QFW_HAS_ANY_FLOATS || length == 1)) { /* a scale each */
            const float *scale = j->src->scale + (l->shared != 0 ? 0 : o * groups);
            const int32_t *a = (const int32_t *)j->src->codes + o * row;
            for (ptrdiff_t i = 0; i < row; i++) {
                y[o * row + i] = qfw_product_f32(a[i], scale[i]);
            }
            continue;
        }
        for (ptrdiff_t g = 0; g < groups; g++) {
            const ptrdiff_t scale = (l->shared != 0 ? 0 : o * groups) + g;
            const ptrdiff_t first = o * row + g * length;
            const ptrdiff_t end = o * row + ((g + 1) * length < row ? (g + 1) * length : row);
            for (ptrdiff_t at = first, n; at < end; at += n) {
                n = sums || end - at < QFW_TILE ? end - at : QFW_TILE;
                if (!sums) {
                    qfw_load_codes(j->src, at, (size_t)n, scale, m);
                }
                QFW_K(j->kernels, floats_s32)(sums ? (const int32_t *)j->src->codes + at : m,
                                              (size_t)n, j->src->scale[scale], y + at);
            }
        }
    }
}

static qfw_status check_scales(const qfw_tensor *t, ptrdiff_t scales)
{
    for (ptrdiff_t i = 0; i < scales; i++) {
        if (!qfw_is_scale_f32(t->scale[i]) ||
            (qfw_is_pow2(t->format.pow2) && (qfw_bits_f32(t->scale[i]) & 0x7FFFFFu) != 0)) {
            return QFW_E_SCALE;
        }
        if (qfw_is_asym(t->format.kind) && t->zero_point[i] >> t->format.bits != 0) {
            return QFW_E_ZERO_POINT;
        }
    }
    return QFW_OK;
}

static qfw_status check_tensor(const qfw_tensor *t, bool has_scales, ptrdiff_t *elements,
                               ptrdiff_t *scales)
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
        (t->scale == NULL || (qfw_is_asym(t->format.kind) && t->zero_point == NULL))) {
        return QFW_E_NULL;
    }
    return has_scales ? check_scales(t, *scales) : QFW_OK;
}

static qfw_status encode_all(const job *j, ptrdiff_t elements, ptrdiff_t from, ptrdiff_t scales,
                             uint64_t *saturated)
{
    const qfw_format *f = &j->dst->format;
    qfw_clear_last_byte(j->dst, elements);
    if (has_runs(j, elements, from, scales)) {
        const qfw_code_rule rule = rule_of(j, 0);
        *saturated += qfw_encode_runs(j->kernels, j->src, j->dst, j->how, &rule, scales);
        return QFW_OK;
    }
    const bool known =
        j->how->dynamic != 0 && j->hints->absmax != NULL && f->kind == QFW_SYM && scales == 1;
    for (ptrdiff_t i = 0; i < scales; i++) {
        if (known) {
            const qfw_num found = qfw_known_scale(j->kernels, j->src->scale, j->hints->absmax, from,
                                                  (uint32_t)j->qmax);
            j->dst->scale[0] = qfw_num_scale_f32(found, qfw_is_pow2(f->pow2));
        } else if (j->how->dynamic != 0) {
            QFW_TRY(find_scale(j, i));
        }
        encode_scale(j, i, saturated);
    }
    return QFW_OK;
}

/* What can be wrong with src, dst and how. */
static qfw_status check_job(const qfw_tensor *src, const qfw_tensor *dst, const qfw_encoding *how)
{
    ptrdiff_t n = 0, n_out = 0, scales = 0;
    QFW_TRY(check_tensor(src, true, &n, &scales));
    QFW_TRY(check_tensor(dst, how->dynamic == 0, &n_out, &scales));
    if (n != n_out) {
        return QFW_E_SIZE;
    }
    const bool accumulator = dst->format.kind == QFW_SYM && dst->format.bits == 32;
    const bool rounds = how->rounding >= QFW_HALF_AWAY && how->rounding <= QFW_STOCHASTIC;
    /* nothing is quantized to 32 bits: an accumulator is made by adding */
    return accumulator || !rounds ? QFW_E_KIND : QFW_OK;
}

qfw_status qfw_convert_any(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                           const qfw_encoding *how, const qfw_convert_hints *hints,
                           uint64_t *saturated)
{
    const ptrdiff_t n = qfw_elements(&src->layout), from = qfw_scales(&src->layout);
    const bool from_float = src->format.kind == QFW_FLOAT32;
    const bool to_floats = dst->format.kind == QFW_FLOAT32;
    if (QFW_HAS_ANY_CONVERT && n == 0 && to_floats) {
        return QFW_OK;
    }
    job j = {kernels, src, dst, how, hints, 0, 0};
    if (to_floats && (!QFW_HAS_ANY_CONVERT || !from_float)) {
        to_float(&j, dst->codes);
        return QFW_OK;
    }
    if (!to_floats) {
        qfw_code_range(&dst->format, &j.qmin, &j.qmax);
    }
    /* To find a range is to look at all. */
    if (QFW_HAS_ANY_CONVERT && from_float && (to_floats || how->dynamic == 0)) {
        QFW_TRY(qfw_finite_f32(kernels, src->codes, (size_t)n));
    }
    if (QFW_HAS_ANY_CONVERT && to_floats) {
        memcpy(dst->codes, src->codes, (size_t)n * sizeof(float));
        return QFW_OK;
    }
    return QFW_HAS_ANY_CONVERT ? encode_all(&j, n, from, qfw_scales(&dst->layout), saturated)
                               : QFW_E_KIND;
}

qfw_status qfw_convert(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                       const qfw_encoding *how, uint64_t *saturated)
{
    const qfw_convert_hints none = {NULL, NULL};
    if (!qfw_has_kernels(kernels) || src == NULL || dst == NULL || how == NULL ||
        saturated == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(check_job(src, dst, how));
    return qfw_convert_hinted(kernels, src, dst, how, &none, saturated);
}

/* Products and what follows them. Forward and dX have a row of accumulators for each row of the
 * step; dW is in gradient.c.
 *
 * Places: accumulators, a, b, bias, mask, scratch (5 bytes a column, for the bias).
 * param[0]: 0 forward, acc = a b^T, b having a row for each column of acc; 1 dX, acc = a b.
 * param[1]: terms a chunk; param[2]: the shift of the sum of chunks (docs/numerics.md section 13).
 * param[3]: matrix rows in a row of the step (positions of a sequence).
 * flags: 1 ReLU; 2 b's scales are folded into a. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/engine.h"
#include "kernels/codes.h"

enum { FORWARD = 0, BACK };
enum { RELU = 1, FOLDED = 2 };

/* ---- the sizes of acc = a b ---- */

typedef struct {
    int64_t m, n, k;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const int64_t positions = call->op->param[3] != 0 ? call->op->param[3] : 1;
    const sizes s = {call->rows * positions, call->at[0].row / positions,
                     call->at[1].row / positions};
    return s;
}

static const char *sizes_fault(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const sizes s = sizes_of(call);
    if (acc->plan->rows == QFW_NO_ROWS || a->plan->rows == QFW_NO_ROWS ||
        b->plan->rows != QFW_NO_ROWS || b->n != s.n * s.k || acc->n != s.m * s.n ||
        a->n != s.m * s.k) {
        return "the sizes do not make a product";
    }
    if (qfw_has(call, 3) && (call->at[3].plan->rows != QFW_NO_ROWS || call->at[3].n != s.n)) {
        return "the bias has another size";
    }
    if (qfw_has(call, 4) && (call->at[4].plan->rows == QFW_NO_ROWS || call->at[4].n != acc->n)) {
        return "the mask has another size";
    }
    return call->op->param[0] <= BACK ? NULL : "form";
}

static qfw_gemm gemm_of(const qfw_call *call, int32_t a_width, int32_t b_width)
{
    const sizes s = sizes_of(call);
    const bool back = call->op->param[0] == BACK;
    const size_t n = (size_t)s.n, k = (size_t)s.k;
    const qfw_gemm g = {
        call->at[1].t.codes, call->at[2].t.codes, a_width, b_width, (size_t)s.m, n, k, k, 1,
        back ? n : 1,        back ? 1 : k};
    return g;
}

/* ---- float32 ---- */

const char *qfw_rule_product_f32(const qfw_call *call)
{
    return sizes_fault(call);
}

qfw_status qfw_op_product_f32(const qfw_call *call)
{
    const qfw_gemm g = gemm_of(call, 32, 32);
    const float *bias = qfw_has(call, 3) ? call->at[3].t.codes : NULL;
    float *y = call->at[0].t.codes;
    call->kernels->gemm_f32(&g, y, g.n);
    for (size_t i = 0; i < g.m; i++) {
        float *y_i = y + i * g.n;
        for (size_t j = 0; bias != NULL && j < g.n; j++) {
            y_i[j] += bias[j];
        }
        for (size_t j = 0; (call->op->flags & RELU) != 0 && j < g.n; j++) {
            y_i[j] = y_i[j] > 0.0f ? y_i[j] : 0.0f;
        }
    }
    if (qfw_has(call, 4)) {
        qfw_apply_mask(&call->at[0], &call->at[4], false, 0.0f);
    }
    return QFW_OK;
}

/* ---- integers ---- */

/* Whether accumulators have a scale for each row, for each column. */
static bool scaled_by_row(const qfw_call *call)
{
    return qfw_by_rows(&call->at[1]);
}

static bool scaled_by_column(const qfw_call *call)
{
    const bool folded = (call->op->flags & FOLDED) != 0;
    return qfw_has(call, 3) || (!folded && call->at[2].scales != 1);
}

/* A matrix of rows x columns with a scale for each row, or for each column. */
static bool has_row_scales(const qfw_operand *x, int64_t rows, int64_t columns)
{
    const qfw_layout *l = &x->t.layout;
    const bool along_axis =
        l->outer == 1 && l->axis == rows && l->inner == columns && l->group == 1;
    const bool along_outer =
        l->shared == 0 && l->outer == rows && l->axis * l->inner == columns && l->group >= l->axis;
    return along_axis || along_outer;
}

static bool has_column_scales(const qfw_operand *x, int64_t rows, int64_t columns)
{
    const qfw_layout *l = &x->t.layout;
    return l->shared != 0 && l->outer == rows && l->axis == columns && l->inner == 1 &&
           l->group == 1;
}

static const char *scales_fault(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const sizes s = sizes_of(call);
    const bool folded = (call->op->flags & FOLDED) != 0;
    const bool by_row = scaled_by_row(call), by_column = scaled_by_column(call);
    if (by_row ? !has_row_scales(a, s.m, s.k) : a->plan->rows != QFW_ROWS_AXIS) {
        return "a has more than a scale a row";
    }
    if (!folded && b->scales != 1 &&
        !(call->op->param[0] == FORWARD ? has_row_scales(b, s.n, s.k)
                                        : has_column_scales(b, s.k, s.n))) {
        return "b has scales along the sum";
    }
    const qfw_layout *l = &acc->t.layout;
    const bool matrix = l->outer == s.m && l->axis == s.n && l->inner == 1;
    const bool fits = by_column ? matrix && l->group == 1 && (l->shared == 0) == by_row
                      : by_row  ? matrix && l->group >= l->axis && l->shared == 0
                                : acc->plan->rows == QFW_ROWS_AXIS;
    return fits && (acc->plan->rows == QFW_ROWS_OUTER) == (by_row || by_column)
               ? NULL
               : "the scales of the accumulator";
}

/* chunk * A * B fits an int32, and ceil(K A B / 2^h) + 2^30 for a bias does. */
const char *qfw_headroom_fault(const qfw_operand *a, const qfw_operand *b, int64_t k, bool bias,
                               uint32_t chunk, uint32_t shift)
{
    const uint64_t most = ((UINT64_C(1) << (a->plan->bits - 1)) - 1) *
                          (b == NULL ? 1 : (UINT64_C(1) << (b->plan->bits - 1)) - 1);
    const uint64_t limit = bias ? (1u << 30) - 1 : INT32_MAX;
    const uint64_t all = (uint64_t)k * most; /* < 2^30 * 2^30 */
    if (shift > 31 || chunk < 1 || (uint64_t)chunk * most > INT32_MAX) {
        return "headroom";
    }
    const bool one = chunk >= (uint64_t)k && shift == 0;
    return (one && all <= limit) || (!one && ((all - 1) >> shift) + 1 <= limit) ? NULL : "headroom";
}

const char *qfw_rule_product_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call);
    broken = broken != NULL ? broken : scales_fault(call);
    if (broken == NULL && qfw_has(call, 3) && !qfw_has(call, 5)) {
        broken = "scratch";
    }
    if (broken == NULL && qfw_has(call, 5) && call->at[5].n < 5 * sizes_of(call).n) {
        broken = "scratch";
    }
    return broken != NULL
               ? broken
               : qfw_headroom_fault(&call->at[1], &call->at[2], sizes_of(call).k, qfw_has(call, 3),
                                    call->op->param[1], call->op->param[2]);
}

void qfw_gemm_chunks(const qfw_kernels *kernels, const qfw_gemm *gemm, uint32_t chunk,
                     uint32_t shift, int32_t *out)
{
    if (chunk >= gemm->k && shift == 0) {
        kernels->gemm_s32(gemm, out, gemm->n);
        return;
    }
    int32_t part[QFW_TILE];
    for (size_t i = 0; i < gemm->m; i++) {
        for (size_t j = 0; j < gemm->n; j += QFW_TILE) {
            const size_t n = gemm->n - j < QFW_TILE ? gemm->n - j : QFW_TILE;
            int64_t sum[QFW_TILE] = {0};
            for (size_t p = 0; p < gemm->k; p += chunk) {
                qfw_gemm g = *gemm;
                g.a = (const uint8_t *)g.a + (i * g.a_row + p * g.a_col) * (size_t)(g.a_width / 8);
                g.b = (const uint8_t *)g.b + (p * g.b_row + j * g.b_col) * (size_t)(g.b_width / 8);
                g.m = 1;
                g.n = n;
                g.k = gemm->k - p < chunk ? gemm->k - p : chunk;
                kernels->gemm_s32(&g, part, n);
                for (size_t c = 0; c < n; c++) {
                    sum[c] += part[c];
                }
            }
            for (size_t c = 0; c < n; c++) { /* half away */
                const int64_t half = shift != 0 ? INT64_C(1) << (shift - 1) : 0;
                const int64_t size = ((sum[c] < 0 ? -sum[c] : sum[c]) + half) >> shift;
                out[i * gemm->n + j + c] = (int32_t)(sum[c] < 0 ? -size : size);
            }
        }
    }
}

/* Codes that last were written by the caller and need not keep the bound that the headroom is proved
 * with. Where the slot alone does not keep the whole sum within int32, and below 2^30 for a bias,
 * they are looked at. */
static qfw_status check_codes(const qfw_call *call, const qfw_operand *a, const qfw_operand *b)
{
    const uint64_t k = (uint64_t)sizes_of(call).k;
    const uint64_t most_a = (UINT64_C(1) << (a->plan->bits - 1)) - 1;
    const uint64_t most_b = UINT64_C(1) << (qfw_slot(&b->t.format) - 1);
    const bool free = k * most_a * most_b < UINT64_C(1) << 30;
    if (b->plan->role > QFW_STATE || free) {
        return QFW_OK;
    }
    const int32_t q = (1 << (b->plan->bits - 1)) - 1;
    int32_t m[QFW_TILE], out = 0;
    for (int64_t i = 0; i < b->n; i += QFW_TILE) {
        const size_t n = b->n - i < QFW_TILE ? (size_t)(b->n - i) : QFW_TILE;
        qfw_load_codes(&b->t, i, n, 0, m);
        for (size_t j = 0; j < n; j++) {
            out |= (m[j] < -q) | (m[j] > q);
        }
    }
    return out != 0 ? QFW_E_RANGE : QFW_OK;
}

/* Seeds and shifts of the columns whose sigmas stand at `sigma`, which the shifts then lift. */
static void seed_columns(const qfw_operand *bias, float *sigma, int64_t n, int32_t *seed,
                         uint8_t *shift)
{
    for (int64_t j = 0; j < n; j++) {
        qfw_seed s;
        if (bias->plan->kind == QFW_FLOAT32) {
            const float beta = ((const float *)bias->t.codes)[j];
            const qfw_num v = qfw_num_f32(beta);
            s = qfw_seed_of(beta < 0.0f ? -(int64_t)v.mant : (int64_t)v.mant, v.exp, sigma[j]);
        } else {
            const int64_t scale = qfw_run_at(&bias->t.layout, j).scale;
            const qfw_num v = qfw_num_f32(bias->t.scale[scale]);
            int32_t m;
            qfw_load_codes(&bias->t, j, 1, scale, &m);
            s = qfw_seed_of((int64_t)v.mant * m, v.exp, sigma[j]);
        }
        seed[j] = s.seed;
        shift[j] = s.shift;
        sigma[j] = qfw_scale_lift(sigma[j], s.shift);
    }
}

/* Scales of the accumulators of the rows that share them: one row of scales at `sigma`. */
static void sigmas(const qfw_call *call, float s_a, float *sigma, int64_t n)
{
    const qfw_operand *b = &call->at[2];
    const bool folded = (call->op->flags & FOLDED) != 0;
    for (int64_t j = 0; j < n; j++) {
        const float s_b = folded ? 1.0f : b->t.scale[b->scales == 1 ? 0 : j];
        sigma[j] = qfw_scale_lift(qfw_scale_mul(s_a, s_b), (int32_t)call->op->param[2]);
    }
}

qfw_status qfw_op_product_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const qfw_operand *bias = &call->at[3], *mask = &call->at[4];
    const qfw_gemm g = gemm_of(call, qfw_slot(&a->t.format), qfw_slot(&b->t.format));
    QFW_TRY(check_codes(call, a, b));
    if (qfw_has(call, 3) && bias->plan->kind == QFW_FLOAT32) {
        QFW_TRY(qfw_check_finite(call->kernels, bias->t.codes, (size_t)bias->n, QFW_F32));
    }
    qfw_gemm_chunks(call->kernels, &g, call->op->param[1], call->op->param[2], acc->t.codes);
    memset(acc->absmax, 0, (size_t)acc->scales * sizeof *acc->absmax);
    const sizes all = sizes_of(call);
    const int64_t n = all.n, wide = scaled_by_column(call) ? n : 1;
    const int64_t blocks = scaled_by_row(call) ? all.m : 1;
    const size_t rows = (size_t)(all.m / blocks);
    int32_t *seed = call->at[5].t.codes;
    uint8_t *shift = seed == NULL ? NULL : (uint8_t *)(seed + n);
    for (int64_t i = 0; i < blocks; i++) {
        float *sigma = acc->t.scale + i * wide;
        sigmas(call, a->t.scale[i], sigma, wide);
        qfw_finish f = {NULL, NULL, (call->op->flags & RELU) != 0, wide != 1,
                        NULL, 0,    acc->absmax + i * wide};
        if (qfw_has(call, 3)) {
            seed_columns(bias, sigma, n, seed, shift);
            f.seed = seed;
            f.shift = shift;
        }
        if (qfw_has(call, 4)) {
            const int slot = mask->plan->kind == QFW_FLOAT32 ? 0 : qfw_slot(&mask->t.format);
            const size_t bytes = slot == 0 ? 4 : (size_t)slot / 8;
            f.mask = (const uint8_t *)mask->t.codes + (size_t)(i * n) * bytes * rows;
            f.mask_kind = slot;
        }
        call->kernels->finish_s32((int32_t *)acc->t.codes + i * n * (int64_t)rows, rows, (size_t)n,
                                  &f);
    }
    return QFW_OK;
}

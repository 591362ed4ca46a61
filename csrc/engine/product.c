/* Products and what follows them. Forward and dX have a row of accumulators for each row of the
 * step; dW is in gradient.c.
 *
 * Places: accumulators, a, b, bias, mask, scratch (5 bytes a column, for the bias). Or codes, and
 * then 6 has the accumulators of some rows at a time, 7 the gain of a hindsight range, and scratch
 * begins with the columns' ratios (16 bytes each). With a window, a is an image (forward) or what
 * was made of one, and scratch ends with patches of it.
 * param[0]: 0 forward, acc = a b^T, b having a row for each column of acc; 1 dX, acc = a b.
 * param[1]: terms a chunk; param[2]: the shift of the sum of chunks (docs/numerics.md section 13).
 * param[3]: matrix rows in a row of the step (positions of a sequence).
 * flags: 1 ReLU; 2 b's scales are folded into a; 4 a scale for each column, whatever b has. */
#include "engine/product.h"
#include "base/layout.h"
#include "base/round.h"
#include "engine/convolve.h"
#include "kernels/codes.h"
#include "kernels/seeds.h"

static qfw_convolution convolution_of(const qfw_call *call, int32_t a_width, int32_t b_width)
{
    const ptrdiff_t at = patches_at(call);
    const bool room = qfw_has(call, 5) && call->at[5].n > at;
    const qfw_convolution c = {call->kernels,
                               call->window,
                               call->at[1].t.codes,
                               call->at[2].t.codes,
                               a_width,
                               b_width,
                               a_channels_of(call),
                               sizes_of(call).n,
                               qfw_param_size(call->op, 1),
                               call->op->param[2],
                               room ? (uint8_t *)call->at[5].t.codes + at : NULL,
                               room ? call->at[5].n - at : 0};
    return c;
}

/* Sums of the matrix rows first .. first + m - 1. */
void qfw_product_sums(const qfw_call *call, ptrdiff_t first, ptrdiff_t m, void *out)
{
    const qfw_operand *a = &call->at[1], *b = &call->at[2];
    const bool floats = QFW_HAS_F32_PRODUCT && a->plan->kind == QFW_FLOAT32,
               back = call->op->param[0] == BACK;
    const int32_t a_width = floats ? 32 : qfw_slot(&a->t.format);
    const int32_t b_width = floats ? 32 : qfw_slot(&b->t.format);
    if (qfw_has_window(call)) {
        const qfw_convolution c = convolution_of(call, a_width, b_width);
        if (back) {
            qfw_convolve_back(&c, first, m, out);
        } else {
            qfw_convolve(&c, first, m, out);
        }
        return;
    }
    const size_t n = (size_t)sizes_of(call).n, k = (size_t)sizes_of(call).k;
    const qfw_gemm g = {(const uint8_t *)a->t.codes + (size_t)first * k * (size_t)(a_width / 8),
                        b->t.codes,
                        a_width,
                        b_width,
                        (size_t)m,
                        n,
                        k,
                        k,
                        1,
                        back ? n : 1,
                        back ? 1 : k,
                        0};
    if (floats) {
        QFW_K(call->kernels, gemm_f32)(&g, out, n);
    } else {
        qfw_gemm_chunks(call->kernels, &g, call->op->param[1], call->op->param[2], out, n);
    }
}

/* ---- float32 ---- */

qfw_status qfw_op_product_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const float *bias = qfw_has(call, 3) ? call->at[3].t.codes : NULL;
    float *y = call->at[0].t.codes;
    qfw_product_sums(call, 0, s.m, y);
    for (ptrdiff_t i = 0; i < s.m; i++) {
        float *y_i = y + i * s.n;
        for (ptrdiff_t j = 0; bias != NULL && j < s.n; j++) {
            y_i[j] += bias[j];
        }
        for (ptrdiff_t j = 0; (call->op->flags & RELU) != 0 && j < s.n; j++) {
            y_i[j] = y_i[j] > 0.0f ? y_i[j] : 0.0f;
        }
    }
    if (qfw_has(call, 4)) {
        const qfw_gate above_zero = {false, 0.0f, 0.0f};
        qfw_apply_mask(call->kernels, &call->at[0], &call->at[4], &above_zero);
    }
    return QFW_OK;
}

/* ---- integers ---- */

void qfw_gemm_chunks(const qfw_kernels *kernels, const qfw_gemm *gemm, uint32_t chunk,
                     uint32_t shift, int32_t *out, size_t out_row)
{
    if (!QFW_HAS_SPLIT || (chunk >= gemm->k && shift == 0)) {
        QFW_K(kernels, gemm_s32)(gemm, out, out_row);
        return;
    }
    enum { TALL = QFW_TALL }; /* rows that share what is read of b */
    int32_t part[TALL * QFW_TILE];
    for (size_t i = 0; i < gemm->m; i += TALL) {
        const size_t m = gemm->m - i < TALL ? gemm->m - i : TALL;
        for (size_t j = 0; j < gemm->n; j += QFW_TILE) {
            const size_t n = gemm->n - j < QFW_TILE ? gemm->n - j : QFW_TILE;
            int64_t sum[TALL * QFW_TILE] = {0};
            for (size_t p = 0; p < gemm->k; p += chunk) {
                qfw_gemm g = *gemm;
                g.a = (const uint8_t *)g.a + (i * g.a_row + p * g.a_col) * (size_t)(g.a_width / 8);
                g.b = (const uint8_t *)g.b + (p * g.b_row + j * g.b_col) * (size_t)(g.b_width / 8);
                g.m = m;
                g.n = n;
                g.k = gemm->k - p < chunk ? gemm->k - p : chunk;
                QFW_K(kernels, gemm_s32)(&g, part, n);
                for (size_t c = 0; c < m * n; c++) {
                    sum[c] += part[c];
                }
            }
            for (size_t c = 0; c < m * n; c++) {
                out[(i + c / n) * out_row + j + c % n] = qfw_brought_back(sum[c], shift);
            }
        }
    }
}

void qfw_line_products(const qfw_operand *e, const qfw_operand *x, ptrdiff_t out, ptrdiff_t terms,
                       ptrdiff_t first, ptrdiff_t n, uint32_t shift, int32_t *sum)
{
    int32_t a[QFW_TILE], b[QFW_TILE];
    for (ptrdiff_t j = 0; j < n; j += QFW_TILE) {
        const size_t wide = n - j < QFW_TILE ? (size_t)(n - j) : QFW_TILE;
        int64_t total[QFW_TILE] = {0};
        for (ptrdiff_t i = 0; i < terms; i++) {
            qfw_load_codes(&e->t, i * out + first + j, wide, 0, a);
            qfw_load_codes(&x->t, i * out + first + j, wide, 0, b);
            for (size_t k = 0; k < wide; k++) {
                total[k] += (int64_t)a[k] * b[k];
            }
        }
        for (size_t k = 0; k < wide; k++) {
            sum[j + (ptrdiff_t)k] = qfw_brought_back(total[k], shift);
        }
    }
}

bool qfw_codes_in_range(const qfw_operand *x)
{
    const int32_t q = (1 << (x->plan->bits - 1)) - 1;
    int32_t m[QFW_TILE], out = 0;
    for (ptrdiff_t i = 0; i < x->n; i += QFW_TILE) {
        const size_t n = x->n - i < QFW_TILE ? (size_t)(x->n - i) : QFW_TILE;
        qfw_load_codes(&x->t, i, n, 0, m);
        for (size_t j = 0; j < n; j++) {
            out |= (m[j] < -q) | (m[j] > q);
        }
    }
    return out == 0;
}

/* Codes that last were written by the caller and need not keep the bound that the headroom is proved
 * with. Where the slot alone does not keep the whole sum within int32, and below 2^30 for a bias,
 * they are looked at. */
qfw_status qfw_product_codes(const qfw_call *call, int32_t a_bits)
{
    const qfw_operand *b = &call->at[2];
    const uint64_t k = (uint64_t)sizes_of(call).k;
    const uint64_t most_a = (UINT64_C(1) << (a_bits - 1)) - 1;
    const uint64_t most_b = UINT64_C(1) << (qfw_slot(&b->t.format) - 1);
    const bool free = !QFW_HAS_FAR_CODES || k * most_a * most_b < UINT64_C(1) << 30;
    return b->plan->role > QFW_STATE || free || qfw_codes_in_range(b) ? QFW_OK : QFW_E_RANGE;
}

qfw_status qfw_product_bias(const qfw_call *call)
{
    const qfw_operand *bias = &call->at[3];
    if (!QFW_HAS_F32_BIAS || !qfw_has(call, 3) || bias->plan->kind != QFW_FLOAT32) {
        return QFW_OK;
    }
    return qfw_finite_f32(call->kernels, bias->t.codes, (size_t)bias->n);
}

/* The bias of column j as value * 2^exp. */
static int64_t bias_at(const qfw_operand *bias, ptrdiff_t j, int32_t *exp)
{
    if (QFW_HAS_F32_BIAS && bias->plan->kind == QFW_FLOAT32) {
        const float beta = ((const float *)bias->t.codes)[j];
        const qfw_num v = qfw_num_f32(beta);
        *exp = v.exp;
        return beta < 0.0f ? -(int64_t)v.mant : (int64_t)v.mant;
    }
    const ptrdiff_t scale = bias->scales == 1 ? 0 : qfw_run_at(&bias->t.layout, j).scale;
    const qfw_num v = qfw_num_f32(bias->t.scale[scale]);
    int32_t m; /* the code, minus the zero point of its scale */
    qfw_load_codes(&bias->t, j, 1, scale, &m);
    *exp = v.exp;
    return (int64_t)v.mant * m;
}

/* Seeds and shifts of the columns whose sigmas stand at `sigma`, which the shifts then lift. */
void qfw_seed_columns(const qfw_kernels *kernels, const qfw_operand *bias, float *sigma,
                      ptrdiff_t n, int32_t *seed, uint8_t *shift)
{
    const int slot = qfw_slot(&bias->t.format);
    if (bias->plan->kind == QFW_SYM && bias->scales == 1 && (slot == 8 || slot == 16)) {
        int32_t codes[QFW_TILE];
        for (ptrdiff_t j = 0; j < n; j += QFW_TILE) {
            const size_t count = n - j < QFW_TILE ? (size_t)(n - j) : QFW_TILE;
            qfw_load_codes(&bias->t, j, count, 0, codes);
            QFW_K(kernels, seeds_s32)(codes, bias->t.scale[0], count, sigma + j, seed + j,
                                      shift + j);
        }
        return;
    }
    for (ptrdiff_t j = 0; j < n; j++) {
        int32_t exp;
        const int64_t value = bias_at(bias, j, &exp);
        const qfw_seed s = qfw_seed_of(value, exp, sigma[j]);
        seed[j] = s.seed;
        shift[j] = s.shift;
        sigma[j] = s.shift != 0 ? qfw_scale_lift(sigma[j], s.shift) : sigma[j];
    }
}

/* Scales of the accumulators of the rows that share them: one row of scales at `sigma`. */
static void sigmas(const qfw_call *call, float s_a, float *sigma, ptrdiff_t n)
{
    const qfw_operand *b = &call->at[2];
    const bool folded = (call->op->flags & FOLDED) != 0;
    const int32_t shift = (int32_t)call->op->param[2];
    if (QFW_HAS_ANY_FINISH && !folded && b->scales != 1) {
        qfw_scales_mul(s_a, b->t.scale, (size_t)n, sigma);
    } else { /* clamped as a product is */
        const float one = qfw_scale_mul(s_a, folded ? 1.0f : b->t.scale[0]);
        for (ptrdiff_t j = 0; j < n; j++) {
            sigma[j] = one;
        }
    }
    for (ptrdiff_t j = 0; QFW_HAS_SPLIT && shift != 0 && j < n; j++) {
        sigma[j] = qfw_scale_lift(sigma[j], shift);
    }
}

/* Where kernels are called by name and the bias has one scale and codes of int16: both in one loop. */
static bool is_seeded(const qfw_call *call)
{
    const qfw_operand *bias = &call->at[3];
    const bool fits =
        !QFW_HAS_ANY_FINISH || (bias->plan->kind == QFW_SYM && bias->scales == 1 &&
                                qfw_slot(&bias->t.format) == 16 && call->op->param[2] == 0);
    return QFW_DIRECT && qfw_has(call, 3) && fits;
}

/* Whether a bias always is that of a row whose sums are there, without a mask. */
enum { ONLY_ROWS = QFW_HAS_SEEDED_ROW && !QFW_HAS_ANY_FINISH };

/* And one row whose sums are there, without a mask: what follows it too. */
static bool is_row(const qfw_call *call)
{
    const bool alone = ONLY_ROWS || (sizes_of(call).m == 1 && !qfw_has(call, 4));
    return QFW_HAS_SEEDED_ROW && alone && is_seeded(call);
}

static qfw_seeded row_of(const qfw_call *call, float *sigma, void *acc)
{
    const qfw_operand *a = &call->at[1], *b = &call->at[2], *bias = &call->at[3];
    const bool folded = (call->op->flags & FOLDED) != 0;
    qfw_seeded row;
    row.by = b->t.scale;
    row.m = bias->t.codes;
    row.acc = acc;
    row.sigma = sigma;
    row.s = bias->t.scale[0];
    row.a = a->t.scale[0];
    for (ptrdiff_t j = 0; (folded || b->scales == 1) && j < sizes_of(call).n; j++) {
        sigma[j] = folded ? 1.0f : b->t.scale[0];
        row.by = sigma;
    }
    return row;
}

bool qfw_product_coded(const qfw_call *call, const qfw_tensor *sums, uint64_t *saturated)
{
    const qfw_operand *out = &call->at[0];
    const bool bytes = out->plan->kind == QFW_SYM && out->plan->bits == 8 &&
                       qfw_slot(&out->t.format) == 8 && out->plan->rounding == QFW_HALF_AWAY;
    if (!QFW_HAS_SEEDED_CODES || !bytes || qfw_has(call, 7) || !is_row(call)) {
        return false;
    }
    qfw_seeded row = row_of(call, sums->scale, sums->codes);
    *saturated += qfw_seeded_codes(&row, (size_t)sizes_of(call).n, (call->op->flags & RELU) != 0,
                                   out->t.scale[0], out->t.codes);
    return true;
}

/* What follows the sums of rows that share scales, a's being s_a. Sets sigma. */
qfw_finish qfw_product_finish(const qfw_call *call, float s_a, float *sigma, uint32_t *absmax)
{
    const qfw_operand *b = &call->at[2], *bias = &call->at[3];
    const ptrdiff_t n = sizes_of(call).n, wide = !ONLY_ROWS && scaled_by_column(call) ? n : 1;
    qfw_finish f = {NULL, NULL, (call->op->flags & RELU) != 0, wide != 1, NULL, 0, absmax};
    if (ONLY_ROWS || !qfw_has(call, 3)) {
        sigmas(call, s_a, sigma, wide);
        return f;
    }
    uint8_t *scratch = (uint8_t *)call->at[5].t.codes + ratio_bytes(call);
    int32_t *seed = (int32_t *)(void *)scratch;
    uint8_t *shift = scratch + 4 * n;
    if (is_seeded(call)) {
        const bool folded = (call->op->flags & FOLDED) != 0;
        const float one = 1.0f;
        qfw_seeded_scales(bias->t.codes, bias->t.scale[0], s_a, folded ? &one : b->t.scale,
                          folded || b->scales == 1 ? 0 : 1, (size_t)n, sigma, seed, shift);
    } else {
        sigmas(call, s_a, sigma, n);
        qfw_seed_columns(call->kernels, bias, sigma, n, seed, shift);
    }
    f.seed = seed;
    f.shift = shift;
    return f;
}

/* The mask of the matrix rows from `row` on. */
void qfw_product_mask(const qfw_call *call, ptrdiff_t row, qfw_finish *f)
{
    const qfw_operand *mask = &call->at[4];
    if (qfw_has(call, 4)) {
        const int slot = mask->plan->kind == QFW_FLOAT32 ? 0 : qfw_slot(&mask->t.format);
        const ptrdiff_t bytes = slot == 0 ? 4 : slot / 8;
        f->mask = (const uint8_t *)mask->t.codes + row * sizes_of(call).n * bytes;
        f->mask_kind = slot;
    }
}

/* What follows all sums, which are there: a function of its own, whose frame is not on the stack
 * while they are made. */
QFW_NOINLINE QFW_SMALL static void follow(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0];
    const sizes all = sizes_of(call);
    const ptrdiff_t wide = !ONLY_ROWS && scaled_by_column(call) ? all.n : 1;
    const ptrdiff_t blocks = scaled_by_row(call) ? all.m : 1, rows = all.m / blocks;
    if (is_row(call)) {
        qfw_seeded row = row_of(call, acc->t.scale, acc->t.codes);
        qfw_seeded_sums(&row, (size_t)all.n, (call->op->flags & RELU) != 0, acc->absmax);
        return;
    }
    for (ptrdiff_t i = 0, n = ONLY_ROWS ? 1 : acc->scales; i < n; i++) {
        acc->absmax[i] = 0;
    }
    for (ptrdiff_t i = 0; i < blocks; i++) {
        qfw_finish f = qfw_product_finish(call, call->at[1].t.scale[i], acc->t.scale + i * wide,
                                          acc->absmax + i * wide);
        qfw_product_mask(call, i * rows, &f);
        QFW_K(call->kernels, finish_s32)((int32_t *)acc->t.codes + i * rows * all.n, (size_t)rows,
                                         (size_t)all.n, &f);
    }
}

qfw_status qfw_op_product_s32(const qfw_call *call)
{
    QFW_TRY(qfw_product_codes(call, call->at[1].plan->bits));
    QFW_TRY(qfw_product_bias(call));
    if (requantizes(call)) {
        return qfw_product_requantize(call);
    }
    qfw_product_sums(call, 0, sizes_of(call).m, call->at[0].t.codes);
    follow(call);
    return QFW_OK;
}

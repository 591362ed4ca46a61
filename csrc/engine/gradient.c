/* Gradients: sums over the rows of a step, a tile of outputs at a time.
 *
 * gradient_s32:         gradient, error, wire, accumulators of a tile, scales of a sum
 * gradient_update_s32:  parameter, error, wire, accumulators of a tile, state, flags
 * Without a wire it is the bias's: the sum of the error itself.
 * param[9]: terms a chunk; param[10]: shift; param[11]: matrix rows in a row of the step.
 * flags: 4 the wire's scales are folded into the error; 32 the gradient is the sum of error * wire
 * element by element, i = 1 and the wire being of the error's size. */
#include "engine/engine.h"
#include "kernels/codes.h"

enum { FOLDED = 4, DIAGONAL = 32 };
enum { CHUNK = 9, SHIFT = 10, POSITIONS = 11 };

/* Rows of the gradient's matrix, elements of a row, terms of a sum. */
typedef struct {
    int64_t out, in, terms;
} sizes;

static bool is_diagonal(const qfw_call *call)
{
    return (call->op->flags & DIAGONAL) != 0;
}

static sizes sizes_of(const qfw_call *call)
{
    const int64_t positions = call->op->param[POSITIONS] != 0 ? call->op->param[POSITIONS] : 1;
    const int64_t in = qfw_has(call, 2) && !is_diagonal(call) ? call->at[2].row / positions : 1;
    const sizes s = {call->at[1].row / positions, in, call->rows * positions};
    return s;
}

static const char *sizes_fault(const qfw_call *call)
{
    const qfw_operand *whole = &call->at[0], *e = &call->at[1], *x = &call->at[2];
    const sizes s = sizes_of(call);
    const bool rows = e->plan->rows != QFW_NO_ROWS && whole->plan->rows == QFW_NO_ROWS &&
                      (!qfw_has(call, 2) || x->plan->rows != QFW_NO_ROWS);
    const bool fit = e->n == s.out * s.terms && whole->n == s.out * s.in && s.terms < INT32_MAX &&
                     (!qfw_has(call, 2) || x->n == (is_diagonal(call) ? e->n : s.in * s.terms)) &&
                     (!is_diagonal(call) || qfw_has(call, 2));
    return rows && fit ? NULL : "the sizes do not make a gradient";
}

/* Rows a tile of accumulators has room for. */
static int64_t tile_of(const qfw_call *call)
{
    return call->at[3].n / sizes_of(call).in;
}

static const char *fault(const qfw_call *call)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[3];
    const char *broken = sizes_fault(call);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    const bool folded = (call->op->flags & FOLDED) != 0;
    if (e->plan->rows != QFW_ROWS_AXIS ||
        (qfw_has(call, 2) && !folded && x->plan->rows != QFW_ROWS_AXIS)) {
        return "scales along the sum";
    }
    const int64_t rows = tile_of(call);
    if (tile->plan->rows != QFW_NO_ROWS || tile->scales != 1 || tile->t.layout.axis != tile->n ||
        tile->n != rows * s.in || rows < 1 || rows > s.out) {
        return "tile";
    }
    const uint32_t chunk = call->op->param[CHUNK], shift = call->op->param[SHIFT];
    if (!qfw_has(call, 2) && (folded || chunk < (uint64_t)s.terms || shift != 0)) {
        return "headroom"; /* a sum of errors is made at once */
    }
    if (is_diagonal(call) && folded) {
        return "scales along the sum";
    }
    return qfw_headroom_fault(e, qfw_has(call, 2) ? x : NULL, s.terms, false, chunk, shift);
}

static void sum_rows(const qfw_operand *e, sizes s, int64_t first, int64_t n, int32_t *sum)
{
    int32_t m[QFW_TILE];
    for (int64_t j = 0; j < n; j += QFW_TILE) {
        const size_t wide = n - j < QFW_TILE ? (size_t)(n - j) : QFW_TILE;
        memset(sum + j, 0, wide * sizeof *sum);
        for (int64_t i = 0; i < s.terms; i++) {
            qfw_load_codes(&e->t, i * s.out + first + j, wide, 0, m);
            for (size_t k = 0; k < wide; k++) {
                sum[j + (int64_t)k] += m[k];
            }
        }
    }
}

/* Sums of products of the columns first .. first + n - 1, brought back by one rounded shift. */
static void sum_products(const qfw_operand *e, const qfw_operand *x, sizes s, int64_t first,
                         int64_t n, uint32_t shift, int32_t *sum)
{
    int32_t a[QFW_TILE], b[QFW_TILE];
    for (int64_t j = 0; j < n; j += QFW_TILE) {
        const size_t wide = n - j < QFW_TILE ? (size_t)(n - j) : QFW_TILE;
        int64_t total[QFW_TILE] = {0};
        for (int64_t i = 0; i < s.terms; i++) {
            qfw_load_codes(&e->t, i * s.out + first + j, wide, 0, a);
            qfw_load_codes(&x->t, i * s.out + first + j, wide, 0, b);
            for (size_t k = 0; k < wide; k++) {
                total[k] += (int64_t)a[k] * b[k];
            }
        }
        for (size_t k = 0; k < wide; k++) {
            sum[j + (int64_t)k] = qfw_brought_back(total[k], shift);
        }
    }
}

/* Rows first .. first + n - 1 of the gradient as accumulators; the view of them. */
static qfw_tensor accumulate(const qfw_call *call, int64_t first, int64_t n)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[3];
    const sizes s = sizes_of(call);
    qfw_tensor t = tile->t;
    t.layout.axis = t.layout.group = n * s.in;
    if (!qfw_has(call, 2)) {
        sum_rows(e, s, first, n, t.codes);
        t.scale[0] = e->t.scale[0];
        return t;
    }
    if (is_diagonal(call)) {
        sum_products(e, x, s, first, n, call->op->param[SHIFT], t.codes);
    } else {
        const int32_t width = qfw_slot(&e->t.format);
        const qfw_gemm g = {(const uint8_t *)e->t.codes + first * (width / 8),
                            x->t.codes,
                            width,
                            qfw_slot(&x->t.format),
                            (size_t)n,
                            (size_t)s.in,
                            (size_t)s.terms,
                            1,
                            (size_t)s.out,
                            (size_t)s.in,
                            1};
        qfw_gemm_chunks(call->kernels, &g, call->op->param[CHUNK], call->op->param[SHIFT], t.codes);
    }
    const bool folded = (call->op->flags & FOLDED) != 0;
    const float sigma = folded ? e->t.scale[0] : qfw_scale_mul(e->t.scale[0], x->t.scale[0]);
    t.scale[0] = qfw_scale_lift(sigma, (int32_t)call->op->param[SHIFT]);
    return t;
}

/* ---- stored ---- */

const char *qfw_rule_gradient_s32(const qfw_call *call)
{
    const char *broken = fault(call);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    const qfw_operand *grad = &call->at[0];
    const bool joins = qfw_may_add(call) && qfw_joins(grad);
    if (joins && (!qfw_has(call, 4) || call->at[4].n < 4 * grad->scales * tile_of(call) / s.out)) {
        return "scratch";
    }
    return qfw_has_rows_of(grad, s.in, tile_of(call)) ? NULL : "tile";
}

qfw_status qfw_op_gradient_s32(const qfw_call *call)
{
    const qfw_operand *grad = &call->at[0];
    const sizes s = sizes_of(call);
    const int64_t tile = tile_of(call);
    float *joint = call->at[4].t.codes;
    for (int64_t o = 0; o < s.out; o += tile) {
        const int64_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, o, n);
        qfw_operand part = *grad, from = call->at[3];
        from.t = acc;
        from.absmax = NULL; /* of the whole tile, which is not what the scales are for */
        part.t = qfw_rows_of(grad, s.in, o, n);
        part.scales = part.scales * n / s.out;
        QFW_TRY(qfw_adds(call) ? qfw_add_part(call, &from, &part, (uint64_t)(o * s.in), joint)
                               : qfw_encode_part(call, &from, &part, (uint64_t)(o * s.in)));
    }
    return QFW_OK;
}

/* ---- fused ---- */

const char *qfw_rule_gradient_update_s32(const qfw_call *call)
{
    const char *broken = fault(call);
    broken =
        broken != NULL ? broken : qfw_update_fault(call, &call->at[0], &call->at[4], &call->at[5]);
    if (broken != NULL) {
        return broken;
    }
    const int64_t in = sizes_of(call).in, tile = tile_of(call);
    const bool parts = qfw_has_rows_of(&call->at[0], in, tile) &&
                       (!qfw_has(call, 4) || qfw_has_rows_of(&call->at[4], in, tile));
    return parts ? NULL : "tile";
}

qfw_status qfw_op_gradient_update_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const int64_t tile = tile_of(call);
    for (int64_t o = 0; o < s.out; o += tile) {
        const int64_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, o, n);
        QFW_TRY(qfw_move_range(call, &call->at[0], &call->at[4], &acc, 1.0f, o * s.in, n * s.in,
                               call->at[5].t.codes, o + n == s.out));
    }
    return QFW_OK;
}

static qfw_moments moments_of(const qfw_call *call)
{
    const qfw_moments of = {&call->at[0], &call->at[4], &call->at[5], &call->at[6]};
    return of;
}

const char *qfw_rule_gradient_adamw_s32(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    const char *broken = fault(call);
    broken = broken != NULL ? broken : qfw_adamw_fault(call, &of);
    if (broken != NULL) {
        return broken;
    }
    const int64_t in = sizes_of(call).in, tile = tile_of(call);
    const bool parts = qfw_has_rows_of(of.param, in, tile) &&
                       qfw_has_rows_of(of.average, in, tile) &&
                       qfw_has_rows_of(of.square, in, tile);
    return parts ? NULL : "tile";
}

qfw_status qfw_op_gradient_adamw_s32(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    const sizes s = sizes_of(call);
    const int64_t tile = tile_of(call);
    for (int64_t o = 0; o < s.out; o += tile) {
        const int64_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, o, n);
        qfw_adamw_range(call, &of, &acc, 1.0f, o * s.in, n * s.in, o + n == s.out);
    }
    return QFW_OK;
}

/* ---- float32: gradient, error, wire, sums of a tile ---- */

const char *qfw_rule_gradient_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call);
    if (broken != NULL || (!qfw_has(call, 3) && !qfw_may_add(call))) {
        return broken;
    }
    const int64_t in = sizes_of(call).in, n = call->at[3].n;
    const bool whole = qfw_has(call, 3) && call->at[3].plan->rows == QFW_NO_ROWS && n % in == 0;
    return whole && n <= call->at[0].n ? NULL : "tile";
}

/* Rows first .. first + n - 1 of the gradient. */
static void sum_f32(const qfw_call *call, int64_t first, int64_t n, float *sum)
{
    const sizes s = sizes_of(call);
    const size_t out = (size_t)s.out, in = (size_t)s.in, terms = (size_t)s.terms, rows = (size_t)n;
    const float *e = (const float *)call->at[1].t.codes + first;
    const float *x = qfw_has(call, 2) ? (const float *)call->at[2].t.codes + first : NULL;
    if (qfw_has(call, 2) && !is_diagonal(call)) {
        const qfw_gemm g = {e, call->at[2].t.codes, 32, 32, rows, in, terms, 1, out, in, 1};
        call->kernels->gemm_f32(&g, sum, in);
        return;
    }
    memset(sum, 0, rows * sizeof *sum);
    for (size_t i = 0; i < terms; i++) {
        for (size_t j = 0; j < rows; j++) {
            sum[j] += x != NULL ? e[i * out + j] * x[i * out + j] : e[i * out + j];
        }
    }
}

qfw_status qfw_op_gradient_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    float *grad = call->at[0].t.codes, *sum = call->at[3].t.codes;
    if (!qfw_adds(call)) {
        sum_f32(call, 0, s.out, grad);
        return QFW_OK;
    }
    const int64_t tile = tile_of(call);
    for (int64_t o = 0; o < s.out; o += tile) {
        const int64_t n = s.out - o < tile ? s.out - o : tile;
        sum_f32(call, o, n, sum);
        for (int64_t i = 0; i < n * s.in; i++) {
            grad[o * s.in + i] += sum[i];
        }
    }
    return QFW_OK;
}

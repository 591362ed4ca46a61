/* Gradients: sums over the rows of a step, a tile of outputs at a time.
 *
 * gradient_s32:         gradient, error, wire, accumulators of a tile
 * gradient_update_s32:  parameter, error, wire, accumulators of a tile, state, flags
 * Without a wire it is the bias's: the sum of the error itself.
 * param[9]: terms a chunk; param[10]: shift. flags: 4 the wire's scales are folded into the error. */
#include "engine/engine.h"
#include "kernels/codes.h"

enum { FOLDED = 4 };
enum { CHUNK = 9, SHIFT = 10 };

/* Rows of the gradient's matrix, elements of a row, rows a tile. */
typedef struct {
    int64_t out, in, tile;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const int64_t in = qfw_has(call, 2) ? call->at[2].row : 1;
    const sizes s = {call->at[1].row, in, call->at[3].n / in};
    return s;
}

static const char *fault(const qfw_call *call, const qfw_operand *whole)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[3];
    const sizes s = sizes_of(call);
    if (e->plan->rows == QFW_NO_ROWS || whole->plan->rows != QFW_NO_ROWS ||
        whole->n != s.out * s.in || (qfw_has(call, 2) && x->plan->rows == QFW_NO_ROWS)) {
        return "the sizes do not make a gradient";
    }
    const bool folded = (call->op->flags & FOLDED) != 0;
    if (qfw_by_rows(e) || e->scales != 1 ||
        (qfw_has(call, 2) && !folded && (qfw_by_rows(x) || x->scales != 1))) {
        return "scales along the sum";
    }
    if (tile->plan->rows != QFW_NO_ROWS || tile->scales != 1 || tile->n != s.tile * s.in ||
        s.tile < 1 || s.tile > s.out) {
        return "tile";
    }
    return qfw_headroom_fault(e, qfw_has(call, 2) ? x : NULL, call->batch, false,
                              call->op->param[CHUNK], call->op->param[SHIFT]);
}

static void sum_rows(const qfw_operand *e, int64_t first, int64_t n, uint32_t rows, int32_t *sum)
{
    int32_t m[QFW_TILE];
    for (int64_t j = 0; j < n; j += QFW_TILE) {
        const size_t wide = n - j < QFW_TILE ? (size_t)(n - j) : QFW_TILE;
        memset(sum + j, 0, wide * sizeof *sum);
        for (uint32_t i = 0; i < rows; i++) {
            qfw_load_codes(&e->t, i * e->row + first + j, wide, 0, m);
            for (size_t k = 0; k < wide; k++) {
                sum[j + (int64_t)k] += m[k];
            }
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
        sum_rows(e, first, n, call->rows, t.codes);
        t.scale[0] = e->t.scale[0];
        return t;
    }
    const int32_t width = qfw_slot(&e->t.format);
    const qfw_gemm g = {(const uint8_t *)e->t.codes + first * (width / 8),
                        x->t.codes,
                        width,
                        qfw_slot(&x->t.format),
                        (size_t)n,
                        (size_t)s.in,
                        call->rows,
                        1,
                        (size_t)s.out,
                        (size_t)s.in,
                        1};
    qfw_gemm_chunks(call->kernels, &g, call->op->param[CHUNK], call->op->param[SHIFT], t.codes);
    const bool folded = (call->op->flags & FOLDED) != 0;
    const float sigma = folded ? e->t.scale[0] : qfw_scale_mul(e->t.scale[0], x->t.scale[0]);
    t.scale[0] = qfw_scale_lift(sigma, (int32_t)call->op->param[SHIFT]);
    return t;
}

/* ---- stored ---- */

const char *qfw_rule_gradient_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const char *broken = fault(call, &call->at[0]);
    return broken != NULL ? broken : qfw_has_rows_of(&call->at[0], s.in, s.tile) ? NULL : "tile";
}

qfw_status qfw_op_gradient_s32(const qfw_call *call)
{
    const qfw_operand *grad = &call->at[0];
    const sizes s = sizes_of(call);
    for (int64_t o = 0; o < s.out; o += s.tile) {
        const int64_t n = s.out - o < s.tile ? s.out - o : s.tile;
        const qfw_tensor acc = accumulate(call, o, n);
        qfw_operand part = *grad, from = call->at[3];
        from.t = acc;
        from.absmax = NULL; /* of the whole tile, which is not what the scales are for */
        part.t = qfw_rows_of(grad, s.in, o, n);
        part.scales = part.scales * n / s.out;
        QFW_TRY(qfw_encode_part(call, &from, &part, (uint64_t)(o * s.in)));
    }
    return QFW_OK;
}

/* ---- fused ---- */

const char *qfw_rule_gradient_update_s32(const qfw_call *call)
{
    const char *broken = fault(call, &call->at[0]);
    broken =
        broken != NULL ? broken : qfw_update_fault(call, &call->at[0], &call->at[4], &call->at[5]);
    const sizes s = sizes_of(call);
    const bool parts = qfw_has_rows_of(&call->at[0], s.in, s.tile) &&
                       (!qfw_has(call, 4) || qfw_has_rows_of(&call->at[4], s.in, s.tile));
    return broken != NULL ? broken : parts ? NULL : "tile";
}

qfw_status qfw_op_gradient_update_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    for (int64_t o = 0; o < s.out; o += s.tile) {
        const int64_t n = s.out - o < s.tile ? s.out - o : s.tile;
        const qfw_tensor acc = accumulate(call, o, n);
        QFW_TRY(qfw_move_range(call, &call->at[0], &call->at[4], &acc, o * s.in, n * s.in,
                               call->at[5].t.codes, o + n == s.out));
    }
    return QFW_OK;
}

/* ---- float32: gradient, error, wire ---- */

const char *qfw_rule_gradient_f32(const qfw_call *call)
{
    const qfw_operand *grad = &call->at[0], *e = &call->at[1], *x = &call->at[2];
    const bool rows = grad->plan->rows == QFW_NO_ROWS && e->plan->rows != QFW_NO_ROWS &&
                      (!qfw_has(call, 2) || x->plan->rows != QFW_NO_ROWS);
    return rows && grad->n == e->row * (qfw_has(call, 2) ? x->row : 1)
               ? NULL
               : "the sizes do not make a gradient";
}

qfw_status qfw_op_gradient_f32(const qfw_call *call)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2];
    float *sum = call->at[0].t.codes;
    const size_t out = (size_t)e->row;
    if (qfw_has(call, 2)) {
        const size_t in = (size_t)x->row;
        const qfw_gemm g = {e->t.codes, x->t.codes, 32, 32, out, in, call->rows, 1, out, in, 1};
        call->kernels->gemm_f32(&g, sum, in);
        return QFW_OK;
    }
    memset(sum, 0, out * sizeof *sum);
    for (uint32_t i = 0; i < call->rows; i++) {
        const float *e_i = (const float *)e->t.codes + i * out;
        for (size_t j = 0; j < out; j++) {
            sum[j] += e_i[j];
        }
    }
    return QFW_OK;
}

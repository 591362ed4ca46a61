/* Values that meet: their sum, or side by side (docs/numerics.md section 33). And what moves codes
 * without changing one: transpose, part.
 *
 * join_s32, join_f32: sums, then one to seven operands.
 * param[0]: 0 they are added; else the positions of a row at each of which they lie side by side. */
#include "engine/join.h"
#include "base/round.h"
#include "engine/rescale.h"
#include "kernels/codes.h"

enum { OPERANDS = QFW_OP_TENSORS - 1 };

static int operands_of(const qfw_call *call)
{
    int n = 1;
    while (n < OPERANDS && qfw_has(call, n + 1)) {
        n++;
    }
    return n;
}

static const char *sizes_fault(const qfw_call *call)
{
    const ptrdiff_t positions = qfw_param_size(call->op, 0);
    const int operands = operands_of(call);
    ptrdiff_t row = 0;
    for (int i = 1; i <= OPERANDS; i++) {
        const qfw_operand *x = &call->at[i];
        if (qfw_has(call, i) != (i <= operands)) {
            return "a gap between operands";
        }
        if (i > operands) {
            continue;
        }
        if (x->plan->rows == QFW_NO_ROWS || (positions != 0 && x->row % positions != 0)) {
            return "the sizes differ";
        }
        if (positions == 0 && x->n != call->at[0].n) {
            return "the sizes differ";
        }
        row += x->row;
    }
    const bool fits = positions == 0 || row == call->at[0].row;
    return fits && call->at[0].plan->rows != QFW_NO_ROWS ? NULL : "the sizes differ";
}

const char *qfw_rule_join_f32(const qfw_call *call)
{
    return sizes_fault(call);
}

const char *qfw_rule_join_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call);
    for (int i = 0; i <= operands_of(call) && broken == NULL; i++) {
        broken = call->at[i].plan->rows != QFW_ROWS_AXIS ? "more than one scale" : NULL;
    }
    return broken;
}

/* Where operand i goes: pieces of so many elements, each `row` after the one before it. */
typedef struct {
    ptrdiff_t pieces, n, from, row;
} place;

static place place_of(const qfw_call *call, int i)
{
    const ptrdiff_t positions = qfw_positions_of(call->op, 0);
    place p = {call->rows * positions, call->at[i].row / positions, 0, call->at[0].row / positions};
    for (int k = 1; k < i && call->op->param[0] != 0; k++) {
        p.from += call->at[k].row / positions;
    }
    return p;
}

qfw_status qfw_op_join_f32(const qfw_call *call)
{
    float *y = call->at[0].t.codes;
    for (int i = 1; i <= operands_of(call); i++) {
        const place p = place_of(call, i);
        const float *x = call->at[i].t.codes;
        const bool adds = i > 1 && call->op->param[0] == 0;
        for (ptrdiff_t k = 0; k < p.pieces; k++) {
            float *to = y + k * p.row + p.from;
            for (ptrdiff_t j = 0; j < p.n; j++, x++) {
                to[j] = adds ? to[j] + *x : *x;
            }
        }
    }
    return QFW_OK;
}

/* The largest scale of operands that have a range, 27 - bits more bits than the widest of them. */
static float common_scale(const qfw_call *call)
{
    int32_t bits = 2;
    float most = 0.0f;
    for (int i = 1; i <= operands_of(call); i++) {
        const qfw_operand *x = &call->at[i];
        const float s = x->t.scale[0];
        bits = x->plan->bits > bits ? x->plan->bits : bits;
        most = s > most && !qfw_has_no_range(x, 0) ? s : most;
    }
    return most > 0.0f ? qfw_scale_lift(most, bits - 27) : 1.0f;
}

/* |v| < 2^26 for each operand: the sum of seven is an int32. */
qfw_status qfw_op_join_s32(const qfw_call *call)
{
    enum { MOST = (1 << (QFW_JOIN_BITS - 1)) - 1 };
    const qfw_operand *acc = &call->at[0];
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -MOST, MOST};
    const float scale = common_scale(call);
    int32_t m[QFW_TILE];
    if (QFW_DIRECT && call->op->param[0] == 0 &&
        qfw_join_directly(call, operands_of(call), scale)) {
        acc->t.scale[0] = scale;
        return QFW_OK;
    }
    for (int i = 1; i <= operands_of(call); i++) {
        const place p = place_of(call, i);
        const qfw_ratio ratio = qfw_ratio_of(call->at[i].t.scale[0], scale, QFW_JOIN_BITS);
        const bool adds = i > 1 && call->op->param[0] == 0;
        for (ptrdiff_t k = 0; k < p.pieces; k++) {
            int32_t *to = (int32_t *)acc->t.codes + k * p.row + p.from;
            for (ptrdiff_t j = 0; j < p.n; j += QFW_TILE) {
                const size_t n = p.n - j < QFW_TILE ? (size_t)(p.n - j) : QFW_TILE;
                qfw_load_codes(&call->at[i].t, k * p.n + j, n, 0, m);
                (void)QFW_K(call->kernels, rescale_s32)(m, NULL, n, &ratio, &rule, m);
                for (size_t q = 0; q < n; q++) {
                    to[j + (ptrdiff_t)q] = adds ? to[j + (ptrdiff_t)q] + m[q] : m[q];
                }
            }
        }
    }
    acc->t.scale[0] = scale;
    acc->absmax[0] = QFW_K(call->kernels, absmax_s32)(acc->t.codes, (size_t)acc->n);
    return QFW_OK;
}

/* ---- codes in other places: their scales carry over ---- */

/* Bytes of an element; 0 if it has no whole ones. */
static ptrdiff_t slot_of(const qfw_operand *x)
{
    return x->plan->kind == QFW_FLOAT32 ? 4 : qfw_slot(&x->t.format) / 8;
}

const char *qfw_alike_fault(const qfw_operand *a, const qfw_operand *b)
{
    const qfw_plan_tensor *p = a->plan, *q = b->plan;
    const bool same = p->kind == q->kind && p->bits == q->bits && p->pow2 == q->pow2 &&
                      p->range == q->range && QFW_LIMIT(p) == QFW_LIMIT(q) &&
                      p->container == q->container;
    const bool one = p->kind == QFW_FLOAT32 ? p->rows != QFW_NO_ROWS && q->rows != QFW_NO_ROWS
                                            : p->rows == QFW_ROWS_AXIS && q->rows == QFW_ROWS_AXIS;
    return !same || slot_of(a) == 0 ? "the formats differ" : one ? NULL : "more than one scale";
}

static void carry(const qfw_call *call)
{
    if (call->at[0].scales > 0) {
        call->at[0].t.scale[0] = call->at[1].t.scale[0];
    }
}

/* transpose: each of the matrices param[0] x param[1] that a row is made of. */
const char *qfw_rule_transpose(const qfw_call *call)
{
    const uint64_t size = (uint64_t)call->op->param[0] * call->op->param[1];
    if (call->at[0].n != call->at[1].n || size == 0 || (uint64_t)call->at[1].row % size != 0) {
        return "the sizes differ";
    }
    return qfw_alike_fault(&call->at[0], &call->at[1]);
}

qfw_status qfw_op_transpose(const qfw_call *call)
{
    const ptrdiff_t high = qfw_param_size(call->op, 0), wide = qfw_param_size(call->op, 1);
    const ptrdiff_t bytes = slot_of(&call->at[0]);
    const uint8_t *x = call->at[1].t.codes;
    uint8_t *y = call->at[0].t.codes;
    for (ptrdiff_t i = 0; i < call->at[0].n; i += high * wide) {
        for (ptrdiff_t r = 0; r < high; r++) {
            for (ptrdiff_t c = 0; c < wide; c++) {
                memcpy(y + (i + c * high + r) * bytes, x + (i + r * wide + c) * bytes,
                       (size_t)bytes);
            }
        }
    }
    carry(call);
    return QFW_OK;
}

/* part: of each of the param[0] pieces of a row, the elements from param[1] on. */
const char *qfw_rule_part(const qfw_call *call)
{
    const ptrdiff_t pieces = qfw_param_size(call->op, 0), from = qfw_param_size(call->op, 1);
    if (pieces == 0 || call->at[0].row % pieces != 0 || call->at[1].row % pieces != 0 ||
        call->at[1].row / pieces - from < call->at[0].row / pieces) {
        return "the sizes differ";
    }
    return qfw_alike_fault(&call->at[0], &call->at[1]);
}

qfw_status qfw_op_part(const qfw_call *call)
{
    const ptrdiff_t pieces = qfw_param_size(call->op, 0), bytes = slot_of(&call->at[0]);
    const ptrdiff_t n = call->at[0].row / pieces * bytes, row = call->at[1].row / pieces * bytes;
    const uint8_t *x = (const uint8_t *)call->at[1].t.codes + qfw_param_size(call->op, 1) * bytes;
    uint8_t *y = call->at[0].t.codes;
    for (ptrdiff_t i = 0; i < call->rows * pieces; i++) {
        memcpy(y + i * n, x + i * row, (size_t)n);
    }
    carry(call);
    return QFW_OK;
}

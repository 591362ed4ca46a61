/* Where a plan's tensors lie, and whether that can be. */
#include "engine/check.h"

qfw_status qfw_refuse(const qfw_plan_view *v, int32_t op, int32_t tensor, const char *field)
{
    v->fault->op = op;
    v->fault->tensor = tensor;
    v->fault->field = field;
    return QFW_E_PLAN;
}

typedef struct {
    uint64_t from, to;
} extent;

enum { EXTENTS = 4 };

/* The stretches of its space that a tensor takes: codes, scales, zero points, absmax. */
static void extents_of(const qfw_operand *x, extent e[EXTENTS])
{
    const qfw_plan_tensor *p = x->plan;
    const uint64_t scales = (uint64_t)x->scales;
    const uint64_t sizes[EXTENTS] = {qfw_codes_bytes(x), 4 * scales,
                                     p->kind == QFW_ASYM ? 2 * scales : 0,
                                     p->bits == 32 ? 4 * scales : 0};
    const uint32_t at[EXTENTS] = {p->codes, p->scale, p->zero_point, p->absmax};
    for (int i = 0; i < EXTENTS; i++) {
        e[i].from = at[i];
        e[i].to = at[i] + sizes[i];
    }
}

static bool meet(extent a, extent b)
{
    return a.from < b.to && b.from < a.to;
}

bool qfw_overlap(const qfw_operand *a, const qfw_operand *b)
{
    extent ea[EXTENTS], eb[EXTENTS];
    if (a->plan->space != b->plan->space) {
        return false;
    }
    if (a->plan->space == QFW_IO) {
        return a->plan->codes == b->plan->codes;
    }
    extents_of(a, ea);
    extents_of(b, eb);
    for (int i = 0; i < EXTENTS; i++) {
        for (int k = 0; k < EXTENTS; k++) {
            if (meet(ea[i], eb[k])) {
                return true;
            }
        }
    }
    return false;
}

bool qfw_over_codes(const qfw_operand *a, const qfw_operand *b)
{
    extent ea[EXTENTS], eb[EXTENTS];
    extents_of(a, ea);
    extents_of(b, eb);
    for (int i = 0; i < EXTENTS; i++) {
        for (int k = 1; k < EXTENTS; k++) {
            if (meet(ea[i], eb[k])) {
                return false;
            }
        }
    }
    return a->plan->space == QFW_ARENA && b->plan->space == QFW_ARENA;
}

/* Whether its elements are plain numbers or sums, for which nothing is rounded and no range found. */
static bool is_raw(const qfw_plan_tensor *p)
{
    return p->kind == QFW_FLOAT32 || p->kind > QFW_ASYM || p->bits == 32;
}

static const char *format_fault(const qfw_plan_tensor *p)
{
    const qfw_format f = {p->kind, p->bits, p->container, p->pow2};
    if (p->kind <= QFW_ASYM && qfw_format_check(&f) != QFW_OK) {
        return "bits, container";
    }
    if (p->kind == QFW_PICK && (p->bits < 1 || p->bits > 16 || p->container != 0)) {
        return "bits, container";
    }
    if ((p->kind == QFW_INDEX || p->kind == QFW_BYTES) &&
        (p->bits != (p->kind == QFW_INDEX ? 32 : 8) || p->container != p->bits)) {
        return "bits, container";
    }
    if (is_raw(p) && (p->pow2 | p->range | p->rounding) != 0) {
        return "pow2, range, rounding";
    }
    if (p->range == QFW_HINDSIGHT && qfw_lasts(p)) {
        return "range";
    }
    const bool limit =
        p->range == QFW_FIXED ? qfw_is_scale_f32(p->limit) : qfw_bits_f32(p->limit) == 0;
    return limit ? NULL : "limit";
}

static const char *enums_fault(const qfw_plan_tensor *p)
{
    const bool known = p->space <= QFW_IO && p->role <= QFW_SCRATCH && p->kind <= QFW_PICK &&
                       p->pow2 <= 1 && p->range <= QFW_HINDSIGHT && p->rounding <= QFW_STOCHASTIC &&
                       p->rows <= QFW_ROWS_AXIS && p->shared <= 1;
    const bool blank = (p->reserved[0] | p->reserved[1]) == 0;
    if (!known || !blank) {
        return known ? "reserved" : "space, role, kind, pow2, range, rounding, rows, shared";
    }
    const char *field = format_fault(p);
    if (field != NULL) {
        return field;
    }
    const bool split =
        p->rows == QFW_ROWS_AXIS && (p->outer != 1 || p->group != p->axis || p->shared != 0);
    return split || (qfw_lasts(p) && p->rows != QFW_NO_ROWS) ? "rows" : NULL;
}

/* What may be a constant, what may last, what is the caller's. */
static const char *role_fault(const qfw_plan_tensor *p)
{
    const bool sums = p->kind == QFW_SYM && p->bits == 32;
    if ((p->space == QFW_CONST && p->role != QFW_PARAMETER) || (sums && qfw_lasts(p)) ||
        (p->kind == QFW_BYTES && (p->role != QFW_SCRATCH || p->rows != QFW_NO_ROWS)) ||
        (p->kind == QFW_PICK && qfw_lasts(p))) {
        return "role";
    }
    return p->kind == QFW_INDEX && p->space != QFW_IO ? "io" : NULL;
}

static const char *place_fault(const qfw_plan_view *v, const qfw_operand *x)
{
    const qfw_plan_tensor *p = x->plan;
    if (p->space == QFW_IO) {
        const bool plain = p->kind == QFW_FLOAT32 || p->kind == QFW_INDEX;
        const bool transient = p->role == QFW_WIRE && p->rows != QFW_NO_ROWS;
        return plain && transient && p->codes <= 2 && (p->scale | p->zero_point | p->absmax) == 0
                   ? NULL
                   : "io";
    }
    const uint64_t first = p->space == QFW_ARENA ? QFW_NET_BYTES : 0;
    const uint64_t end = p->space == QFW_ARENA ? v->header->arena_bytes : v->header->const_bytes;
    extent e[EXTENTS];
    extents_of(x, e);
    for (int i = 0; i < EXTENTS; i++) {
        const bool empty = e[i].from == e[i].to;
        if (empty ? e[i].from != 0
                  : e[i].from < first || e[i].to > end || e[i].from % QFW_ALIGN != 0) {
            return "offset";
        }
        for (int k = 0; k < i; k++) {
            if (meet(e[i], e[k])) {
                return "offset";
            }
        }
    }
    return NULL;
}

bool qfw_lasts(const qfw_plan_tensor *p)
{
    return p->role <= QFW_STATE;
}

qfw_status qfw_check_tensors(const qfw_plan_view *v)
{
    const uint32_t batch = v->header->batch;
    for (uint32_t i = 0; i < v->header->tensors; i++) {
        const qfw_plan_tensor *p = &v->tensors[i];
        qfw_operand x, y;
        const char *field = enums_fault(p);
        field = field != NULL ? field : role_fault(p);
        if (field == NULL && qfw_measure(p, batch, &x) != QFW_OK) {
            field = "outer, axis, inner, group";
        }
        if (field == NULL && x.n < 1) {
            field = "outer, axis, inner, group";
        }
        field = field != NULL ? field : place_fault(v, &x);
        if (field != NULL) {
            return qfw_refuse(v, -1, (int32_t)i, field);
        }
        for (uint32_t k = 0; k < i; k++) {
            const bool either = qfw_lasts(p) || qfw_lasts(&v->tensors[k]);
            if (either && qfw_measure(&v->tensors[k], batch, &y) == QFW_OK && qfw_overlap(&x, &y)) {
                return qfw_refuse(v, -1, (int32_t)i, "overlaps a tensor that lasts");
            }
        }
    }
    return QFW_OK;
}

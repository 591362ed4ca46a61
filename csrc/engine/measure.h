/* The sizes of a tensor of the plan, for what binds it in a walk and for what looks at it otherwise. */
#ifndef QFW_ENGINE_MEASURE_H
#define QFW_ENGINE_MEASURE_H

#include "engine/engine.h"
#include "kernels/codes.h"

/* Sizes are at most 2^30 each, so that a product of two fits 64 bits. Those of a core's one plan were
 * checked when that was made: no product of them has more than 26, but for a group beyond its axis. */
#if QFW_ANY_PLAN
typedef uint64_t measured_size;
#else
typedef uint32_t measured_size;
#endif

/* Groups of a line; of a plan that was checked no line is empty. */
static inline measured_size measured_groups(const qfw_layout *l)
{
    if (!QFW_ANY_PLAN && !QFW_HAS_GROUPS) {
        return l->group == 1 ? (uint32_t)l->axis : 1;
    }
    const bool one = !QFW_ANY_PLAN && l->group >= l->axis;
    return one ? 1 : (uint32_t)qfw_groups(l);
}

/* All but pointers. */
QFW_INLINE qfw_status qfw_measured(const qfw_plan_tensor *plan, uint32_t rows, qfw_operand *x)
{
    const uint32_t most = QFW_MAX_ELEMENTS;
    const measured_size by_outer = QFW_HAS_BATCH && plan->rows == QFW_ROWS_OUTER ? rows : 1;
    const measured_size by_axis = QFW_HAS_BATCH && plan->rows == QFW_ROWS_AXIS ? rows : 1;
    const measured_size outer = QFW_HAS_OUTER ? QFW_OUTER_OF(plan) * by_outer : 1,
                        axis = plan->axis * by_axis;
    const bool fits = QFW_NARROW_PLAN && !QFW_HAS_BATCH; /* a group beyond its axis too */
    const bool whole = !QFW_ANY_PLAN && !fits && QFW_GROUP_OF(plan) > plan->axis;
    const measured_size group = whole ? most : QFW_GROUP_OF(plan) * by_axis;
    if (QFW_ANY_PLAN && group == 0) {
        return QFW_E_GROUP;
    }
    if (QFW_ANY_PLAN && (outer > most || axis > most || plan->inner > most)) {
        return QFW_E_SIZE;
    }
    x->plan = plan;
    x->t.format.kind = plan->kind;
    x->t.format.bits = plan->bits;
    x->t.format.container = plan->container;
    x->t.format.pow2 = plan->pow2;
    qfw_layout *l = &x->t.layout;
    l->outer = (ptrdiff_t)outer;
    l->axis = (ptrdiff_t)axis;
    l->inner = (ptrdiff_t)plan->inner;
    l->group = (ptrdiff_t)(QFW_ANY_PLAN && group > most ? most : group);
    l->shared = QFW_HAS_SHARED ? plan->shared : 0; /* of one stretch, which are not */
    l->exact = 0;
    const measured_size lines = outer * axis;
    const bool quantized = plan->kind == QFW_SYM || qfw_is_asym(plan->kind);
    const measured_size sets = l->shared != 0 ? 1 : outer;
    const measured_size scales = QFW_ANY_PLAN || quantized ? sets * measured_groups(l) : 0;
    if (QFW_ANY_PLAN && (lines > most || lines * plan->inner > most || scales > most)) {
        return QFW_E_SIZE;
    }
    x->n = (ptrdiff_t)(lines * plan->inner);
    x->row =
        !QFW_HAS_BATCH || plan->rows == QFW_NO_ROWS || rows == 1 ? x->n : x->n / (ptrdiff_t)rows;
    x->scales = quantized ? (ptrdiff_t)scales : 0;
    return QFW_OK;
}

#endif

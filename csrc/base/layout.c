#include "base/layout.h"

static bool product(ptrdiff_t a, ptrdiff_t b, ptrdiff_t *p)
{
    enum { HALF = 4 * sizeof(ptrdiff_t) - 1 };
    const bool small = a >> HALF == 0 && b >> HALF == 0; /* needs no division */
    if (!small && a != 0 && b > PTRDIFF_MAX / a) {
        return false;
    }
    *p = a * b;
    return true;
}

qfw_status qfw_layout_check(const qfw_layout *layout, ptrdiff_t *elements, ptrdiff_t *scales)
{
    if (layout == NULL || elements == NULL || scales == NULL) {
        return QFW_E_NULL;
    }
    if (!QFW_HAS_OUTER && layout->outer != 1) {
        return QFW_E_SIZE;
    }
    if (layout->outer < 0 || layout->axis < 0 || layout->inner < 0) {
        return QFW_E_SIZE;
    }
    if (layout->group <= 0 || (layout->exact != 0 && layout->axis % layout->group != 0)) {
        return QFW_E_GROUP;
    }
    ptrdiff_t row = 0;
    const ptrdiff_t groups = qfw_groups(layout);
    if (!product(layout->axis, layout->inner, &row) || !product(layout->outer, row, elements) ||
        !product(layout->shared != 0 ? 1 : layout->outer, groups, scales)) {
        return QFW_E_SIZE;
    }
    /* Sixteen bytes an element must be addressable: no size below overflows. */
    const uint64_t most = (uint64_t)PTRDIFF_MAX / 16;
    return (uint64_t)*elements > most || (uint64_t)*scales > most ? QFW_E_SIZE : QFW_OK;
}

qfw_run qfw_run_at(const qfw_layout *layout, ptrdiff_t element)
{
    const ptrdiff_t row = layout->axis * layout->inner;
    const ptrdiff_t outer = qfw_outer_of(layout) == 1 ? 0 : element / row,
                    in_row = element - outer * row;
    const ptrdiff_t at = layout->inner == 1 ? in_row : in_row / layout->inner;
    const bool whole = !QFW_HAS_GROUPS || at < layout->group;
    const ptrdiff_t g = layout->group == 1 ? at : whole ? 0 : at / layout->group;
    const ptrdiff_t before = layout->shared != 0 ? 0 : outer * qfw_groups(layout);
    const qfw_run run = {element, qfw_group_end(layout, g) - in_row, before + g};
    return run;
}

qfw_run qfw_run_of(const qfw_layout *layout, ptrdiff_t scale, ptrdiff_t number)
{
    const bool shared = !QFW_HAS_OUTER || layout->shared != 0; /* of one row it does not matter */
    const ptrdiff_t outer = shared ? number : scale / qfw_groups(layout);
    const ptrdiff_t g = shared ? scale : scale % qfw_groups(layout);
    const ptrdiff_t start = g * layout->group * layout->inner;
    const qfw_run run = {outer * layout->axis * layout->inner + start,
                         qfw_group_end(layout, g) - start, scale};
    return run;
}

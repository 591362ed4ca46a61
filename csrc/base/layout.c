#include "base/layout.h"

static bool product(int64_t a, int64_t b, int64_t *p)
{
    if (a != 0 && b > INT64_MAX / a) {
        return false;
    }
    *p = a * b;
    return true;
}

qfw_status qfw_layout_check(const qfw_layout *layout, int64_t *elements, int64_t *scales)
{
    if (layout == NULL || elements == NULL || scales == NULL) {
        return QFW_E_NULL;
    }
    if (layout->outer < 0 || layout->axis < 0 || layout->inner < 0) {
        return QFW_E_SIZE;
    }
    if (layout->group <= 0 || (layout->exact != 0 && layout->axis % layout->group != 0)) {
        return QFW_E_GROUP;
    }
    int64_t row = 0;
    const int64_t groups = qfw_groups(layout);
    if (!product(layout->axis, layout->inner, &row) || !product(layout->outer, row, elements) ||
        !product(layout->shared != 0 ? 1 : layout->outer, groups, scales)) {
        return QFW_E_SIZE;
    }
    /* Sixteen bytes an element must be addressable: no size below overflows. */
    const uint64_t most = (uint64_t)PTRDIFF_MAX / 16;
    return (uint64_t)*elements > most || (uint64_t)*scales > most ? QFW_E_SIZE : QFW_OK;
}

int64_t qfw_runs_per_scale(const qfw_layout *layout)
{
    return layout->shared != 0 ? layout->outer : 1;
}

qfw_run qfw_run_of(const qfw_layout *layout, int64_t scale, int64_t number)
{
    const bool shared = layout->shared != 0;
    const int64_t outer = shared ? number : scale / qfw_groups(layout);
    const int64_t g = shared ? scale : scale % qfw_groups(layout);
    const int64_t start = g * layout->group * layout->inner;
    const qfw_run run = {outer * layout->axis * layout->inner + start,
                         qfw_group_end(layout, g) - start, scale};
    return run;
}

/* Which elements share a scale. */
#ifndef QFW_BASE_LAYOUT_H
#define QFW_BASE_LAYOUT_H

#include "base/config.h"
#include "base/fixed.h"
#include "include/qfw.h"

/* The product of two sizes, or PTRDIFF_MAX where that is more: no size of anything. Half of a
 * desktop's 64 bits are enough for all that a plan says. */
static inline ptrdiff_t qfw_times(ptrdiff_t a, ptrdiff_t b)
{
    const int64_t p = (int64_t)a * b;
    return p < PTRDIFF_MAX ? (ptrdiff_t)p : PTRDIFF_MAX;
}

/* A stretch of consecutive elements with one scale. */
typedef struct {
    ptrdiff_t first, n, scale;
} qfw_run;

/* Rows before the axis. */
static inline ptrdiff_t qfw_outer_of(const qfw_layout *layout)
{
    return QFW_HAS_OUTER ? layout->outer : 1;
}

/* The length of a stretch, but for a row's last one; a group beyond the axis is one stretch. */
static inline ptrdiff_t qfw_run_length(const qfw_layout *layout)
{
    return (layout->group < layout->axis ? layout->group : layout->axis) * layout->inner;
}

/* Groups, so stretches, in a row. Divisions whose result is known are left out here and below: a
 * 64-bit one costs as much as the rest. */
static inline ptrdiff_t qfw_groups(const qfw_layout *layout)
{
    if (!QFW_HAS_GROUPS || layout->group == 1 || layout->axis <= layout->group) {
        return layout->group == 1 ? layout->axis : layout->axis > 0;
    }
    return layout->axis / layout->group + (layout->axis % layout->group != 0);
}

/* Of a layout that was checked. */
static inline ptrdiff_t qfw_elements(const qfw_layout *layout)
{
    return qfw_outer_of(layout) * layout->axis * layout->inner;
}

static inline ptrdiff_t qfw_scales(const qfw_layout *layout)
{
    return (layout->shared != 0 ? 1 : qfw_outer_of(layout)) * qfw_groups(layout);
}

/* Where group g of a row ends, counted from the row's start. */
static inline ptrdiff_t qfw_group_end(const qfw_layout *layout, ptrdiff_t g)
{
    const ptrdiff_t left = layout->axis - g * layout->group;
    return (g * layout->group + (left < layout->group ? left : layout->group)) * layout->inner;
}

/* The stretch that `element` (< elements) lies in, from `element` on. */
qfw_run qfw_run_at(const qfw_layout *layout, ptrdiff_t element);

/* The length of stretches if they are those of scales 0, 1, 2, ... (the last may be short), else
 * 0. */
static inline ptrdiff_t qfw_even_run(const qfw_layout *layout)
{
    const bool whole =
        !QFW_HAS_GROUPS || layout->group >= layout->axis || layout->axis % layout->group == 0;
    const bool in_order = qfw_outer_of(layout) == 1 || (layout->shared == 0 && whole);
    return in_order ? qfw_run_length(layout) : 0;
}

/* The stretches of scale number `scale` (< scales) are numbered 0 .. qfw_runs_per_scale - 1. */
static inline ptrdiff_t qfw_runs_per_scale(const qfw_layout *layout)
{
    return QFW_HAS_SHARED && layout->shared != 0 ? layout->outer : 1;
}

qfw_run qfw_run_of(const qfw_layout *layout, ptrdiff_t scale, ptrdiff_t number);

#endif

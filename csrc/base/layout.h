/* Which elements share a scale. */
#ifndef QFW_BASE_LAYOUT_H
#define QFW_BASE_LAYOUT_H

#include "base/fixed.h"
#include "include/qfw.h"

/* A stretch of consecutive elements with one scale. */
typedef struct {
    int64_t first, n, scale;
} qfw_run;

/* The length of a stretch, but for a row's last one; a group beyond the axis is one stretch. */
static inline int64_t qfw_run_length(const qfw_layout *layout)
{
    return (layout->group < layout->axis ? layout->group : layout->axis) * layout->inner;
}

/* Groups, so stretches, in a row. */
static inline int64_t qfw_groups(const qfw_layout *layout)
{
    return layout->axis / layout->group + (layout->axis % layout->group != 0);
}

/* Where group g of a row ends, counted from the row's start. */
static inline int64_t qfw_group_end(const qfw_layout *layout, int64_t g)
{
    const int64_t left = layout->axis - g * layout->group;
    return (g * layout->group + (left < layout->group ? left : layout->group)) * layout->inner;
}

/* The stretch that `element` (< elements) lies in, from `element` on. */
static inline qfw_run qfw_run_at(const qfw_layout *layout, int64_t element)
{
    /* Divisions by 1, and of what is below 1, are left out: a 64-bit one costs as much as the rest.
     */
    const int64_t row = layout->axis * layout->inner;
    const int64_t outer = layout->outer == 1 ? 0 : element / row, in_row = element - outer * row;
    const int64_t at = layout->inner == 1 ? in_row : in_row / layout->inner;
    const int64_t g = layout->group == 1 ? at : at < layout->group ? 0 : at / layout->group;
    const int64_t before = layout->shared != 0 ? 0 : outer * qfw_groups(layout);
    const qfw_run run = {element, qfw_group_end(layout, g) - in_row, before + g};
    return run;
}

/* The stretches of scale number `scale` (< scales) are numbered 0 .. qfw_runs_per_scale - 1. */
int64_t qfw_runs_per_scale(const qfw_layout *layout);
qfw_run qfw_run_of(const qfw_layout *layout, int64_t scale, int64_t number);

#endif

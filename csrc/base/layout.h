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

/* The stretch that `element` (< elements) lies in, from `element` on. */
qfw_run qfw_run_at(const qfw_layout *layout, int64_t element);

/* The stretches of scale number `scale` (< scales) are numbered 0 .. qfw_runs_per_scale - 1. */
int64_t qfw_runs_per_scale(const qfw_layout *layout);
qfw_run qfw_run_of(const qfw_layout *layout, int64_t scale, int64_t number);

#endif

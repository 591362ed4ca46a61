/* Rows of weights that move by a panel of the wire: not on this core, where they move one by one. */
#include "kernels/panel_rows.h"

#if !defined(__ARM_FEATURE_DSP)

void qfw_fill_panel(const int8_t *x, size_t n, size_t terms, uint32_t *panel)
{
    (void)x, (void)n, (void)terms, (void)panel;
}

void qfw_panel_codes(const int8_t *e, size_t out, size_t terms, uint32_t *codes)
{
    (void)e, (void)out, (void)terms, (void)codes;
}

uint32_t qfw_panel_sum(const uint32_t *codes)
{
    (void)codes;
    return 0;
}

uint32_t qfw_panel_largest(qfw_panel_row *r)
{
    (void)r;
    return 0;
}

bool qfw_panel_own(qfw_panel_row *r, qfw_panel_slope own)
{
    (void)r, (void)own;
    return false;
}

int32_t qfw_move_by_panel(const qfw_panel_row *r, const qfw_panel_slopes *of)
{
    (void)r, (void)of;
    return -1;
}

#else
typedef int qfw_no_scalar; /* a unit that is not empty */
#endif

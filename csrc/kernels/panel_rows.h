/* Rows of weights that move by a panel of the wire: the inside of a device's step of some rows
 * (docs/numerics.md section 17). */
#ifndef QFW_KERNELS_PANEL_ROWS_H
#define QFW_KERNELS_PANEL_ROWS_H

#include "kernels/moved.h"

/* Rows of a step that a panel has at most, and its words for each column: {x[0], x[2]}, {x[1], x[3]},
 * {x[4], x[6]} and {x[5], x[7]}, 2^8 times each. */
enum { QFW_PANEL_TERMS = 8, QFW_PANEL_WORDS = 4 };

/* A row of weights and its state; what does not change from row to row. */
typedef struct {
    int8_t *m, *v;
    const uint32_t *codes; /* two words, as qfw_panel_codes makes them */
    uint32_t all;          /* qfw_panel_sum of them, not 0 */
    bool made;             /* sums are there: qfw_panel_largest has made them */
    ptrdiff_t first;       /* the first element's number, a multiple of 4 */
    size_t n;              /* a multiple of 4 */
    int32_t *sums;         /* room for n */
    const uint32_t *panel; /* of n columns */
    qfw_key key, key_v;
    int32_t own; /* of qfw_panel_own */
} qfw_panel_row;

/* A slope, but 0: 2^15 <= mu < 2^16 in steps of 2^-20 moved up by `lift`, as moved_mu and moved_lift have
 * them. */
typedef struct {
    uint32_t mu;
    int32_t lift;
} qfw_panel_slope;

/* Of the sums and of the state in the weights, of the sums in the state. */
typedef struct {
    qfw_panel_slope g, v, g_v;
} qfw_panel_slopes;

static inline qfw_panel_slope qfw_panel_slope_of(qfw_slope slope)
{
    const qfw_panel_slope s = {(uint32_t)moved_mu(slope), moved_lift(slope)};
    return s;
}

#if defined(__ARM_FEATURE_DSP)
enum { QFW_HAS_PANEL_ROWS = 1 };
#else
enum { QFW_HAS_PANEL_ROWS = 0 };
#endif

/* Whether `out` rows of n weights and so many rows of a step are worth a panel. Else the others, which no
 * other core has, are not called. */
static inline bool qfw_takes_panel(size_t out, size_t n, size_t terms)
{
    return QFW_HAS_PANEL_ROWS && out >= 4 && n != 0 && n % 4 == 0 && terms > 4 &&
           terms <= QFW_PANEL_TERMS;
}

/* The panel of x, `terms` rows of n codes; rows that are missing are 0. n: a multiple of 4. */
void qfw_fill_panel(const int8_t *x, size_t n, size_t terms, uint32_t *panel);

/* Four columns of e, more than four rows of `out` codes, from e on: of each the codes as bytes of two
 * words, and those that are missing as 0. */
void qfw_panel_codes(const int8_t *e, size_t out, size_t terms, uint32_t *codes);

/* The sum of the magnitudes of both words' bytes. */
uint32_t qfw_panel_sum(const uint32_t *codes);

/* The largest magnitude of the row's sums; makes r->sums. */
uint32_t qfw_panel_largest(qfw_panel_row *r);

/* The slope of a state in itself; false: a panel does not take it. */
bool qfw_panel_own(qfw_panel_row *r, qfw_panel_slope own);

/* What qfw_move_both does and returns, by the sums of codes and columns, and r->sums is anything;
 * negative: it does not take these slopes. */
int32_t qfw_move_by_panel(const qfw_panel_row *r, const qfw_panel_slopes *of);

#endif

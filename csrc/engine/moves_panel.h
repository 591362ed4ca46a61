/* Rows of weights that move by sums of bytes: one by one, or by a panel of the wire. */
#ifndef QFW_ENGINE_MOVES_PANEL_H
#define QFW_ENGINE_MOVES_PANEL_H

#include "engine/moves_rows.h"

/* Row o by the sums over `terms` rows of errors and wires, which are made at `sums`: what has no error
 * costs nothing. */
static inline void qfw_move_summed(qfw_step_rows *s, ptrdiff_t o, const int8_t *e, const int8_t *x,
                                   size_t terms, int32_t *sums)
{
    const uint32_t all = qfw_sum_row(sums, e + o, (size_t)s->rows, x, (size_t)s->row, terms);
    /* |x| <= 2^7 */
    qfw_move_sums(s, o, sums, all == 0 ? -1 : 8 + qfw_msb64(all));
}

/* All rows; false, and nothing was done, where a panel is not worth it. room: of so many words. */
bool qfw_move_panel(qfw_step_rows *s, const int8_t *e, const int8_t *x, size_t terms, int32_t *room,
                    size_t words);

#endif

/* Sums of products of codes that lie side by side: the gradient of a factor of its own for each column. */
#include "engine/diagonal.h"
#include "kernels/codes.h"

/* Codes as they stand in memory. */
static bool is_plain(const qfw_operand *x)
{
    const int32_t slot = qfw_slot(&x->t.format);
    return x->plan->kind == QFW_SYM && (slot == 8 || slot == 16);
}

/* Whether int32 holds every sum, -Q - 1 among the codes: |code| <= 2^(bits - 1). */
static bool fits(const qfw_operand *e, const qfw_operand *x, ptrdiff_t terms)
{
    const int32_t bits = e->plan->bits + x->plan->bits - 2;
    return bits <= 30 && terms <= INT32_MAX >> bits;
}

void qfw_diagonal_sums(const qfw_call *call, ptrdiff_t out, ptrdiff_t terms, ptrdiff_t first,
                       ptrdiff_t n, uint32_t shift, int32_t *sum)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2];
    const int32_t of_e = qfw_slot(&e->t.format), of_x = qfw_slot(&x->t.format);
    if (QFW_DIRECT || shift != 0 || !is_plain(e) || !is_plain(x) || !fits(e, x, terms)) {
        qfw_line_products(e, x, out, terms, first, n, shift, sum);
        return;
    }
    const qfw_lines lines = {(const uint8_t *)e->t.codes + first * (of_e / 8),
                             of_e,
                             of_x,
                             (size_t)n,
                             (size_t)terms,
                             (size_t)out,
                             (size_t)out};
    memset(sum, 0, (size_t)n * sizeof *sum);
    QFW_K(call->kernels, line_dots_s32)(&lines, (const uint8_t *)x->t.codes + first * (of_x / 8),
                                        sum);
}

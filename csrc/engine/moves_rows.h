/* The factors of a step, and the step of a device row by row. */
#ifndef QFW_ENGINE_MOVES_ROWS_H
#define QFW_ENGINE_MOVES_ROWS_H

#include "base/round.h"
#include "base/soft.h"
#include "engine/engine.h"
#include "kernels/moved.h"

/* The factors of this update, lr in those of the parameter, that of all gradients in those of g. */
typedef struct {
    float step_v, step_g, step_w, state_v, state_g, state_w;
    float lr, kappa, clip;
} qfw_factors;

/* The factors of an operation, clip being that of all gradients. */
qfw_factors qfw_factors_of(const qfw_call *call, float clip);

/* On a device: the term of codes at a scale in a step of codes at the scale `to`; top: that scale times
 * its factor. */
qfw_coef qfw_coef_of(float top, float to, int32_t frac, bool wide);

/* Of a state: factors, and the slope of its own part in itself. */
typedef struct {
    float step_v, state_g, of_state; /* the last: sigma times state_g */
    qfw_slope own;
    qfw_key key;
    qfw_soft_factor soft_v; /* step_v, for integers */
} qfw_state_rows;

/* A gradient_update, row by row of the parameter's matrix. */
typedef struct {
    const qfw_call *call;
    const qfw_operand *param, *state; /* state NULL: none */
    const qfw_state_rows *v;          /* there where the state is */
    ptrdiff_t rows, row;              /* elements of a row */
    float sigma;                      /* the gradient's scale */
    float step_g, of_param;           /* a factor; sigma times that */
    qfw_key key;
    uint32_t most;      /* the largest |x| of an outer product; 0: not found yet */
    uint8_t *flags;     /* a byte for each scale */
    bool flagged;       /* one is set; else they are not even 0 */
    bool param_flagged; /* one of the parameter's may be */
} qfw_step_rows;

/* False: it is no such parameter, state or step, and nothing was done.
 *   sums  it moves by sums, else by one row of errors
 *   v     has room for what belongs to a state; NULL where a core has none */
bool qfw_begin_rows(const qfw_call *call, ptrdiff_t rows, ptrdiff_t row, bool bias, bool sums,
                    float sigma, qfw_step_rows *s, qfw_state_rows *v);

/* All rows, by the outer product e x^T. */
void qfw_move_outer(qfw_step_rows *s, const int8_t *e, const int8_t *x);

/* Row o by sums, -2^bits <= sums[i] < 2^bits; bits < 0: they all are 0, and are not read. */
void qfw_move_sums(qfw_step_rows *s, ptrdiff_t o, int32_t *sums, int32_t bits);

/* Begins scale `at` of a parameter or a state, if it has no range, by the largest of its sums; c is the factor
 * of a step. */
void qfw_begin_scale(const qfw_step_rows *s, const qfw_operand *t, ptrdiff_t at, uint32_t most,
                     float c);

/* Marks what qfw_move_both told of row o, where each has a scale of its own. */
void qfw_flag_both(qfw_step_rows *s, ptrdiff_t o, uint32_t out);

/* All biases, by errors or (e NULL) sums of them. */
void qfw_move_biases(qfw_step_rows *s, const int8_t *e, const int32_t *sums);

/* All biases by sums, where each has a state with a scale of its own. False: they are others, and nothing
 * was done. */
bool qfw_move_short_biases(qfw_step_rows *s, const int32_t *sums, qfw_slope k, int32_t *out);

/* Then scales may change. */
void qfw_end_rows(qfw_step_rows *s);

/* ---- of the files moves_*.c alone ---- */

/* A coefficient of Sym(8): top over the scale `to`. */
QFW_INLINE qfw_slope qfw_row_slope(float top, float to)
{
    return qfw_bits_f32(QFW_SOFT_FLOAT ? qfw_soft_div_upper(top, to) : qfw_coef_div(top, to));
}

/* step_v times a scale of the state. */
static inline float qfw_by_state(const qfw_state_rows *of, float s_v)
{
    uint32_t exp = 253, bits = 0;
    if (QFW_SOFT_FLOAT && qfw_bits_f32(of->step_v) != 0) {
        bits = qfw_soft_times(of->soft_v, qfw_bits_f32(s_v), &exp);
    }
    return exp <= 252 ? qfw_from_bits_f32(bits) : qfw_coef_mul(of->step_v, s_v);
}

/* A value of scale `at` left its codes, if `out` is not 0; those of the state come after the parameter's.
 * Most steps have none, so that flags are cleared when there is one. */
void qfw_flag_row(qfw_step_rows *s, ptrdiff_t at, uint32_t out);

/* Bits that a step of Sym(16) has more than its code. */
enum { QFW_BIAS_FRAC = 12 };

/* A code's term, in steps with `frac` bits. */
QFW_NOINLINE int32_t qfw_bias_term(int32_t code, qfw_slope k, int32_t frac);

/* A code of a bias; -2^15 is held, and is no event. */
static inline int16_t qfw_bias_held(int32_t v, int32_t *out)
{
    if (v > INT16_MAX || v < -INT16_MAX) {
        *out |= v != -INT16_MAX - 1;
        v = v > 0 ? INT16_MAX : -INT16_MAX;
    }
    return (int16_t)v;
}

/* Row r->first / r->n, o, of the parameter and its state; `moves`: it has an error. */
void qfw_move_row_by_state(qfw_step_rows *s, ptrdiff_t o, bool moves, qfw_row *r);

/* qfw_move_outer, with a state; a scale of all rows has begun. */
void qfw_move_outer_by_state(qfw_step_rows *s, const int8_t *e, const int8_t *x);

/* Biases i .. end - 1, which have the words of one block, and their states; k: the slope of the gradient in
 * the parameter. Returns 1 if a bias was outside its codes. */
QFW_NOINLINE int32_t qfw_move_biases_by_state(qfw_step_rows *s, ptrdiff_t i, ptrdiff_t end,
                                              const int8_t *e, const int32_t *sums, qfw_slope k);

#endif

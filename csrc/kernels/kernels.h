/* The kernels' contracts. `scalar` is the definition; every other variant returns the same bits. */
#ifndef QFW_KERNELS_KERNELS_H
#define QFW_KERNELS_KERNELS_H

#include "base/scale.h"
#include "include/qfw.h"

#define QFW_TRY(expr)                      \
    do {                                   \
        const qfw_status status_ = (expr); \
        if (status_ != QFW_OK) {           \
            return status_;                \
        }                                  \
    } while (0)

/* Elements that are decoded and encoded at a time: few enough for a small stack. */
enum { QFW_TILE = 32 };

/* Grows *hi and *lo (>= 0) to the bit patterns of the largest float at x and of the largest negated
 * one. A NaN or an infinity gives at least QFW_F32_INF. */
typedef void qfw_extent_f32_fn(const float *x, size_t n, int32_t *hi, int32_t *lo);

/* What a rounded number becomes: code = clamp(v + zp, qmin, qmax); |qmin|, |qmax|, |zp| < 2^16. */
typedef struct {
    qfw_rounding rounding;
    int32_t zp, qmin, qmax;
} qfw_code_rule;

/* codes[i] from round(x[i] / s), the exact quotient; x finite, s a scale.
 *   u        a word an element for QFW_STOCHASTIC, else not read
 *   returns  how many codes the clamp changed */
typedef uint32_t qfw_quotient_f32_fn(const float *x, const uint32_t *u, size_t n, float s,
                                     const qfw_code_rule *rule, int32_t *codes);

/* codes[i] from round(a[i] * ratio): the requantization. codes may be a.
 *   u and the result as above */
typedef uint32_t qfw_rescale_s32_fn(const int32_t *a, const uint32_t *u, size_t n,
                                    const qfw_ratio *ratio, const qfw_code_rule *rule,
                                    int32_t *codes);

/* A ratio a column, its parts apart. */
typedef struct {
    const uint32_t *mult, *limit, *up, *down;
} qfw_ratios;

/* rescale_s32 with a ratio an element. */
typedef uint32_t qfw_rescale_columns_fn(const int32_t *a, const uint32_t *u, size_t n,
                                        const qfw_ratios *ratios, const qfw_code_rule *rule,
                                        int32_t *codes);

/* How rows of floats become codes. */
typedef struct {
    uint32_t q; /* the largest code */
    bool dynamic, pow2;
    qfw_rounding rounding;
    const qfw_key *key;
    uint64_t first; /* the index of x[0] in its tensor */
} qfw_row_encoding;

/* codes[i] = clamp(round(x[i] / scale[i / run]), -q, q), the exact quotient. Dynamic: the scale is
 * found first, run by run.
 *   run      >= 1; the last one may be short
 *   q        <= 127, so that codes fit int8
 *   *saturated grows by the codes that the clamp changed
 *   returns  QFW_E_NONFINITE at a NaN or an infinity, codes being undefined then */
typedef qfw_status qfw_quantize_s8_fn(const float *x, size_t n, size_t run,
                                      const qfw_row_encoding *how, float *scale, int8_t *codes,
                                      uint64_t *saturated);

/* A checked descriptor over its data: every operation, type and rule of the affine family.
 *   scales are valid, mask_out is zeroed, max_zp is the largest |zero point|
 *   returns  QFW_E_NONFINITE at a NaN or an infinity, the output being undefined then */
typedef qfw_status qfw_affine_rows_fn(const qfw_affine *affine, const qfw_affine_data *data,
                                      uint32_t max_zp);

/* Which variant affine_rows hands such a run to. */
typedef const char *qfw_affine_name_fn(const qfw_affine *affine, const qfw_affine_data *data,
                                       uint32_t max_zp);

/* What follows an integer product, a row at a time: (acc >> shift) + seed, then ReLU or the mask,
 * then the absmax.
 *   seed, shift  one a column, or both NULL
 *   mask         rows x n codes that must be > 0 for the accumulator to pass; NULL: all do
 *   absmax       grows; one a column (columns) or one in all */
typedef struct {
    const int32_t *seed;
    const uint8_t *shift;
    bool relu, columns;
    const void *mask;
    int32_t mask_kind; /* 8, 16, 32: signed integers; 0: floats */
    uint32_t *absmax;
} qfw_finish;

typedef void qfw_finish_s32_fn(int32_t *acc, size_t rows, size_t n, const qfw_finish *finish);

/* A coefficient of the integer update (docs/numerics.md section 17):
 * term = clamp((code * mu) >> right, -limit, limit) << left; mu = 0: no term. */
typedef struct {
    int32_t mu, limit;
    uint8_t right, left;
} qfw_coef;

/* How a tile of codes moves. */
typedef struct {
    qfw_coef g, v, w;
    int32_t frac; /* F: the terms are in units of 2^-F codes; 11 .. 26 */
    int32_t lo, hi;
    qfw_rounding rounding;
} qfw_move;

/* m[i] - round(y), v[i] = round(y of state), as far as lo .. hi allow.
 *   g       codes of at most 16 bits, or accumulators if wide
 *   v       NULL without a state; u_v likewise
 *   u       words for stochastic rounding, one an element
 *   returns 1 if a parameter, 2 if a state was outside lo - 1 .. hi */
typedef uint32_t qfw_update_s32_fn(int32_t *m, int32_t *v, const int32_t *g, size_t n, bool wide,
                                   const qfw_move *move, const qfw_move *state, const uint32_t *u,
                                   const uint32_t *u_v);

/* Plain int8, the commonest slots: what rescale_s32 and update_s32 do, from and to memory.
 *   first   the index of element 0 in its tensor, for the words of stochastic rounding */
typedef uint32_t qfw_absmax_s32_fn(const int32_t *a, size_t n);
typedef uint32_t qfw_rescale_s8_fn(const int32_t *a, size_t n, const qfw_ratio *ratio,
                                   const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                                   int8_t *codes);
typedef uint32_t qfw_update_s8_fn(int8_t *m, int8_t *v, const int8_t *g, size_t n,
                                  const qfw_move *move, const qfw_move *state, const qfw_key *key,
                                  const qfw_key *state_key, uint64_t first);

/* The float32 step: d[i] = lr * step, v[i] the new state; v NULL without momentum. Nothing overlaps.
 */
typedef struct {
    float lr, momentum, kappa, decay;
    bool nesterov;
} qfw_float_step;

typedef void qfw_update_f32_fn(const float *w, const float *g, float *v, size_t n,
                               const qfw_float_step *step, float *d);

/* A step of AdamW (docs/numerics.md section 25): m[i] and v[i] become the new moments, d[i] what the
 * parameter moves by. Nothing overlaps.
 *   rest1, rest2  1 - beta1, 1 - beta2
 *   rate, decay   lr / bias correction, lr * weight decay
 *   least         the smallest second moment that a step is divided by
 *   unbias        the second bias correction, as a factor of its root */
typedef struct {
    float beta1, rest1, beta2, rest2, eps, rate, decay, least, unbias;
} qfw_adamw_step;

typedef void qfw_adamw_f32_fn(const float *w, const float *g, float *m, float *v, size_t n,
                              const qfw_adamw_step *step, float *d);

/* The product of qfw_gemm, out's rows being out_row elements apart. */
typedef void qfw_gemm_s32_fn(const qfw_gemm *gemm, int32_t *out, size_t out_row);
typedef void qfw_gemm_f32_fn(const qfw_gemm *gemm, float *out, size_t out_row);

struct qfw_kernels {
    const char *name;
#define QFW_KERNEL(kernel) qfw_##kernel##_fn *kernel;
#include "kernels/kernels.def"
};

#define QFW_KERNEL(kernel) extern qfw_##kernel##_fn qfw_##kernel##_scalar, qfw_##kernel##_avx2;
#include "kernels/kernels.def"

#endif

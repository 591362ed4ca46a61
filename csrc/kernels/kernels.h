/* The kernels' contracts. `scalar` is the definition; every other variant returns the same bits. */
#ifndef QFW_KERNELS_KERNELS_H
#define QFW_KERNELS_KERNELS_H

#include "base/config.h"
#include "base/elementary.h"
#include "base/scale.h"
#include "include/qfw.h"
#include "kernels/differences.h"
#include "kernels/singles.h"

#define QFW_TRY(expr)                      \
    do {                                   \
        const qfw_status status_ = (expr); \
        if (status_ != QFW_OK) {           \
            return status_;                \
        }                                  \
    } while (0)

/* Grows *hi and *lo (>= 0) to the bit patterns of the largest float at x and of the largest negated
 * one. A NaN or an infinity gives at least QFW_F32_INF. */
typedef void qfw_extent_f32_fn(const float *x, size_t n, int32_t *hi, int32_t *lo);

/* What a rounded number becomes: code = clamp(v + zp, qmin, qmax); |qmin|, |qmax| < 2^28 and |zp| <
 * 2^16. */
typedef struct {
    qfw_rounding rounding;
    int32_t zp, qmin, qmax;
} qfw_code_rule;

/* A core that does not count has no use for how many codes a clamp changed: there it may be told 0. */
enum { QFW_TELLS_SATURATED = QFW_HAS_COUNTERS || !QFW_DIRECT };

/* |v| <= 2^18 and |zp| < 2^16: the sum does not overflow. */
static inline int32_t qfw_code_of(int32_t v, const qfw_code_rule *rule, uint32_t *saturated)
{
    const int32_t wanted = QFW_HAS_ASYM ? v + rule->zp : v;
    const int32_t code = wanted > rule->qmax   ? rule->qmax
                         : wanted < rule->qmin ? rule->qmin
                                               : wanted;
    *saturated += QFW_TELLS_SATURATED && code != wanted ? 1u : 0u;
    return code;
}

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

/* Rows of numbers that become codes, a ratio a column. */
typedef struct {
    const void *from;
    void *to;                     /* may begin where `from` does, unless it is wider */
    int32_t from_width, to_width; /* signed integers of 8, 16 or 32 bits */
    size_t rows, columns;
    qfw_ratios ratios;
    const qfw_key *key; /* for QFW_STOCHASTIC, else not read; NULL then */
    uint64_t first;     /* the index of from[0] in its tensor */
} qfw_rescaling;

/* What rescale_s32 does, element by element in ascending order. */
typedef uint32_t qfw_rescale_rows_fn(const qfw_rescaling *columns, const qfw_code_rule *rule);

/* The ratios of n scales to one, for codes of `bits` bits; each into its part of `ratios`, a part
 * being `columns` words long. Nothing overlaps. */
typedef void qfw_ratios_f32_fn(const float *from, size_t n, float to, int32_t bits,
                               uint32_t *ratios, size_t columns);

/* scale[i] = scale(s_in, most[i], q) of docs/numerics.md section 5, s_in a scale. */
typedef void qfw_scales_s32_fn(float s_in, const uint32_t *most, size_t n, uint32_t q, bool pow2,
                               float *scale);

/* What a bias, m[i] * s, is in steps of sigma[i]: seed[i] = its quotient, half away, where that is
 * below 2^30; else that of a step 2^shift[i] as long, which sigma[i] then is(docs/numerics.md
 * section 13).
 *   |m[i]| < 2^17; s and sigma[i] are scales */
typedef void qfw_seeds_s32_fn(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                              uint8_t *shift);

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

/* Coefficients side by side, and how that many codes move, each with its own. */

typedef struct {
    int32_t mu[QFW_LANES], limit[QFW_LANES], right[QFW_LANES], left[QFW_LANES];
} qfw_coefs;

typedef struct {
    qfw_coefs g, v, w;
    int32_t frac, lo, hi;
    qfw_rounding rounding;
} qfw_moves;

/* The coefficients c * from[i] / to[i] in units of 2^-frac; QFW_LANES of them.
 *   c       0 or normal; from, to are scales
 *   last    the longest shift to the right: 31, or 63 where products have 64 bits */
typedef void qfw_coefs_f32_fn(float c, const float *from, const float *to, int32_t frac,
                              int32_t last, qfw_coefs *k);

/* update_s32 of QFW_LANES elements. *out: what it returns, element by element; all of it together is
 * returned. */
typedef uint32_t qfw_update_each_fn(int32_t *m, int32_t *v, const int32_t *g, bool wide,
                                    const qfw_moves *move, const qfw_moves *state,
                                    const uint32_t *u, const uint32_t *u_v, uint32_t *out);

typedef void qfw_update_singles_fn(const qfw_singles *singles, size_t n);

/* y[i] = a[i] * s, rounded once (docs/numerics.md section 8). */
typedef void qfw_floats_s32_fn(const int32_t *a, size_t n, float s, float *y);

/* m[i] - round(d[i] / s), the exact quotient, as far as -q .. q allow.
 *   first   the index of element 0 in its tensor, for the words of stochastic rounding
 *   returns 1 if one was outside -q - 1 .. q */
typedef uint32_t qfw_less_s8_fn(int8_t *m, const float *d, size_t n, float s, int32_t q,
                                qfw_rounding rounding, const qfw_key *key, uint64_t first);

/* Plain int8, the commonest slots: what rescale_s32 and update_s32 do, from and to memory.
 *   first   the index of element 0 in its tensor, for the words of stochastic rounding */
typedef uint32_t qfw_absmax_s32_fn(const int32_t *a, size_t n);
typedef uint32_t qfw_rescale_s8_fn(const int32_t *a, size_t n, const qfw_ratio *ratio,
                                   const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                                   int8_t *codes);
/* Rows of an outer product at scales that are known: codes[k * n + i] is what rescale_s8 makes of
 * e[k] * x[i], of scale sigma, at scale[k].
 *   most    at least every |x[i]|; |e[k]| * most < 2^31 */
typedef struct {
    const int8_t *x;
    size_t n;
    uint32_t most;
    float sigma;
    int32_t bits;
    qfw_code_rule rule;
    qfw_key key;
} qfw_outer;

typedef uint32_t qfw_outer_s8_fn(const qfw_outer *outer, const int32_t *e, const float *scale,
                                 size_t rows, uint64_t first, int8_t *codes);

/* Rows of n elements, at most QFW_LANES; row k moves by the coefficients number k. */
typedef struct {
    size_t n, count;
    const qfw_moves *move, *state;
    const qfw_key *key, *state_key;
    uint64_t first;
} qfw_rows_move;

/* Row k alone, by the definition; its codes are at m, v, g. Returns what update_s32 does. */
uint32_t qfw_update_row(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows, size_t k);

/*   out     what update_s32 returns, row by row */
typedef void qfw_update_s8_fn(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows,
                              uint32_t *out);

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

/* Sigmoid and tanh (docs/numerics.md section 34).
 *   s32  y[i] of m[i] at the scale s[i], in units of 2^-30: 0 .. 2^30, tanh -2^30 .. 2^30; y may be m
 *   f32  y[i] of x[i]; y may be x */
typedef enum { QFW_SIGMOID = 0, QFW_TANH } qfw_squash;

typedef void qfw_squash_s32_fn(const int32_t *m, const qfw_log2_scale *s, size_t n, qfw_squash kind,
                               int32_t *y);
typedef void qfw_squash_f32_fn(const float *x, size_t n, qfw_squash kind, float *y);

/* The product of qfw_gemm, out's rows being out_row elements apart. Rows of a may overlap. */
typedef void qfw_gemm_s32_fn(const qfw_gemm *gemm, int32_t *out, size_t out_row);
typedef void qfw_gemm_f32_fn(const qfw_gemm *gemm, float *out, size_t out_row);

/* Channels side by side, each by itself, at `count` positions: x(i, j) = x[i * x_row + j], j < n.
 * Integers of 8 or 16 bits as the widths say, or floats. */
typedef struct {
    const void *x;
    int32_t x_width, y_width;
    size_t n, count, x_row, y_row;
} qfw_lines;

/* out[i * y_row + j] += x(i, j) * w[j] */
typedef void qfw_lines_s32_fn(const qfw_lines *lines, const int32_t *w, int32_t *out);
typedef void qfw_lines_f32_fn(const qfw_lines *lines, const float *w, float *out);

/* sum[j] += x(i, j) * y[i * y_row + j], ascending i */
typedef void qfw_line_dots_s32_fn(const qfw_lines *lines, const void *y, int32_t *sum);
typedef void qfw_line_dots_f32_fn(const qfw_lines *lines, const void *y, float *sum);

/* sum[j] += x(i, j) */
typedef void qfw_line_sums_s32_fn(const qfw_lines *lines, int32_t *sum);

/* Where x(i, j) is larger than best, or pick is below 0, it is the best and `tap` its pick; both are
 * at i * y_row + j. x also of 32 bits. Of floats a NaN is the largest. */
typedef void qfw_lines_max_s32_fn(const qfw_lines *lines, int32_t tap, int32_t *best,
                                  int32_t *pick);
typedef void qfw_lines_max_f32_fn(const qfw_lines *lines, int32_t tap, float *best, int32_t *pick);

/* out at i * y_row + j, y_width bits each: x(i, j), of 32 bits, where pick at i * x_row + j is `tap`,
 * else 0; sums of 32 bits and floats grow by that. */
typedef void qfw_lines_place_s32_fn(const qfw_lines *lines, const int32_t *pick, int32_t tap,
                                    void *out);
typedef void qfw_lines_place_f32_fn(const qfw_lines *lines, const int32_t *pick, int32_t tap,
                                    float *out);

/* Columns of a matrix side by side, for normalisations (docs/numerics.md sections 20 and 36): rows of
 * `stride` elements, of which n <= QFW_CHANNELS neighbours are meant. */

typedef struct {
    size_t rows, stride, n;
} qfw_columns;

/* Codes in slots of `width` bits, 8 or 16. */
typedef struct {
    const void *codes;
    int32_t width;
} qfw_row_codes;

/* sum[j] = sum of the codes of column j, squares[j] = of their squares; rows * |code| < 2^31. */
typedef void qfw_norm_sums_fn(const qfw_columns *at, qfw_row_codes x, int32_t *sum,
                              uint64_t *squares);

/* Of each column: h = sign * half_away((m slope - offset) / 2^shift), for codes m.
 *   both products are below 2^62, 1 <= shift <= 62; the result is an int32 */
typedef struct {
    int64_t slope[QFW_CHANNELS], offset[QFW_CHANNELS];
    uint32_t shift[QFW_CHANNELS];
    int32_t sign[QFW_CHANNELS]; /* -1, 0 or 1 */
} qfw_norm_lines;

/* acc lies as x does. */
typedef void qfw_norm_codes_fn(const qfw_columns *at, qfw_row_codes x, const qfw_norm_lines *lines,
                               int32_t *acc);

/* sum[j] += g, along[j] += g h, h standing in acc: sums below 2^31 and 2^56. */
typedef void qfw_norm_along_fn(const qfw_columns *at, qfw_row_codes g, const int32_t *acc,
                               int64_t *sum, int64_t *along);

/* Of each column: sign * half_away((g slope - offset - half_away(h t / 2^frac)) / 2^down).
 *   |h t| < 2^63, 1 <= frac, 0 <= down; the result is an int32 */
typedef struct {
    int64_t slope, offset[QFW_CHANNELS], t[QFW_CHANNELS];
    int32_t frac, down;
    int32_t sign[QFW_CHANNELS];
} qfw_norm_back;

/* acc holds h, and then the result. */
typedef void qfw_norm_back_fn(const qfw_columns *at, qfw_row_codes g, const qfw_norm_back *back,
                              int32_t *acc);

/* QFW_E_NONFINITE if one of the n numbers at x is a NaN or an infinity. */
qfw_status qfw_finite_f32(const qfw_kernels *kernels, const float *x, size_t n);

struct qfw_kernels {
    const char *name;
#define QFW_KERNEL(kernel) qfw_##kernel##_fn *kernel;
#include "kernels/kernels.def"
};

#define QFW_KERNEL(kernel) extern qfw_##kernel##_fn qfw_##kernel##_scalar, qfw_##kernel##_avx2;
#include "kernels/kernels.def"

#define QFW_KERNEL_DSP(kernel) extern qfw_##kernel##_fn qfw_##kernel##_dsp;
#define QFW_KERNEL_M(kernel) QFW_KERNEL_DSP(kernel)
#include "kernels/kernels.def"

/* A table is needed where kernels are called through one. */
static inline bool qfw_has_kernels(const qfw_kernels *kernels)
{
    return QFW_DIRECT != 0 || kernels != NULL;
}

/* QFW_K(kernels, name)(...) calls a kernel of a table or, where the build says so, the one there is. */
#define QFW_K(kernels, kernel) qfw_k_##kernel(kernels)

#if QFW_DIRECT
#define QFW_KERNEL(kernel)                                                      \
    static inline qfw_##kernel##_fn *qfw_k_##kernel(const qfw_kernels *kernels) \
    {                                                                           \
        (void)kernels;                                                          \
        return qfw_##kernel##_scalar;                                           \
    }
#if defined(__ARM_FEATURE_DSP)
#define QFW_KERNEL_DSP(kernel)                                                  \
    static inline qfw_##kernel##_fn *qfw_k_##kernel(const qfw_kernels *kernels) \
    {                                                                           \
        (void)kernels;                                                          \
        return qfw_##kernel##_dsp;                                              \
    }
#define QFW_KERNEL_M(kernel) QFW_KERNEL_DSP(kernel)
#endif
#else
#define QFW_KERNEL(kernel)                                                      \
    static inline qfw_##kernel##_fn *qfw_k_##kernel(const qfw_kernels *kernels) \
    {                                                                           \
        return kernels->kernel;                                                 \
    }
#endif
#include "kernels/kernels.def"

#define QFW_KERNEL_512(kernel) extern qfw_##kernel##_fn qfw_##kernel##_avx512;
#include "kernels/kernels.def"

#endif

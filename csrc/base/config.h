/* What a core has. A desktop's has everything. Firmware that serves one plan may be compiled without
 * what that plan does not use: the exporter defines these from the plan (pyqfw/features.py), and the
 * compiler drops the rest. They change size and speed, never bits. */
#ifndef QFW_BASE_CONFIG_H
#define QFW_BASE_CONFIG_H

/* Kernels are called by name, not through a table: the linker drops those that nothing calls. */
#ifndef QFW_DIRECT
#define QFW_DIRECT 0
#endif

/* 0: the core serves the plan with this CRC alone, and has no more than that uses. */
#ifndef QFW_ANY_PLAN
#define QFW_ANY_PLAN 1
#define QFW_PLAN_CRC 0
#endif

/* Bytes of what lasts in the arena of that plan, as a state has them. */
#ifndef QFW_LASTING_BYTES
#define QFW_LASTING_BYTES 0
#endif

/* That plan has narrow records: docs/format.md, section 12. */
#ifndef QFW_NARROW_PLAN
#define QFW_NARROW_PLAN 0
#endif

/* Of tensors the short ones. */
#ifndef QFW_SHORT_TENSORS
#define QFW_SHORT_TENSORS 0
#endif

/* Places that operations have operands at. */
#ifndef QFW_PLACES
#define QFW_PLACES 8
#endif

/* What a plan may use. */
#ifndef QFW_HAS_ASYM /* Asym tensors */
#define QFW_HAS_ASYM 1
#endif
#ifndef QFW_HAS_PACKED /* codes without a container */
#define QFW_HAS_PACKED 1
#endif
#ifndef QFW_HAS_POW2 /* scales that are powers of two */
#define QFW_HAS_POW2 1
#endif
#ifndef QFW_HAS_HALF_EVEN /* rounding half to even */
#define QFW_HAS_HALF_EVEN 1
#endif
#ifndef QFW_HAS_WINDOWS /* convolutions and pools */
#define QFW_HAS_WINDOWS 1
#endif
#ifndef QFW_HAS_SPLIT /* sums in chunks, brought back by a shift */
#define QFW_HAS_SPLIT 1
#endif
#ifndef QFW_HAS_DIAGONAL /* gradients of products element by element */
#define QFW_HAS_DIAGONAL 1
#endif
#ifndef QFW_HAS_COUNTERS /* qfw_set_counters */
#define QFW_HAS_COUNTERS 1
#endif
#ifndef QFW_HAS_MICRO /* several micro-batches a step */
#define QFW_HAS_MICRO 1
#endif
#ifndef QFW_HAS_FLOAT_STEP /* parameters that move by floats */
#define QFW_HAS_FLOAT_STEP 1
#endif
#ifndef QFW_HAS_STATE /* optimizers with a state */
#define QFW_HAS_STATE 1
#endif
#ifndef QFW_HAS_REQUANTIZE /* products that write codes */
#define QFW_HAS_REQUANTIZE 1
#endif
#ifndef QFW_HAS_RECOMPUTE /* products that make their sums twice, for a dynamic range */
#define QFW_HAS_RECOMPUTE 1
#endif
#ifndef QFW_HAS_POOLED /* products that pool their sums */
#define QFW_HAS_POOLED 1
#endif
#ifndef QFW_HAS_HINDSIGHT /* hindsight ranges */
#define QFW_HAS_HINDSIGHT 1
#endif
#ifndef QFW_HAS_FIXED /* fixed ranges */
#define QFW_HAS_FIXED 1
#endif
#ifndef QFW_HAS_ROW_SCALES /* rows with scales of their own */
#define QFW_HAS_ROW_SCALES 1
#endif
#ifndef QFW_HAS_SHARED /* scales of several stretches */
#define QFW_HAS_SHARED 1
#endif
#ifndef QFW_HAS_GROUPS /* scales of some of an axis, neither of one nor of all */
#define QFW_HAS_GROUPS 1
#endif
#ifndef QFW_HAS_OUTER /* an outer size that is not 1 */
#define QFW_HAS_OUTER 1
#endif
#ifndef QFW_HAS_ADAMW /* AdamW */
#define QFW_HAS_ADAMW 1
#endif
#ifndef QFW_HAS_FAR_CODES /* weights whose slots alone do not keep a sum within its bound */
#define QFW_HAS_FAR_CODES 1
#endif
#ifndef QFW_HAS_F32_BIAS /* biases in Float32 of integer products */
#define QFW_HAS_F32_BIAS 1
#endif
#ifndef QFW_HAS_S8_S16 /* products of int8 by int16 */
#define QFW_HAS_S8_S16 1
#endif
#ifndef QFW_HAS_S16_S8 /* products of int16 by int8 */
#define QFW_HAS_S16_S8 1
#endif
#ifndef QFW_HAS_S16_S16 /* products of int16 by int16 */
#define QFW_HAS_S16_S16 1
#endif
#ifndef QFW_HAS_F32_MASK /* masks of floats on sums of integers */
#define QFW_HAS_F32_MASK 1
#endif
#ifndef QFW_HAS_F32_PRODUCT /* products of floats */
#define QFW_HAS_F32_PRODUCT 1
#endif
#ifndef QFW_HAS_ANY_CONVERT /* more conversions than floats to int8 and sums to one scale */
#define QFW_HAS_ANY_CONVERT 1
#endif
#ifndef QFW_HAS_ANY_MOVE /* more updates than those of int8 weights and int16 biases by one row */
#define QFW_HAS_ANY_MOVE 1
#endif
#ifndef QFW_HAS_ANY_QUANTIZE /* floats to int8 other than to the nearest, half away */
#define QFW_HAS_ANY_QUANTIZE 1
#endif
#ifndef QFW_HAS_FLOAT_RUNS /* floats to codes of several scales */
#define QFW_HAS_FLOAT_RUNS 1
#endif
#ifndef QFW_HAS_ANY_ROWS /* ratios by column for packed codes, zero points or random words */
#define QFW_HAS_ANY_ROWS 1
#endif
#ifndef QFW_HAS_BATCH /* steps of several rows */
#define QFW_HAS_BATCH 1
#endif
#ifndef QFW_HAS_FEW_COLUMNS /* products of int8 with fewer than four columns */
#define QFW_HAS_FEW_COLUMNS 1
#endif
#ifndef QFW_HAS_BYTE_ROWS /* products of int8 that do not go along the rows of both */
#define QFW_HAS_BYTE_ROWS 1
#endif
#ifndef QFW_HAS_WIDE_DOTS /* products with an int16 along the rows of both */
#define QFW_HAS_WIDE_DOTS 1
#endif
#ifndef QFW_HAS_ANY_WIDEN /* more widening than a scale a column */
#define QFW_HAS_ANY_WIDEN 1
#endif
#ifndef QFW_HAS_ANY_GEMM /* integer products but those of one row by four columns of int8 or more */
#define QFW_HAS_ANY_GEMM 1
#endif
#ifndef QFW_HAS_ANY_MASK /* masks but those of int8 on sums of one scale, and nothing else */
#define QFW_HAS_ANY_MASK 1
#endif
#ifndef QFW_HAS_NEAREST_S8 /* sums of one scale to int8 other than by random words */
#define QFW_HAS_NEAREST_S8 1
#endif
#ifndef QFW_HAS_MANY_ROWS /* ratios by column but of one row, half away, to int8 or int16 */
#define QFW_HAS_MANY_ROWS 1
#endif
#ifndef QFW_HAS_ODD_ROWS /* products along rows of int8 whose length is no multiple of four */
#define QFW_HAS_ODD_ROWS 1
#endif
#ifndef QFW_HAS_ANY_FINISH /* what follows sums but an int16 bias of one row, or one scale's mask */
#define QFW_HAS_ANY_FINISH 1
#endif
#ifndef QFW_HAS_ANY_FLOATS /* sums to floats but with a scale a column */
#define QFW_HAS_ANY_FLOATS 1
#endif
#ifndef QFW_HAS_RESTS /* rows in other lengths than those that instructions take at once */
#define QFW_HAS_RESTS 1
#endif
#ifndef QFW_HAS_PANELS /* integer products of several rows that are worth a panel */
#define QFW_HAS_PANELS 1
#endif

#if QFW_ANY_PLAN &&                                                                             \
    !(QFW_HAS_ASYM && QFW_HAS_PACKED && QFW_HAS_POW2 && QFW_HAS_HALF_EVEN && QFW_HAS_WINDOWS && \
      QFW_HAS_SPLIT && QFW_HAS_DIAGONAL && QFW_HAS_COUNTERS && QFW_HAS_MICRO &&                 \
      QFW_HAS_FLOAT_STEP && QFW_HAS_STATE && QFW_HAS_REQUANTIZE && QFW_HAS_HINDSIGHT &&         \
      QFW_HAS_FIXED && QFW_HAS_ROW_SCALES && QFW_HAS_SHARED && QFW_HAS_ADAMW &&                 \
      QFW_HAS_FAR_CODES && QFW_HAS_F32_BIAS && QFW_HAS_S8_S16 && QFW_HAS_S16_S8 &&              \
      QFW_HAS_S16_S16 && QFW_HAS_F32_PRODUCT && QFW_HAS_ANY_CONVERT && QFW_HAS_ANY_WIDEN &&     \
      QFW_HAS_ANY_MOVE && QFW_HAS_ANY_QUANTIZE && QFW_HAS_ANY_ROWS && QFW_HAS_BATCH &&          \
      QFW_HAS_BYTE_ROWS && QFW_HAS_WIDE_DOTS && QFW_HAS_F32_MASK && QFW_HAS_POOLED &&           \
      QFW_HAS_PANELS && QFW_HAS_FEW_COLUMNS && QFW_HAS_ANY_GEMM && QFW_HAS_ANY_MASK &&          \
      QFW_HAS_NEAREST_S8 && QFW_HAS_MANY_ROWS && QFW_HAS_RECOMPUTE && QFW_HAS_ODD_ROWS &&       \
      QFW_HAS_OUTER && QFW_HAS_FLOAT_RUNS && QFW_HAS_GROUPS && QFW_HAS_ANY_FINISH &&            \
      QFW_HAS_ANY_FLOATS && QFW_HAS_RESTS && QFW_PLACES == 8)
#error "a core that lacks something serves one plan: QFW_ANY_PLAN is 0, QFW_PLAN_CRC is its CRC"
#endif

/* Floats are software: what coefficients and scales need of them is made of integers. */
#ifndef QFW_SOFT_FLOAT
#if defined(__arm__) && !defined(__ARM_FP)
#define QFW_SOFT_FLOAT 1
#else
#define QFW_SOFT_FLOAT 0
#endif
#endif

/* What runs once, or hardly ever: made small, and apart from what calls it. */
#if defined(__GNUC__)
#define QFW_COLD __attribute__((cold, noinline))
#define QFW_NOINLINE __attribute__((noinline))                  /* with a stack of its own */
#define QFW_INLINE static inline __attribute__((always_inline)) /* once in what is hot, or nearly */
#else
#define QFW_COLD
#define QFW_NOINLINE
#define QFW_INLINE static inline
#endif

/* What runs once an operation, where a step is small: one row that goes through products and codes of int8.
 * There flash is scarce, and what is around the kernels is made small too. */
#define QFW_IS_SMALL (!QFW_ANY_PLAN && !QFW_HAS_ANY_GEMM && !QFW_HAS_ANY_MOVE)
#if defined(__GNUC__) && QFW_IS_SMALL
#define QFW_SMALL __attribute__((cold))
#define QFW_SMALL_APART __attribute__((cold, noinline)) /* once, however many call it */
#else
#define QFW_SMALL
#define QFW_SMALL_APART
#endif

/* Inside its callers where one plan has few of them; a core for any plan has many, and little flash. */
#if QFW_ANY_PLAN
#define QFW_INLINE_ALONE static inline
#else
#define QFW_INLINE_ALONE QFW_INLINE
#endif

/* How much is worked on at a time, which bits do not depend on: elements that are decoded and
 * encoded, coefficients and channels side by side, rows of a split sum. They lie on the stack, of
 * which a device has little. */
#if QFW_DIRECT
enum { QFW_TILE = 8, QFW_LANES = 1, QFW_CHANNELS = 4, QFW_TALL = 1 };
#else
enum { QFW_TILE = 32, QFW_LANES = 16, QFW_CHANNELS = 16, QFW_TALL = 4 };
#endif

#endif

/* qfw: the public C99 interface of the core.
 *
 * This file is also the cffi cdef (the build runs it through `cc -E -DQFW_CDEF`): no function
 * bodies, integer constants are enums, and what cffi does not parse stands inside #ifndef QFW_CDEF.
 *
 * The core owns nothing: no heap, no globals, no I/O. What can fail returns a status and then has
 * written nothing that a caller may rely on. docs/numerics.md defines every number. */
#ifndef QFW_H
#define QFW_H

#ifndef QFW_CDEF /* cffi knows the stdint and stddef names */
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* ---- status ---- */

typedef enum qfw_status {
    QFW_OK = 0,
    QFW_E_NULL,       /* a pointer that is needed is NULL */
    QFW_E_SIZE,       /* a size is negative, two shapes differ, or a size overflows */
    QFW_E_GROUP,      /* a group is not positive, or ragged where exact was asked */
    QFW_E_KIND,       /* an enumerator is unknown or not allowed here */
    QFW_E_BITS,       /* a width is outside its format's range */
    QFW_E_CONTAINER,  /* a container is unknown or narrower than the width */
    QFW_E_RANGE,      /* qmax < qmin, or the code range is wider than the code's type */
    QFW_E_SCALE,      /* a scale is not positive and normal, or no power of two where it must be */
    QFW_E_ZERO_POINT, /* a zero point is outside its format's range */
    QFW_E_NONFINITE   /* the data hold a NaN or an infinity */
} qfw_status;

/* One sentence, static. */
const char *qfw_status_text(qfw_status status);

/* "major.minor.patch" of the core, static. */
const char *qfw_version(void);

/* ---- kernels ---- */

/* The kernels a call may use. A table changes speed, never bits. */
typedef struct qfw_kernels qfw_kernels;

/* Plain C99, on every target. */
const qfw_kernels *qfw_kernels_portable(void);

/* The table's name: "portable", "avx2". */
const char *qfw_kernels_name(const qfw_kernels *kernels);

/* ---- the generator of stochastic rounding ---- */

typedef struct qfw_key {
    uint32_t k0, k1;
} qfw_key;

void qfw_make_key(uint32_t seed, uint32_t step, uint32_t tensor, qfw_key *key);

/* out[i] = draw(first + i): independent words. */
void qfw_draws(const qfw_key *key, uint32_t first, size_t n, uint32_t *out);

/* out[i] = u of element first + i: what rounding uses, pairwise independent. */
void qfw_uniforms(const qfw_key *key, uint64_t first, size_t n, uint32_t *out);

typedef enum qfw_rounding { QFW_HALF_AWAY = 0, QFW_HALF_EVEN, QFW_STOCHASTIC } qfw_rounding;

/* ---- tensors ---- */

/* A tensor seen as [outer][axis][inner]. Along axis, `group` consecutive indices share a scale, the
 * last group may be short (exact != 0 refuses that). shared != 0: all outer use one set of scales;
 * else each has its own. Scales: (shared ? 1 : outer) * ceil(axis / group), in that order. */
typedef struct qfw_layout {
    int64_t outer, axis, inner, group;
    int32_t shared, exact;
} qfw_layout;

/* Elements and scales of a layout, or why there are none. */
qfw_status qfw_layout_check(const qfw_layout *layout, int64_t *elements, int64_t *scales);

typedef enum qfw_kind { QFW_FLOAT32 = 0, QFW_SYM, QFW_ASYM } qfw_kind;

/* container: 0 packed, else 8, 16 or 32 bits an element. bits: Sym 2..16, or 32 in a 32-bit
 * container (an accumulator); Asym 1..16; Float32 32 in 32. */
typedef struct qfw_format {
    int32_t kind, bits, container, pow2;
} qfw_format;

qfw_status qfw_format_check(const qfw_format *format);

/* scale: one float32 a run, unused for Float32. zero_point: one a run, Asym only. */
typedef struct qfw_tensor {
    qfw_format format;
    qfw_layout layout;
    void *codes;
    float *scale;
    uint16_t *zero_point;
} qfw_tensor;

typedef struct qfw_encoding {
    int32_t rounding;
    int32_t dynamic; /* != 0: find dst's scales (and zero points) and write them; 0: use what stands
                        there */
    qfw_key key;     /* for QFW_STOCHASTIC; the element's index is the one in storage order */
} qfw_encoding;

/* Encodes src as dst: between any two formats, layouts and containers of the same number of
 * elements. *saturated counts the codes that the clamp changed. Reading and writing must not
 * overlap. On an error dst's contents are undefined. */
qfw_status qfw_convert(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                       const qfw_encoding *how, uint64_t *saturated);

/* n codes of `bits` bits (1..16), as int16 or, up to 8 bits, int8 (wide != 0: int16; the sign is
 * ignored), to ceil(n*bits/8) bytes and back; is_signed: codes are two's complement. */
qfw_status qfw_pack(const void *codes, int32_t wide, size_t n, int32_t bits, uint8_t *packed);
qfw_status qfw_unpack(const uint8_t *packed, size_t n, int32_t bits, int32_t is_signed,
                      int32_t wide, void *codes);

/* ---- the affine quantize family ---- */

typedef enum qfw_real { QFW_F32 = 0, QFW_F64, QFW_F16, QFW_BF16 } qfw_real;
typedef enum qfw_int { QFW_I8 = 0, QFW_U8, QFW_I16, QFW_U16, QFW_I32 } qfw_int;
typedef enum qfw_in_range { QFW_INCLUSIVE = 0, QFW_STRICT } qfw_in_range;

typedef enum qfw_affine_op {
    QFW_QUANTIZE = 0,          /* in: x        out: codes */
    QFW_DEQUANTIZE,            /* in: codes    out: x */
    QFW_FAKE_QUANTIZE,         /* in: x        out: x */
    QFW_QUANTIZE_BACKWARD,     /* in: dy, x or mask   out: dx */
    QFW_DEQUANTIZE_BACKWARD,   /* in: dy       out: dy * s */
    QFW_FAKE_QUANTIZE_BACKWARD /* in: dy, x or mask  out: dx */
} qfw_affine_op;

/* What to do: outer, axis, group (layout), the code range, the element types and the rules. */
typedef struct qfw_affine {
    qfw_layout layout;
    int32_t op;
    int32_t real;     /* qfw_real of x, dy, dx */
    int32_t code;     /* qfw_int of the codes; ignored where there are none */
    int32_t rounding; /* qfw_rounding */
    int32_t in_range; /* qfw_in_range */
    int32_t qmin, qmax;
    qfw_key key;
} qfw_affine;

/* The arrays of a run, in storage order. scale: float, or double if real is QFW_F64; zero_point
 * NULL: all 0. mask: ceil(n/8) bytes of in-range bits. out may be x or dy itself where the types
 * agree; otherwise nothing overlaps. */
typedef struct qfw_affine_data {
    const void *x;  /* x, or the codes of QFW_DEQUANTIZE; a backward with mask_in needs none */
    const void *dy; /* the backwards */
    const uint8_t *mask_in; /* the backwards, instead of x */
    const void *scale;      /* not needed by QFW_FAKE_QUANTIZE_BACKWARD with mask_in */
    const int32_t *zero_point;
    void *out;
    uint8_t *mask_out; /* may be NULL; QFW_QUANTIZE and QFW_FAKE_QUANTIZE */
    int32_t stream;    /* a hint, != 0: out is larger than the caches and not fresh memory */
} qfw_affine_data;

qfw_status qfw_affine_check(const qfw_affine *affine);

/* Bytes of scratch that a run needs: none. */
qfw_status qfw_affine_workspace(const qfw_affine *affine, size_t *bytes);

/* Checks, then runs. Scales are checked before anything is written. */
qfw_status qfw_affine_run(const qfw_kernels *kernels, const qfw_affine *affine,
                          const qfw_affine_data *data);

/* The name of the kernel that qfw_affine_run would use, static; NULL if a check fails. */
const char *qfw_affine_kernel(const qfw_kernels *kernels, const qfw_affine *affine,
                              const qfw_affine_data *data);

/* Scales (float, or double for QFW_F64) and zero points of x for codes of `bits` bits: symmetric
 * (-Q..Q, zero points 0) or asymmetric (0..2^bits-1). */
qfw_status qfw_affine_params(const qfw_kernels *kernels, const qfw_layout *layout, int32_t real,
                             int32_t bits, int32_t symmetric, const void *x, void *scale,
                             int32_t *zero_point);

/* QFW_E_NONFINITE if one of the n numbers at x is a NaN or an infinity. */
qfw_status qfw_check_finite(const qfw_kernels *kernels, const void *x, size_t n, int32_t real);

/* ---- the desktop only (csrc/host) ---- */

typedef enum qfw_isa { QFW_ISA_PORTABLE = 0, QFW_ISA_AVX2, QFW_ISA_COUNT } qfw_isa;

/* The table of an ISA, NULL where this build or CPU has none. */
const qfw_kernels *qfw_host_kernels(qfw_isa isa);

/* The compiler that built the core, static. */
const char *qfw_host_compiler(void);

/* Sets this thread's float mode to round-to-nearest without flush-to-zero and returns the mode it
 * had; puts a mode back. */
uint32_t qfw_host_float_enter(void);
void qfw_host_float_leave(uint32_t mode);

#ifndef QFW_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif /* QFW_H */

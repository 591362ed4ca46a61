/* Words, high-word products and the bits of floats. Everything here is total. */
#ifndef QFW_BASE_FIXED_H
#define QFW_BASE_FIXED_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "qfw gives the same bits everywhere; -ffast-math does not"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "stored bytes are little-endian"
#endif
#if FLT_EVAL_METHOD != 0
#error "qfw needs float arithmetic in float"
#endif

/* Firmware projects set their own flags; these say it in the file too. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#define QFW_CONCAT_(a, b) a##b
#define QFW_CONCAT(a, b) QFW_CONCAT_(a, b)
#define QFW_STATIC_ASSERT(cond, name) \
    typedef char QFW_CONCAT(qfw_assert_##name##_, __LINE__)[(cond) ? 1 : -1]

QFW_STATIC_ASSERT((-1 >> 1) == -1, right_shift_is_arithmetic);
QFW_STATIC_ASSERT(sizeof(float) == 4 && sizeof(double) == 8, ieee_sizes);

/* For functions whose constant arguments must become separate loops: compilers that share one body
 * to save space would test them for every element. */
#if defined(__GNUC__)
#define QFW_ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define QFW_ALWAYS_INLINE static inline
#endif

/* memcpy of so few bytes that no call is worth them, which a freestanding compiler may not know. */
#if defined(__GNUC__)
#define QFW_COPY_FEW __builtin_memcpy
#else
#define QFW_COPY_FEW memcpy
#endif

/* Sum and product mod 2^32. Through 64 bits, so that no sanitizer takes the wrap for an accident;
 * compilers emit the plain 32-bit instruction. */
static inline uint32_t qfw_add32(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a + b);
}

static inline uint32_t qfw_mul32(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b);
}

static inline uint32_t qfw_sub32(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a + (UINT64_C(1) << 32) - b);
}

/* The index of the highest set bit; x not 0. */
#if defined(__GNUC__)
static inline int qfw_msb64(uint64_t x)
{
    return 63 - __builtin_clzll(x);
}
#else
static inline int qfw_msb64(uint64_t x)
{
    int n = 0;
    for (int step = 32; step > 0; step >>= 1) {
        if (x >> step != 0) {
            x >>= step;
            n += step;
        }
    }
    return n;
}
#endif

/* |v| as a word; -2^31 gives 2^31. */
static inline uint32_t qfw_abs32(int32_t v)
{
    return (uint32_t)(v < 0 ? -(int64_t)v : (int64_t)v);
}

/* The high word of a * b, by four 16 x 16 products.
 * mid, low <= (2^16-1)^2 + 2^16-1 < 2^32. */
static inline uint32_t qfw_mulhi_split(uint32_t a, uint32_t b)
{
    const uint32_t al = a & 0xFFFFu, ah = a >> 16, bl = b & 0xFFFFu, bh = b >> 16;
    const uint32_t mid = ah * bl + ((al * bl) >> 16);
    const uint32_t low = al * bh + (mid & 0xFFFFu);
    return ah * bh + (mid >> 16) + (low >> 16);
}

/* The high word of a * b, and all of it. ARMv6-M and v8-M Baseline have no 32 x 32 -> 64 multiply; there
 * the split costs half of the compiler's helper. */
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
enum { QFW_MULHI_IS_SPLIT = 1 };

static inline uint32_t qfw_mulhi(uint32_t a, uint32_t b)
{
    return qfw_mulhi_split(a, b);
}

static inline uint64_t qfw_mul64(uint32_t a, uint32_t b)
{
    return (uint64_t)qfw_mulhi_split(a, b) << 32 | qfw_mul32(a, b);
}
#else
enum { QFW_MULHI_IS_SPLIT = 0 };

static inline uint32_t qfw_mulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

static inline uint64_t qfw_mul64(uint32_t a, uint32_t b)
{
    return (uint64_t)a * b;
}
#endif

/* floor(a b / 2^32), |a| < 2^31. */
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
static inline int32_t qfw_mulhi_floor(int32_t a, uint32_t b)
{
    const uint32_t size = qfw_abs32(a);
    const int32_t hi = (int32_t)qfw_mulhi_split(size, b);
    return a >= 0 ? hi : -hi - (qfw_mul32(size, b) != 0 ? 1 : 0);
}
#else
static inline int32_t qfw_mulhi_floor(int32_t a, uint32_t b)
{
    return (int32_t)(((int64_t)a * b) >> 32);
}
#endif

/* By a union, as a freestanding compiler may not know memcpy. */
static inline uint32_t qfw_bits_f32(float v)
{
    const union {
        float v;
        uint32_t u;
    } both = {v};
    return both.u;
}

static inline float qfw_from_bits_f32(uint32_t u)
{
    const union {
        uint32_t u;
        float v;
    } both = {u};
    return both.v;
}

static inline uint64_t qfw_bits_f64(double v)
{
    const union {
        double v;
        uint64_t u;
    } both = {v};
    return both.u;
}

static inline double qfw_from_bits_f64(uint64_t u)
{
    const union {
        uint64_t u;
        double v;
    } both = {u};
    return both.v;
}

/* v as a float, nearest even. The last of 32 bits stands for whatever lies under it. */
static inline float qfw_float_u64(uint64_t v)
{
    if (v >> 32 == 0) {
        return (float)(uint32_t)v;
    }
    const int drop = qfw_msb64(v) - 31;
    const bool rest = (v & ((UINT64_C(1) << drop) - 1)) != 0;
    const uint32_t kept = (uint32_t)(v >> drop) | (rest ? 1u : 0u);
    return (float)kept * qfw_from_bits_f32((uint32_t)(drop + 127) << 23);
}

/* Bit patterns of positive floats are ordered as the floats are. */
enum {
    QFW_F32_MIN_NORMAL = 0x00800000,
    QFW_F32_ONE = 0x3F800000,
    QFW_F32_MAX = 0x7F7FFFFF,
    QFW_F32_INF = 0x7F800000
};

static inline bool qfw_is_scale_f32(float s)
{
    const uint32_t u = qfw_bits_f32(s);
    return u >= QFW_F32_MIN_NORMAL && u <= QFW_F32_MAX;
}

/* A result >= 0 of a coefficient's arithmetic: 0 below the normal numbers, the largest above. */
static inline float qfw_normal_f32(float v)
{
    const int32_t bits = (int32_t)qfw_bits_f32(v); /* of numbers >= 0, ordered as they are */
    return bits < QFW_F32_MIN_NORMAL ? 0.0f : bits > QFW_F32_MAX ? FLT_MAX : v;
}

static inline bool qfw_is_scale_f64(double s)
{
    const uint64_t u = qfw_bits_f64(s);
    return u >= UINT64_C(0x0010000000000000) && u < UINT64_C(0x7FF0000000000000);
}

#endif

/* Every rounding to integers: docs/numerics.md sections 3, 6, 7 and 10. */
#ifndef QFW_BASE_ROUND_H
#define QFW_BASE_ROUND_H

#include "base/config.h"
#include "base/fixed.h"
#include "base/scale.h"
#include "base/soft.h"
#include "include/qfw.h"

/* a * s_in / s_out, rounded (section 6). |a| <= limit after the clamp, so (|a| << up) < 2^31, mult
 * < 2^31, the high word is below 2^30 and so is every rounding constant: the sums stay below 2^31.
 * The result is at most 2^(30 - down) in magnitude: 2^18 for codes. */
static inline int32_t qfw_rescale(int32_t a, const qfw_ratio *r, qfw_rounding mode, uint32_t u)
{
    if (mode == QFW_STOCHASTIC) {
        const int32_t limit = (int32_t)r->limit, held = a > limit ? limit : a < -limit ? -limit : a;
        const int32_t hi = qfw_mulhi_floor(held * (1 << r->up), r->mult);
        return (hi + (int32_t)(u >> (32 - r->down))) >> r->down;
    }
    const uint32_t magnitude = qfw_abs32(a) < r->limit ? qfw_abs32(a) : r->limit;
    const uint32_t lifted = magnitude << r->up;
    const uint32_t hi = qfw_mulhi(lifted, r->mult);
    const uint32_t half = UINT32_C(1) << (r->down - 1);
    const uint32_t sum = hi + half;
    uint32_t v = sum >> r->down;
    if (QFW_HAS_HALF_EVEN && mode == QFW_HALF_EVEN && (sum & (2 * half - 1)) == 0 &&
        qfw_mul32(lifted, r->mult) == 0) {
        v &= ~UINT32_C(1);
    }
    return a < 0 ? -(int32_t)v : (int32_t)v;
}

/* The result above to the nearest, half away, of a ratio mult 2^-(33 + down) that is no clamped one, up
 * being 28 - bits - down >= 1 and down <= 29: with P = |a| mult it is floor(P / 2^(33 + down) + 1/2),
 * half up after a floor being half up of all of it, with a's sign. Of a < 0 that is the same of -P - 1.
 * P has 62 bits, so |a| <= limit need not hold: where it does not, that result leaves the codes, and one
 * that is larger does so too. */
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
static inline int32_t qfw_near(int32_t a, uint32_t mult, uint32_t down)
{
    const int32_t v = (int32_t)(((qfw_mulhi_split(qfw_abs32(a), mult) >> down) + 1) >> 1);
    return a < 0 ? -v : v;
}
#else
static inline int32_t qfw_near(int32_t a, uint32_t mult, uint32_t down)
{
    const int64_t p = (int64_t)a * (int32_t)mult + (a >> 31);
    return (((int32_t)(p >> 32) >> down) + 1) >> 1;
}
#endif

/* a * factor, the exact product half away from zero, at most 2^31 - 1 in magnitude (section 21);
 * factor is 0 or mant * 2^exp with mant < 2^24. |a| * mant < 2^55 and half a unit is at most
 * 2^56. Moved up by 31 bits or more any product but 0 is too large, down by 57 or more all are under
 * 1/2. */
static inline int32_t qfw_scaled(int32_t a, const qfw_num *factor)
{
    const uint64_t p = (uint64_t)qfw_abs32(a) * factor->mant, most = INT32_MAX;
    uint64_t v;
    if (factor->exp >= 0) {
        const int32_t up = factor->exp < 31 ? factor->exp : 31;
        v = p > most >> up ? most : p << up;
    } else {
        const int32_t down = factor->exp > -57 ? -factor->exp : 57;
        v = (p + (UINT64_C(1) << (down - 1))) >> down;
        v = v < most ? v : most;
    }
    return a < 0 ? -(int32_t)v : (int32_t)v;
}

/* a * 2^up / by, half away from zero; up <= 30, by >= 1, and a quotient that an int32 holds: |a| 2^up
 * + by / 2 < 2^62. */
static inline int32_t qfw_quotient(int32_t a, uint32_t up, int64_t by)
{
    const uint64_t size = ((uint64_t)qfw_abs32(a) << up) + (uint64_t)by / 2;
    const int32_t v = (int32_t)(size / (uint64_t)by);
    return a < 0 ? -v : v;
}

/* A code of 16 bits at a scale as large as its own or larger, with 13 more bits, towards zero
 * (section 23): the high word of the product above, for the ratio to 16 bits. Below 2^28. */
enum { QFW_JOINED_BITS = 13 };

static inline int32_t qfw_joined(int32_t a, const qfw_ratio *r)
{
    const uint32_t magnitude = qfw_abs32(a) < r->limit ? qfw_abs32(a) : r->limit;
    const uint32_t v = qfw_mulhi(magnitude << r->up, r->mult) >> (r->down - QFW_JOINED_BITS);
    return a < 0 ? -(int32_t)v : (int32_t)v;
}

/* half_away(v / 2^shift), |v| < 2^63, 0 <= shift <= 62. */
static inline int64_t qfw_shifted(int64_t v, int32_t shift)
{
    const uint64_t size = (uint64_t)(v < 0 ? -v : v);
    const uint64_t half = shift != 0 ? UINT64_C(1) << (shift - 1) : 0;
    const int64_t out = (int64_t)((size + half) >> shift);
    return v < 0 ? -out : out;
}

/* Stands for every quotient of at least 2^17: no code is that large. */
enum { QFW_QUOTIENT_MAX = 1 << 17 };

/* The exact quotient x / s, rounded (section 7); x finite.
 * With x = a 2^x_e and s = mant 2^exp the quotient is a 2^d / mant, d = x_e - exp. Its floor is
 * estimated as (a * recip) >> (54 - d): never above it, and short of it by less than a 2^(d-54) <
 * 2^-13, so by one at most. The remainder then is below 2 mant < 2^25, so 32 bits hold it exactly
 * although the numerator needs 41. */
static inline int32_t qfw_round_quotient(float x, const qfw_divisor *s, qfw_rounding mode,
                                         uint32_t u)
{
    const uint32_t bits = qfw_bits_f32(x), e = (bits >> 23) & 0xFFu;
    const bool negative = bits >> 31 != 0;
    const uint32_t a = (bits & 0x7FFFFFu) | (e != 0 ? 0x800000u : 0u);
    const int32_t d = (int32_t)(e != 0 ? e : 1) - 150 - s->exp;
    if (d > 17 && a != 0) {
        return negative ? -QFW_QUOTIENT_MAX : QFW_QUOTIENT_MAX;
    }
    if (mode == QFW_HALF_AWAY) { /* twice the quotient below, its floor and one more are halved */
        uint32_t twice = 0;
        if (d >= -1 && a != 0) {                        /* else it is under 1 */
            twice = qfw_mulhi(a, s->recip) >> (21 - d); /* of the product, 53 - d */
            const uint32_t over = qfw_mul32(a, UINT32_C(1) << (d + 1));
            twice += qfw_sub32(over, qfw_mul32(twice, s->mant)) >= s->mant ? 1u : 0u;
        }
        const int32_t half_up = (int32_t)((twice + 1) >> 1);
        return negative ? -half_up : half_up;
    }
    uint32_t floor_q = 0, rest = a;
    if (d >= 0) {
        floor_q = (uint32_t)(((uint64_t)a * s->recip) >> (54 - d));
        rest = qfw_sub32((uint32_t)((uint64_t)a << d), qfw_mul32(floor_q, s->mant));
        if (rest >= s->mant) {
            rest -= s->mant;
            floor_q++;
        }
    }
    /* The fraction is rest / (mant 2^below); below > 0 only where the quotient is under 1. Past 63
     * nothing changes: fraction >> 63 is 0 already. */
    const uint32_t below = d >= 0 ? 0 : d > -63 ? (uint32_t)-d : 63;
    bool up;
    if (mode == QFW_STOCHASTIC) {
        const uint64_t fraction = (uint64_t)rest << 32; /* < 2^57; 2^32 mant 2^below would be 1 */
        if (negative) { /* floor(-y + u): one further down if u < fraction */
            up = fraction != 0 && (uint64_t)u * s->mant <= (fraction - 1) >> below;
        } else { /* floor(y + u): up if fraction >= 1 - u */
            up = ((UINT64_C(1) << 32) - u) * s->mant <= fraction >> below;
        }
    } else {
        const uint64_t one = (uint64_t)s->mant
                             << (below < 3 ? below : 3); /* from 3 on the fraction is under 1/4 */
        const uint64_t twice = 2 * (uint64_t)rest;
        up = twice > one || (twice == one && (floor_q & 1u) != 0);
    }
    const int32_t v = (int32_t)(floor_q + (up ? 1u : 0u));
    return negative ? -v : v;
}

/* The same to the nearest, half away, in fewer steps for most numbers. With n = 2^8 a and the high word h
 * of n recip, 2 |x| / s = 2^-k H, h <= H < h + 2, k = 29 - d. Where 12 <= k <= 29, which leaves subnormal
 * numbers out, and the last 12 bits of h are not all 1, the floor of it is h >> k; that and one more is
 * halved. */
static inline int32_t qfw_nearest_quotient(float x, const qfw_divisor *s)
{
    const uint32_t bits = qfw_bits_f32(x), twice = qfw_mul32(bits, 2);
    if (twice == 0) {
        return 0;
    }
    const uint32_t k = qfw_sub32((uint32_t)(s->exp + 179), twice >> 24);
    const uint32_t h = qfw_mulhi(qfw_mul32(twice, 1u << 7) | 0x80000000u, s->recip);
    if (qfw_sub32(k, 12) > 17 || ((h + 1) & 0xFFFu) == 0) {
        return qfw_round_quotient(x, s, QFW_HALF_AWAY, 0);
    }
    const int32_t v = (int32_t)(((h >> k) + 1) >> 1);
    return bits >> 31 != 0 ? -v : v;
}

/* A real to an integer of at most 2^33 in magnitude (section 10). Floats widen exactly. */
static inline int64_t qfw_round_real(double t, qfw_rounding mode, uint32_t u)
{
    const double top = 8589934592.0;
    t = t > top ? top : t < -top ? -top : t;
    const int64_t n = (int64_t)t;   /* towards zero */
    const double f = t - (double)n; /* exact, |f| < 1 */
    switch (mode) {
    case QFW_STOCHASTIC: {
        const double scaled = f * 4294967296.0; /* exact: a power of two */
        int64_t g = (int64_t)scaled;
        g -= (double)g > scaled ? 1 : 0; /* floor(f 2^32) */
        return n + ((g + (int64_t)u) >> 32);
    }
    case QFW_HALF_EVEN:
        return n + (f > 0.5 || (f == 0.5 && (n & 1) != 0)) -
               (f < -0.5 || (f == -0.5 && (n & 1) != 0));
    case QFW_HALF_AWAY:
    default:
        return n + (f >= 0.5) - (f <= -0.5);
    }
}

/* m * s rounded once to float32, nearest even; any int32, s normal. Up to 24 bits of m the float
 * product does just that. */
static inline float qfw_product_f32(int32_t m, float s)
{
    const uint32_t magnitude = qfw_abs32(m);
    if (!QFW_SOFT_FLOAT && magnitude <= UINT32_C(1) << 24) {
        return (float)m * s;
    }
    const qfw_num n = qfw_num_normal(s);
    const uint64_t p = (uint64_t)n.mant * magnitude; /* 2^47 < p < 2^56 */
    if (QFW_SOFT_FLOAT && QFW_IS_SMALL) {
        const float size = qfw_soft_float(p, n.exp);
        return m < 0 ? -size : size;
    }
    if (QFW_SOFT_FLOAT) { /* p as an even number of 56 or 57 bits */
        const int up = magnitude != 0 ? 32 - qfw_msb64(magnitude) : 0;
        uint32_t exp = (uint32_t)(n.exp + 181 - up);
        const uint32_t bits = qfw_soft_near(p << up, &exp);
        const float size =
            exp <= 252 && magnitude != 0 ? qfw_from_bits_f32(bits) : qfw_soft_float(p, n.exp);
        return m < 0 ? -size : size;
    }
    const int drop = qfw_msb64(p) - 23;
    const uint64_t kept = p >> drop, rest = p & ((UINT64_C(1) << drop) - 1),
                   half = UINT64_C(1) << (drop - 1);
    const uint64_t mant =
        kept +
        (rest > half || (rest == half && (kept & 1) != 0)); /* 2^24 is a power of two: exact */
    const int32_t exp = n.exp + drop;
    /* exp > -126, so 2^exp is normal. mant >= 2^23: from 2^105 on the product is infinite, whatever
     * the power. */
    const float value =
        (float)(uint32_t)mant * qfw_from_bits_f32((uint32_t)((exp < 127 ? exp : 127) + 127) << 23);
    return m < 0 ? -value : value;
}

/* 1 / s rounded once, nearest even, subnormal results included (compilers' soft floats differ
 * there); s normal. */
static inline float qfw_reciprocal_f32(float s)
{
    const qfw_num n = qfw_num_f32(s);
    const uint64_t q = (UINT64_C(1) << 54) / n.mant,
                   rest = (UINT64_C(1) << 54) % n.mant; /* 2^30 < q <= 2^31 */
    /* 1 / s = q 2^(-54 - exp). Keep 24 bits, fewer where the last would fall below 2^-149. */
    const int normal = qfw_msb64(q) - 23, floor_drop = 54 + n.exp - 149;
    const int drop = normal > floor_drop ? normal : floor_drop;
    const uint64_t kept = q >> drop, low = q & ((UINT64_C(1) << drop) - 1),
                   half = UINT64_C(1) << (drop - 1);
    const bool up = low > half || (low == half && (rest != 0 || (kept & 1) != 0));
    /* kept 2^(drop - 54 - exp), exactly: exponent field of the last bit plus the significand, whose
     * carry is right too. */
    const uint32_t field = (uint32_t)(drop - 54 - n.exp + 149);
    const uint32_t significand = (uint32_t)kept + (up ? 1u : 0u);
    return qfw_from_bits_f32((field << 23) + significand);
}

/* For float64, which no device computes in: the host's division is IEEE's. */
static inline double qfw_reciprocal_f64(double s)
{
    return 1.0 / s;
}

/* The one float division: below the smallest normal number the result is 0 with the quotient's
 * sign, since compilers' soft floats differ there. */
static inline float qfw_div_f32(float a, float b)
{
    const float q = a / b;
    const uint32_t bits = qfw_bits_f32(q);
    return (bits & 0x7FFFFFFFu) < QFW_F32_MIN_NORMAL ? qfw_from_bits_f32(bits & 0x80000000u) : q;
}

/* Coefficients, 0 or positive and normal (a divisor not 0): a * b and a / b, 0 below the normal numbers,
 * the largest above. */
static inline float qfw_coef_mul(float a, float b)
{
    return QFW_SOFT_FLOAT ? qfw_soft_mul(a, b) : qfw_normal_f32(a * b);
}

static inline float qfw_coef_div(float a, float b)
{
    return QFW_SOFT_FLOAT ? qfw_soft_div(a, b) : qfw_normal_f32(qfw_div_f32(a, b));
}

static inline double qfw_div_f64(double a, double b)
{
    const double q = a / b;
    const uint64_t bits = qfw_bits_f64(q);
    const uint64_t magnitude = bits & UINT64_C(0x7FFFFFFFFFFFFFFF);
    return magnitude < UINT64_C(0x0010000000000000) ? qfw_from_bits_f64(bits ^ magnitude) : q;
}

#endif

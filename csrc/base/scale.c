#include "base/scale.h"
#include "base/round.h"

/* n / d, d < 2^24: one instruction on a machine of 64 bits; else the high word, then a byte of the
 * low one at a time, which with a remainder is a word. Where words are divided by an instruction that
 * is less than the compiler's helper. */
static uint64_t divided(uint64_t n, uint32_t d, uint32_t *rest)
{
    if (SIZE_MAX > UINT32_MAX) {
        *rest = (uint32_t)(n % d);
        return n / d;
    }
    if (QFW_IS_SMALL) { /* a byte at a time */
        uint64_t q = 0;
        *rest = 0;
        for (int i = 0; i < 8; i++, n <<= 8) {
            const uint32_t word = *rest << 8 | (uint32_t)(n >> 56);
            q = q << 8 | word / d;
            *rest = word % d;
        }
        return q;
    }
    const uint32_t high = (uint32_t)(n >> 32);
    uint32_t low = (uint32_t)(n & 0xFFFFFFFFu), q = 0;
    if (high >> 8 == 0) { /* a word and a byte */
        const uint32_t most = high << 24 | low >> 8, word = most % d << 8 | (low & 0xFFu);
        *rest = word % d;
        return ((uint64_t)(most / d) << 8) + word / d;
    }
    uint32_t r = high % d;
    for (int i = 0; i < 4; i++) {
        const uint32_t word = r << 8 | low >> 24;
        q = q << 8 | word / d;
        r = word % d;
        low <<= 8;
    }
    *rest = r;
    return (uint64_t)(high / d) << 32 | q;
}

/* Eight bits more of a quotient; a rest is below `by` < 2^24, so a word with them. */
static inline uint32_t digit(uint32_t q, uint32_t *rest, uint32_t by, uint32_t next)
{
    const uint32_t word = *rest << 8 | next, more = word / by;
    *rest = word - more * by;
    return (q << 8) + more;
}

/* floor(n 2^30 / by), by <= n <= 2 by, by < 2^24: 1, then thirty bits. */
static uint32_t thirty_bits(uint32_t n, uint32_t by)
{
    uint32_t rest = n - by;
    if (SIZE_MAX > UINT32_MAX) {
        return (uint32_t)(((uint64_t)n << 30) / by);
    }
    const uint32_t first = (rest << 6) / by;
    rest = (rest << 6) - first * by;
    const uint32_t two = digit(64 + first, &rest, by, 0), three = digit(two, &rest, by, 0);
    return digit(three, &rest, by, 0);
}

/* Shifts to `width` bits, rounding up. `sticky`: something below the last bit was dropped already;
 * then mant has more than `width` bits. */
static qfw_num normalise_up(uint64_t mant, int32_t exp, bool sticky, int width)
{
    qfw_num r = {0, 0};
    if (mant == 0) {
        return r;
    }
    const int drop = qfw_msb64(mant) - (width - 1);
    if (drop <= 0) {
        r.mant = (qfw_mant)(mant << -drop);
    } else {
        const uint64_t rest = mant & ((UINT64_C(1) << drop) - 1);
        r.mant = (qfw_mant)((mant >> drop) + (rest != 0 || sticky));
    }
    r.exp = exp + drop;
    if ((uint64_t)r.mant >> width != 0) { /* 2^width: exact after one more shift */
        r.mant >>= 1;
        r.exp++;
    }
    return r;
}

qfw_num qfw_num_f32(float v)
{
    const uint32_t u = qfw_bits_f32(v) & 0x7FFFFFFFu, e = u >> 23;
    const int up = e == 0 && u != 0 ? 23 - qfw_msb64(u) : 0;
    const qfw_num normal = {(u & 0x7FFFFFu) | 0x800000u, (int32_t)e - 150};
    const qfw_num below = {u << up, u != 0 ? -149 - up : 0};
    return e != 0 ? normal : below;
}

qfw_num qfw_num_f64(double v)
{
    const uint64_t u = qfw_bits_f64(v) & UINT64_C(0x7FFFFFFFFFFFFFFF), e = u >> 52;
    const uint64_t mant = (u & UINT64_C(0xFFFFFFFFFFFFF)) | (e != 0 ? UINT64_C(1) << 52 : 0u);
    return normalise_up(mant, (int32_t)(e != 0 ? e : 1) - 1075, false, 53);
}

/* From a quotient of words, over < 2^17. The quotient of the high word has 15 bits at least; bytes of the
 * low one make that 24 or more. */
qfw_num qfw_num_short_up(uint64_t num, int32_t exp, uint32_t over)
{
    const qfw_num none = {0, 0};
    if (num == 0) {
        return none;
    }
    uint32_t high = (uint32_t)(num >> 32), low = (uint32_t)(num & 0xFFFFFFFFu);
    uint32_t q = high / over, rest = high - q * over;
    for (exp += 32; q >> 23 == 0; exp -= 8) {
        q = digit(q, &rest, over, low >> 24);
        low = (low & 0xFFFFFFu) << 8;
    }
    const int drop = qfw_msb64(q) - 23;
    const uint32_t mant = q >> drop, more = (q - (mant << drop)) | rest | low;
    const uint32_t up = mant + (more != 0 ? 1u : 0u), carry = up >> 24; /* 2^24: one bit less */
    const qfw_num r = {up >> carry, exp + drop + (int32_t)carry};
    return r;
}

qfw_num qfw_num_ratio_up(qfw_num v, uint32_t times, uint32_t over, int width)
{
    uint64_t num = (uint64_t)v.mant * times; /* < 2^63 */
    int32_t exp = v.exp;
    const int lift = num != 0 ? 62 - qfw_msb64(num) : 0;
    num <<= lift;
    exp -= lift;
    if (width == 24) {
        return qfw_num_short_up(num << 1, exp - 1, over);
    }
    if (num == 0) {
        return normalise_up(0, 0, false, width);
    }
    /* num >= 2^62 and over < 2^17: the quotient has at least 45 bits. Where more are asked for and
     * that is short of 54, ten more follow; they fit, since a quotient below 2^54 times 2^10 does. */
    uint32_t rest;
    uint64_t quo = divided(num, over, &rest);
    if (width > 44 && quo >> 54 == 0) {
        const uint32_t more = rest << 10;
        quo = quo << 10 | more / over;
        rest = more % over;
        exp -= 10;
    }
    return normalise_up(quo, exp, rest != 0, width);
}

qfw_num qfw_num_add_up(qfw_num a, qfw_num b, int width)
{
    if (a.mant == 0 || b.mant == 0) {
        return a.mant == 0 ? b : a;
    }
    const qfw_num big = a.exp >= b.exp ? a : b, small = a.exp >= b.exp ? b : a;
    const int32_t room = 62 - width, apart = big.exp - small.exp;
    const uint64_t low = (uint64_t)small.mant << room; /* < 2^62 */
    const uint64_t shifted = apart < 63 ? low >> apart : 0;
    const bool sticky = apart < 63 ? (shifted << apart) != low : true;
    return normalise_up(((uint64_t)big.mant << room) + shifted, big.exp - room, sticky, width);
}

qfw_num qfw_num_max(qfw_num a, qfw_num b)
{
    if (a.mant == 0 || b.mant == 0) {
        return a.mant == 0 ? b : a;
    }
    const bool a_larger = a.exp != b.exp ? a.exp > b.exp : a.mant >= b.mant;
    return a_larger ? a : b;
}

float qfw_num_scale_f32(qfw_num v, bool pow2)
{
    if (v.mant == 0) {
        return 1.0f;
    }
    if (QFW_HAS_POW2 && pow2 && v.mant != 0x800000u) {
        v.mant = 0x800000u;
        v.exp++;
    }
    if (v.exp < -149) {
        return FLT_MIN;
    }
    if (v.exp > 104) {
        return pow2 ? 0x1p127f : FLT_MAX;
    }
    return qfw_from_bits_f32((uint32_t)(v.exp + 150) << 23 | ((uint32_t)v.mant & 0x7FFFFFu));
}

double qfw_num_scale_f64(qfw_num v)
{
    if (v.mant == 0) {
        return 1.0;
    }
    if (v.exp < -1074) {
        return DBL_MIN;
    }
    if (v.exp > 971) {
        return DBL_MAX;
    }
    return qfw_from_bits_f64((uint64_t)(v.exp + 1075) << 52 | (v.mant & UINT64_C(0xFFFFFFFFFFFFF)));
}

uint32_t qfw_num_zero_point(qfw_num v, qfw_num s, uint32_t top)
{
    const int32_t up = v.exp - s.exp;
    if (v.mant == 0 || up < -1) { /* v / s < 2 * 2^-2 */
        return 0;
    }
    if (up > 17) { /* v / s > 2^18 / 2 */
        return top;
    }
    if (up == -1) { /* v / s in (1/4, 1): at least 1/2 if v.mant >= s.mant */
        return v.mant >= s.mant && top > 0 ? 1 : 0;
    }
    uint64_t rest = v.mant % s.mant;
    uint32_t z = (uint32_t)(v.mant / s.mant); /* 0 or 1 */
    for (int32_t i = 0; i < up;
         i++) { /* long division, a bit at a time: no product of two mantissas */
        rest <<= 1;
        z = z << 1 | (rest >= s.mant ? 1u : 0u);
        rest -= rest >= s.mant ? s.mant : 0;
    }
    z += 2 * rest >= s.mant ? 1u : 0u;
    return z < top ? z : top;
}

qfw_num qfw_scale_for(float s_in, uint32_t m, uint32_t q)
{
    return qfw_num_ratio_up(qfw_num_normal(s_in), m, q, 24);
}

qfw_divisor qfw_divisor_of(float s)
{
    const uint32_t bits = qfw_bits_f32(s), mant = qfw_mantissa(bits);
    const qfw_divisor d = {mant, thirty_bits(UINT32_C(1) << 24, mant), (int32_t)(bits >> 23) - 150};
    return d;
}

qfw_ratio qfw_ratio_of(float s_in, float s_out, int bits)
{
    const uint32_t in = qfw_bits_f32(s_in), out = qfw_bits_f32(s_out);
    const int32_t d = qfw_mantissa(in) < qfw_mantissa(out) ? 1 : 0;
    const uint32_t q = thirty_bits(qfw_mantissa(in) << d, qfw_mantissa(out)); /* below 2^31 */
    const int32_t k = 30 - ((int32_t)(in >> 23) - (int32_t)(out >> 23)) + d;
    const int32_t e = 61 - k - bits, t = k - 32;
    qfw_ratio r = {q, 0, (uint8_t)(29 - bits), INT32_MAX};
    if (e > 30) { /* any a but 0 saturates */
        r.mult = INT32_MAX;
        r.up = 30;
    } else if (e >= 0) {
        r.up = (uint8_t)e;
    } else if (t <= 30) {
        r.down = (uint8_t)t;
    } else {
        r.mult = t <= 60 ? q >> (t - 30) : 0;
        r.down = 30;
    }
    r.limit = (uint32_t)INT32_MAX >> r.up;
    return r;
}

static float clamped(float s)
{
    const uint32_t bits = qfw_bits_f32(s); /* s >= 0: ordered as the floats are */
    return bits < QFW_F32_MIN_NORMAL ? FLT_MIN : bits > QFW_F32_MAX ? FLT_MAX : s;
}

float qfw_scale_mul(float a, float b)
{
    return clamped(qfw_coef_mul(a, b));
}

/* Where floats are software, a product that may leave the normal floats is left to qfw_soft_mul. */
void qfw_scales_mul(float a, const float *b, size_t n, float *out)
{
    for (size_t i = 0; !QFW_SOFT_FLOAT && i < n; i++) { /* words of what is >= 0 are in its order */
        const int32_t bits = (int32_t)qfw_bits_f32(a * b[i]);
        const int32_t held = bits < QFW_F32_MIN_NORMAL ? QFW_F32_MIN_NORMAL : bits;
        out[i] = qfw_from_bits_f32((uint32_t)(held > QFW_F32_MAX ? QFW_F32_MAX : held));
    }
    if (!QFW_SOFT_FLOAT) {
        return;
    }
    const qfw_soft_factor by = qfw_soft_factor_of(a);
    for (const float *end = b + n; b < end; b++) {
        uint32_t exp;
        const uint32_t bits = qfw_soft_times(by, qfw_bits_f32(*b), &exp);
        *out++ = exp <= 252 ? qfw_from_bits_f32(bits) : qfw_scale_mul(a, *b);
    }
}

float qfw_scale_quot(float a, float b)
{
    return clamped(qfw_coef_div(a, b));
}

float qfw_scale_lift(float s, int32_t h)
{
    const uint32_t bits = qfw_bits_f32(s);
    const int32_t e = (int32_t)(bits >> 23) + h;
    if (e < 1) {
        return FLT_MIN;
    }
    return e > 254 ? FLT_MAX : qfw_from_bits_f32((uint32_t)e << 23 | (bits & 0x7FFFFFu));
}

qfw_seed qfw_seed_of(int64_t value, int32_t exp, float sigma)
{
    const qfw_num s = qfw_num_normal(sigma);
    const uint64_t v = (uint64_t)(value < 0 ? -value : value);
    qfw_seed r = {0, 0};
    if (v == 0) {
        return r;
    }
    const int32_t under = s.exp - exp;
    if (!QFW_IS_SMALL && under >= 0 && under < 32 &&
        v >> 39 == 0) { /* a seed below 2^18: no shift */
        uint32_t rest;
        const uint64_t n = (2 * v + ((uint64_t)s.mant << under)) >> (under + 1);
        r.seed = (int32_t)divided(n, (uint32_t)s.mant, &rest);
        r.seed = value < 0 ? -r.seed : r.seed;
        return r;
    }
    /* v 2^d / mant with v < 2^41 and 2^23 <= mant < 2^24: at least 2^(msb + d - 24). Where that is
     * 2^31 or more even for the largest shift, the seed is at its end. */
    const int msb = qfw_msb64(v);
    int32_t d = exp - s.exp;
    if (msb + d - 24 > 61) {
        r.shift = 31;
        r.seed = (1 << 30) - 1;
    } else if (msb + d < 22) { /* below 2^(msb + 1 + d - 23) <= 1/2 */
        r.seed = 0;
    } else {
        /* To a numerator below 2^63: 22 <= msb + d <= 85. */
        const int32_t over = msb + d > 61 ? msb + d - 61 : 0;
        r.shift = (uint8_t)(over < 31 ? over : 31);
        d -= r.shift;
        /* half away: floor(2 v 2^d / mant), that of half of it, ..., and one more, halved */
        uint32_t rest;
        uint64_t twice = divided(d >= -1 ? v << (d + 1) : v >> (-d - 1), (uint32_t)s.mant, &rest);
        for (; twice >= (UINT64_C(1) << 31) - 1 && r.shift < 31; r.shift++) {
            twice >>= 1;
        }
        r.seed = twice < (UINT64_C(1) << 31) - 1 ? (int32_t)((twice + 1) >> 1) : (1 << 30) - 1;
    }
    r.seed = value < 0 ? -r.seed : r.seed;
    return r;
}

/* The quotient of two mantissas is in (1/2, 2); twice the quotient below, its floor and one more are
 * halved: that is half away. 2^24 2^33 fits. */
uint32_t qfw_units_of(float value, float s)
{
    const qfw_num v = qfw_num_f32(value), n = qfw_num_f32(s);
    const int32_t up = v.exp - n.exp;
    if (up < -1) { /* below 2 * 2^-2 */
        return 0;
    }
    const uint64_t most = UINT64_C(1) << 31;
    const uint64_t twice = ((uint64_t)v.mant << ((up < 32 ? up : 32) + 1)) / n.mant;
    return (uint32_t)((twice + 1) >> 1 < most ? (twice + 1) >> 1 : most);
}

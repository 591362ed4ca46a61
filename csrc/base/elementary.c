#include "base/elementary.h"

#include <math.h>

#include "base/config.h"

/* With t = (n + u) 2^26, 0 <= u < 1:  2^-u = 1 - u (c1 - u (c2 - ... u c7)), everything in units of
 * 2^-32. Each bracket lies between its two first terms, c_k - c_(k+1) > 0 and c_k < 1, so no
 * difference leaves a word. u * bracket <= 1/2, so v >= 2^30; v + 2^n <= 2^31 + 2^30. */
uint32_t qfw_exp2_word(uint32_t t)
{
    static const uint32_t c[] = {2977044459u, 1031764650u, 238385490u, 41298234u,
                                 5702271u,    632021u,     46333u};
    const uint32_t n = t >> 26, u = (t & 0x3FFFFFFu) << 6;
    uint32_t h = c[6];
    if (QFW_MULHI_IS_SPLIT) {
        for (int i = 5; i >= 0; i--) {
            h = c[i] - qfw_mulhi(u, h);
        }
    } else {
        h = c[3] - qfw_mulhi(u, c[4] - qfw_mulhi(u, c[5] - qfw_mulhi(u, h)));
        h = c[0] - qfw_mulhi(u, c[1] - qfw_mulhi(u, c[2] - qfw_mulhi(u, h)));
    }
    const uint32_t v = 0x80000000u - ((qfw_mulhi(u, h) + 1) >> 1); /* 2^31 2^-u */
    return (v + (UINT32_C(1) << n)) >> (n + 1);
}

uint32_t qfw_exp2_q30(uint64_t t)
{
    return t < QFW_EXP2_END ? qfw_exp2_word((uint32_t)t) : 0;
}

qfw_log2_scale qfw_log2_scale_of(qfw_num s)
{
    const qfw_log2_scale out = {(uint32_t)((s.mant * UINT64_C(3098164009)) >> 24), s.exp + 19};
    return out;
}

/* The product is 0 or in [2^30, 2^63), so a shift up by 36 or more saturates it and one down by 63 or
 * more leaves 0: neither is made longer. */
QFW_NOINLINE uint64_t qfw_distance(uint32_t below, const qfw_log2_scale *s)
{
    const uint64_t product = (uint64_t)below * s->mu, top = UINT64_C(1) << 36;
    if (s->shift > 0) {
        const int32_t up = s->shift < 36 ? s->shift : 36;
        return product > top >> up ? top : product << up;
    }
    const uint64_t t = product >> (s->shift > -63 ? -s->shift : 63);
    return t < top ? t : top;
}

/* With s = 2^k (1 + x), 0 <= x < 1:  log2(1 + x) = x + x (1 - x) g(x), which is exact at both ends;
 * g = g0 - x (g1 - x (g2 - ...)) lies between 0.27 and 0.45, everything in units of 2^-32. As for
 * exp2 the brackets stay positive. x (1 - x) g < 1 - x: the sum stays below 1. 1 - x is taken as
 * ~x, one unit less. */
uint64_t qfw_log2_q26(uint64_t s)
{
    static const uint32_t g[] = {1901359917u, 1196762347u, 867926157u, 674322591u, 528593859u,
                                 380185748u,  217954399u,  82551813u,  14792170u};
    const int k = qfw_msb64(s);
    const uint32_t x = (uint32_t)((s << (63 - k)) >> 31); /* the 32 bits below the leading one */
    uint32_t h = g[8];
    for (int i = 7; i >= 0; i--) {
        h = g[i] - qfw_mulhi(x, h);
    }
    const uint32_t y = x + qfw_mulhi(qfw_mulhi(x, ~x), h);
    return ((uint64_t)k << 26) + (y >> 6) + ((y >> 5) & 1u);
}

/* ln 2 = HI + LO; HI has 9 bits, so that its products with exponents are exact. */
static const float LN2_HI = 0x1.63p-1f, LN2_LO = -0x1.bd0106p-13f;

/* x = n ln 2 + r, |r| <= ln 2 / 2:  e^x = 2^n (1 + r + r^2 p(r)), p a minimax polynomial. Adding and
 * taking away 1.5 * 2^23 rounds to an integer, half even; the sum's low bits are n + 2^22. */
float qfw_exp_f32(float x)
{
    if (!(x >= -88.0f)) { /* NaN too */
        return 0.0f;
    }
    const float top = x < 89.0f ? x : 89.0f;
    const float shifted = top * 0x1.715476p+0f + 12582912.0f;
    const float n = shifted - 12582912.0f; /* -127 <= n <= 128 */
    const float r = (top - n * LN2_HI) - n * LN2_LO;
    float p = 0x1.6db446p-10f;
    p = p * r + 0x1.123b6ap-7f;
    p = p * r + 0x1.55545ep-5f;
    p = p * r + 0x1.55548ep-3f;
    p = p * r + 0.5f;
    const float y = (p * (r * r) + r) + 1.0f; /* 0.7 < y < 1.42 */
    /* The exponent by hand: a product would leave a subnormal result to the machine. */
    const uint32_t bits = qfw_bits_f32(y);
    const int32_t field =
        (int32_t)(bits >> 23) + (int32_t)(qfw_bits_f32(shifted) - 0x4B000000u) - 0x400000;
    if (field <= 0) {
        return 0.0f;
    }
    return qfw_from_bits_f32(field < 255 ? (uint32_t)field << 23 | (bits & 0x7FFFFFu)
                                         : (uint32_t)QFW_F32_INF);
}

/* x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2):  ln x = k ln 2 + f - f^2 / 2 + f^3 p(f), p a minimax
 * polynomial. f is exact; the terms are added from the smallest. */
float qfw_log_f32(float x)
{
    static const float c[] = {0x1.55554ap-2f, -0x1.00021ep-2f, 0x1.99a596p-3f, -0x1.5478c4p-3f,
                              0x1.226e64p-3f, -0x1.0cdea2p-3f, 0x1.07cfb8p-3f, -0x1.41f470p-4f};
    const uint32_t half_root = 0x3F3504F3u; /* the bits of sqrt(1/2) */
    const uint32_t above = qfw_sub32(qfw_bits_f32(x), half_root);
    const float k = (float)(int32_t)(above >> 23);
    const float f = qfw_from_bits_f32((above & 0x7FFFFFu) + half_root) - 1.0f;
    const float square = f * f;
    float p = c[7];
    for (int i = 6; i >= 0; i--) {
        p = p * f + c[i];
    }
    const float rest = ((f * square) * p + k * LN2_LO) - 0.5f * square;
    return (f + rest) + k * LN2_HI;
}

#if QFW_DIRECT

/* Digit by digit. After the digit `bit`, root is the root so far times 2 bit and rest what its square
 * leaves of w: rest < 2 (root + bit), so no sum leaves 64 bits. */
uint32_t qfw_isqrt(uint64_t w)
{
    uint64_t rest = w, root = 0;
    for (uint64_t bit = UINT64_C(1) << 62; bit != 0; bit >>= 2) {
        const uint64_t with = root + bit;
        root >>= 1;
        if (rest >= with) {
            rest -= with;
            root += bit;
        }
    }
    return (uint32_t)root;
}

#else

/* One step of Newton's from the root of the float nearby, which is off by less than 2^-22 of itself:
 * then by less than 2. No square leaves 64 bits, as the root is below 2^32. */
uint32_t qfw_isqrt(uint64_t w)
{
    if (w == 0) {
        return 0;
    }
    const uint64_t most = UINT32_MAX, near = (uint64_t)sqrtf((float)w);
    uint64_t root = (near + w / near) / 2;
    root = root < most ? root : most;
    while (root * root > w) {
        root--;
    }
    while (root < most && (root + 1) * (root + 1) <= w) {
        root++;
    }
    return (uint32_t)root;
}

#endif

qfw_root qfw_rsqrt(uint64_t w)
{
    const int up = (63 - qfw_msb64(w)) & ~1;
    const uint32_t r = qfw_isqrt(w << up); /* 2^31 <= r */
    const uint64_t rho = (UINT64_C(1) << 62) / r;
    const qfw_root root = {rho > INT32_MAX ? (uint32_t)INT32_MAX : (uint32_t)rho, up / 2 - 62};
    return root;
}

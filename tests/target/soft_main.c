/* Floats made of integers against the machine's own: products, quotients and integers, at every edge and
 * at random. */
#include "base/round.h"
#include "engine/slopes.h"
#include "kernels/kernels.h"
#include "kernels/seeds.h"
#include "report.h"
#include "source.h"

enum { RANDOM = 20000 };

static void check(float a, float b, unsigned number)
{
    report_check(qfw_bits_f32(qfw_soft_mul(a, b)) == qfw_bits_f32(qfw_normal_f32(a * b)), number,
                 "a product");
    if (qfw_bits_f32(a) != 0 && qfw_bits_f32(b) != 0) {
        float product;
        qfw_scales_mul(a, &b, 1, &product);
        report_check(qfw_bits_f32(product) == qfw_bits_f32(qfw_scale_mul(a, b)), number,
                     "a product of scales");
        uint32_t exp;
        const uint32_t bits = qfw_soft_times(qfw_soft_factor_of(a), qfw_bits_f32(b), &exp);
        const float normal = qfw_normal_f32(a * b);
        const bool inside = qfw_bits_f32(normal) >= 2u << 23 && qfw_bits_f32(normal) < 253u << 23;
        report_check(exp <= 252 ? bits == qfw_bits_f32(normal) : !inside, number,
                     "a product of scales by bits");
    }
    if (qfw_bits_f32(b) != 0) {
        const float quotient = qfw_normal_f32(qfw_div_f32(a, b));
        report_check(qfw_bits_f32(qfw_soft_div(a, b)) == qfw_bits_f32(quotient), number,
                     "a quotient");
        report_check(qfw_bits_f32(qfw_soft_div_upper(a, b)) ==
                         (qfw_bits_f32(quotient) & 0xFFFFFF00u),
                     number, "the upper bits of a quotient");
    }
}

/* Mantissas next to powers of two and to the middle, exponents at both ends and around 1. */
static unsigned check_edges(void)
{
    static const uint32_t exponents[] = {1, 2, 63, 64, 65, 126, 127, 128, 190, 191, 253, 254};
    static const uint32_t mantissas[] = {0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF};
    enum { E = sizeof exponents / sizeof *exponents, M = sizeof mantissas / sizeof *mantissas };
    unsigned number = 0;
    for (uint32_t i = 0; i <= E * M; i++) {
        for (uint32_t j = 0; j <= E * M; j++, number++) {
            const uint32_t a = i < E * M ? exponents[i / M] << 23 | mantissas[i % M] : 0;
            const uint32_t b = j < E * M ? exponents[j / M] << 23 | mantissas[j % M] : 0;
            check(qfw_from_bits_f32(a), qfw_from_bits_f32(b), number);
        }
    }
    return number;
}

static float scale(source *s)
{
    return qfw_from_bits_f32((1 + below(s, 254)) << 23 | below(s, 1u << 23));
}

static unsigned check_random(void)
{
    source s = {{5, 6}, 0};
    for (unsigned number = 0; number < RANDOM; number++) {
        const float a = scale(&s), b = scale(&s);
        check(a, b, number);
        check(a, qfw_from_bits_f32(qfw_bits_f32(b) & 0xFFFFF000u), number);
        /* Quotients next to those of 16 bits. */
        const float near = qfw_soft_mul(b, qfw_from_bits_f32(qfw_bits_f32(a) & 0xFFFFFF00u));
        const uint32_t off = qfw_bits_f32(near) - 3 + below(&s, 6);
        if (qfw_bits_f32(near) > 0x00800003u && off < 0x7F7FFFFFu) {
            check(qfw_from_bits_f32(off), b, number);
        }
    }
    return RANDOM;
}

/* 16 bits of a * b / c, as floats that are rounded twice, and of a / c; what is told to be clear is that. */
static void check_slope(float a, float b, float c, unsigned number, unsigned *clear)
{
    const slope_factor x = slope_factor_of(a), y = slope_factor_of(b);
    const qfw_soft_number z = qfw_soft_number_of(c);
    const uint32_t by = slope_reciprocal(z.mant);
    const uint32_t one = qfw_bits_f32(qfw_soft_div(a, c)),
                   two = qfw_bits_f32(qfw_soft_div(qfw_soft_mul(a, b), c));
    qfw_soft_upper k;
    if (one >= 2u << 23 && one < 253u << 23) {
        const bool told = slope_near(qfw_mulhi(by, x.mant), qfw_sub32(x.field + 127, z.field), &k);
        *clear += told ? 1 : 0;
        report_check(!told || (k.field == one >> 23 && (k.mu & 0x7FFFu) == (one >> 8 & 0x7FFFu)),
                     number, "a slope");
    }
    if (two >= 2u << 23 && two < 253u << 23 && x.field + y.field >= 128 &&
        x.field + y.field <= 380) {
        const bool told = slope_near(qfw_mulhi(qfw_mulhi(by, x.mant), y.mant),
                                     qfw_sub32(x.field + y.field + 1, z.field), &k);
        *clear += told ? 1 : 0;
        report_check(!told || (k.field == two >> 23 && (k.mu & 0x7FFFu) == (two >> 8 & 0x7FFFu)),
                     number, "a slope of a product");
    }
    qfw_soft_upper q;
    if (one >= 1u << 23 && one < 254u << 23 && qfw_soft_find_upper(qfw_soft_number_of(a), z, &q)) {
        report_check(q.field == one >> 23 && (q.mu & 0x7FFFu) == (one >> 8 & 0x7FFFu), number,
                     "the upper bits of a quotient, found");
    }
}

static unsigned check_slopes(void)
{
    source s = {{11, 12}, 0};
    unsigned clear = 0;
    for (unsigned number = 0; number < RANDOM; number++) {
        const float a = scale(&s), b = scale(&s), c = scale(&s);
        const uint32_t last = below(&s, 3) == 0   ? 0xFFFFFF00u
                              : below(&s, 2) == 0 ? 0xFF800000u
                                                  : ~0u;
        const float near = qfw_soft_mul(c, qfw_from_bits_f32(qfw_bits_f32(a) & 0xFFFFFF00u));
        const uint32_t off = qfw_bits_f32(near) - 600 + below(&s, 1200);
        check_slope(a, b, c, number, &clear);
        check_slope(a, qfw_from_bits_f32(qfw_bits_f32(b) & last),
                    qfw_from_bits_f32(qfw_bits_f32(c) & last), number, &clear);
        if (qfw_bits_f32(near) > 0x00800400u && off < 0x7F7FFFFFu) {
            check_slope(qfw_from_bits_f32(off), b, c, number, &clear);
        }
        const uint32_t of_b = qfw_bits_f32(qfw_soft_div(near, b)), by = of_b - 2 + below(&s, 5);
        if (of_b > 2u << 23 && of_b < 253u << 23) { /* times b over c next to 16 bits */
            check_slope(qfw_from_bits_f32(by), b, c, number, &clear);
        }
    }
    report_check(clear > RANDOM, 0, "slopes that are clear");
    return RANDOM;
}

/* Integers of every length, and times a scale. */
static unsigned check_integers(void)
{
    source s = {{7, 8}, 0};
    for (unsigned number = 0; number < RANDOM; number++) {
        const uint32_t size = word(&s) >> below(&s, 32);
        const uint64_t large = ((uint64_t)word(&s) << 32 | word(&s)) >> below(&s, 64);
        const int32_t m = (int32_t)(size >> 1);
        const float unit = scale(&s);
        const qfw_num n = qfw_num_f32(unit);
        report_check(qfw_bits_f32(qfw_soft_float(size, 0)) == qfw_bits_f32((float)size), number,
                     "a word");
        report_check(qfw_bits_f32(qfw_soft_float(large, 0)) == qfw_bits_f32(qfw_float_u64(large)),
                     number, "two words");
        report_check(qfw_bits_f32(qfw_soft_float(n.mant * (uint32_t)m, n.exp)) ==
                         qfw_bits_f32(qfw_product_f32(m, unit)),
                     number, "times a scale");
    }
    return RANDOM;
}

/* Seeds at products of scales, of int16. */
static void check_seeded(int32_t m, float by, float a, float b, unsigned number)
{
    const int16_t code = (int16_t)(m % 32768);
    const float s = qfw_scale_mul(a, b);
    const qfw_num n = qfw_num_f32(by);
    const qfw_seed told = qfw_seed_of((int64_t)n.mant * code, n.exp, s);
    const float after = qfw_scale_lift(s, told.shift);
    float sigma;
    int32_t seed;
    uint8_t shift;
    qfw_seeded_scales(&code, by, a, &b, 1, 1, &sigma, &seed, &shift);
    report_check(seed == told.seed && shift == told.shift &&
                     qfw_bits_f32(sigma) == qfw_bits_f32(after),
                 number, "a seed at a product");
}

/* A row of sums with seeds, and codes of it, where that is one loop: against its steps. */
static void check_row(source *s, unsigned number)
{
    enum { WIDE = 5 };
    const bool relu = below(s, 2) == 0, near = below(s, 4) != 0, same = below(s, 4) == 0;
    const float a = scale(s), like = scale(s), unit = qfw_scale_mul(a, like);
    const float own = near ? qfw_scale_lift(unit, (int32_t)below(s, 30) - 8) : scale(s);
    const float to = near ? qfw_scale_lift(unit, (int32_t)below(s, 24)) : scale(s);
    const size_t n = 1 + number % WIDE;
    int32_t acc[WIDE], kept[WIDE], want[WIDE], seed[WIDE];
    float by[WIDE], sigma[WIDE], found[WIDE];
    uint32_t size[WIDE], out = 0;
    int16_t m[WIDE];
    int8_t codes[2][WIDE + 1];
    uint8_t shift[WIDE];
    memset(codes, 0x55, sizeof codes);
    for (size_t i = 0; i < n; i++) {
        const int32_t sum = (int32_t)(word(s) >> (2 + below(s, 30)));
        by[i] = below(s, 8) == 0 ? scale(s) : qfw_scale_lift(like, (int32_t)below(s, 4));
        acc[i] = kept[i] = below(s, 2) == 0 ? sum : -sum;
        m[i] = (int16_t)(word(s) >> (16 + below(s, 16)));
        m[i] = (int16_t)(below(s, 2) == 0 ? m[i] : -(m[i] / 2));
    }
    qfw_seeded_scales(m, own, a, by, 1, n, sigma, seed, shift);
    for (size_t i = 0; i < n; i++) {
        const int32_t sum = (acc[i] >> shift[i]) + seed[i];
        want[i] = relu && sum < 0 ? 0 : sum;
        const qfw_ratio ratio = qfw_ratio_of(sigma[i], to, 8);
        const int32_t v = qfw_rescale(want[i], &ratio, QFW_HALF_AWAY, 0);
        codes[0][i] = (int8_t)(v > 127 ? 127 : v < -127 ? -127 : v);
        out += v > 127 || v < -127 ? 1u : 0u;
    }
    memcpy(found, by, sizeof by);
    qfw_seeded c = {.by = same ? found : by, .m = m, .acc = acc, .sigma = found, .s = own, .a = a};
    if (!QFW_HAS_SEEDED_ROW) {
        return;
    }
    qfw_seeded_sums(&c, n, relu, size);
    bool good = memcmp(found, sigma, n * sizeof *found) == 0;
    for (size_t i = 0; i < n; i++) {
        good = good && acc[i] == want[i] && size[i] == qfw_abs32(want[i]);
    }
    report_check(good, number, "a row with seeds");
    qfw_seeded d = {.by = by, .m = m, .acc = kept, .sigma = found, .s = own, .a = a};
    report_check(!QFW_HAS_SEEDED_CODES || (qfw_seeded_codes(&d, n, relu, to, codes[1]) == out &&
                                           memcmp(codes[0], codes[1], WIDE + 1) == 0),
                 number, "codes of a row with seeds");
}

/* Biases in steps of accumulators, one by one: near each other, ties, and anything. */
static unsigned check_seeds(void)
{
    source s = {{9, 10}, 0};
    for (unsigned number = 0; number < RANDOM; number++) {
        const int32_t size = (int32_t)(word(&s) >> (15 + below(&s, 17)));
        const int32_t m = below(&s, 2) == 0 ? size : -size;
        const float by = scale(&s);
        const float near = scale(&s);
        const uint32_t mant = below(&s, 3) == 0 ? qfw_bits_f32(by) : qfw_bits_f32(near);
        const float like = qfw_from_bits_f32((qfw_bits_f32(by) & 0x7F800000u) | (mant & 0x7FFFFFu));
        const float lifted = qfw_scale_lift(like, (int32_t)below(&s, 44) - 8);
        float sigma = below(&s, 4) == 0 ? near : lifted;
        const qfw_num n = qfw_num_f32(by);
        const qfw_seed told = qfw_seed_of((int64_t)n.mant * m, n.exp, sigma);
        const float after = qfw_scale_lift(sigma, told.shift);
        int32_t seed;
        uint8_t shift;
        qfw_seeds_s32_scalar(&m, by, 1, &sigma, &seed, &shift);
        report_check(seed == told.seed && shift == told.shift &&
                         qfw_bits_f32(sigma) == qfw_bits_f32(after),
                     number, "a seed");
        check_seeded(m, by, like, lifted, number);
        check_row(&s, number);
    }
    return RANDOM;
}

int main(void)
{
    report_suite("edges");
    report_suite_end(check_edges());
    report_suite("random");
    report_suite_end(check_random());
    report_suite("slopes");
    report_suite_end(check_slopes());
    report_suite("integers");
    report_suite_end(check_integers());
    report_suite("seeds");
    report_suite_end(check_seeds());
    report_exit();
    return 1;
}

/* One row whose columns have scales of their own, in one loop, against its steps one after the other. */
#include "base/round.h"
#include "kernels/at_once.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "report.h"
#include "source.h"

static float scale(source *s)
{
    const uint32_t e = below(s, 3) != 0 ? 118 + below(s, 16) : 1 + below(s, 254);
    return qfw_from_bits_f32(e << 23 | (below(s, 3) == 0 ? 0 : word(s) >> 9));
}

/* Around the ends of a ratio's range, ties, and anything. */
static int32_t sum(source *s, uint32_t limit)
{
    const uint32_t size = word(s) >> (1 + below(s, 30));
    switch (below(s, 8)) {
    case 0:
        return INT32_MIN;
    case 1:
        return (int32_t)(limit - 1 + (limit < INT32_MAX ? below(s, 3) : 0));
    case 2:
        return -(int32_t)(limit - 1) - (int32_t)below(s, 3);
    case 3:
        return 0;
    case 4:
        return (int32_t)((1u + 2 * below(s, 128)) << below(s, 23));
    default:
        return below(s, 2) == 0 ? (int32_t)size : -(int32_t)size;
    }
}

/* One row at the columns' own scales, with what follows or without, to bytes or more. */
static void check_row(source *s, size_t n, unsigned number)
{
    enum { WIDE = 12 };
    int32_t acc[WIDE], kept[WIDE], seed[WIDE];
    int16_t x[WIDE + 1], y[WIDE + 1];
    uint8_t shift[WIDE];
    uint32_t absmax[2][WIDE], ratios[4 * WIDE];
    float from[WIDE], to = scale(s);
    const bool plain = below(s, 2) == 0, seeds = below(s, 4) != 0, sizes = below(s, 2) == 0;
    const int32_t width = plain && below(s, 2) == 0 ? 16 : 8;
    const int32_t bits = width - (below(s, 3) == 0 ? (int32_t)below(s, 6) : 0);
    const int32_t q = (1 << (bits - 1)) - 1;
    for (size_t j = 0; j < n; j++) {
        from[j] = below(s, 6) == 0 ? to : scale(s);
    }
    qfw_ratios_f32_scalar(from, n, to, bits, ratios, n);
    for (size_t j = 0; j < n; j++) {
        acc[j] = sum(s, ratios[n + j]) / (plain ? 1 : 4);
        kept[j] = acc[j];
        seed[j] = (int32_t)(word(s) >> (2 + below(s, 30))) - (below(s, 2) == 0 ? 0 : 1 << 20);
        shift[j] = (uint8_t)(below(s, 5) == 0 ? below(s, 32) : 0);
        absmax[0][j] = absmax[1][j] = below(s, 2) == 0 ? 0 : word(s) >> below(s, 32);
    }
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -q, q};
    const qfw_ratios r = {ratios, ratios + n, ratios + 2 * n, ratios + 3 * n};
    const bool has_seeds = !plain && seeds;
    qfw_finish f = {has_seeds ? seed : NULL,
                    has_seeds ? shift : NULL,
                    !plain && below(s, 2) == 0,
                    true,
                    NULL,
                    0,
                    absmax[0]};
    uint64_t out = 0;
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    qfw_finish_s32_scalar(acc, 1, n, &f);
    const qfw_rescaling c = {acc, x, 32, width, 1, n, r, NULL, 0};
    const uint32_t told = qfw_rescale_rows_scalar(&c, &rule);
    f.absmax = !plain && sizes ? absmax[1] : NULL;
    const qfw_tensor one = {.format = {QFW_SYM, (uint8_t)bits, (uint8_t)width, 0},
                            .codes = y,
                            .scale = &to,
                            .zero_point = NULL};
    const bool done = qfw_codes_of_row(kept, n, &f, from, &one, &rule, y, &out);
    report_check(done && memcmp(x, y, sizeof x) == 0 && told == out, number, "codes_of_row");
    report_check(f.absmax == NULL || memcmp(absmax[0], absmax[1], n * sizeof absmax[0][0]) == 0,
                 number, "codes_of_row, absmax");
}

/* A row of bytes at products of scales. */
static void check_fold(source *s, size_t n, unsigned number)
{
    enum { WIDE = 12 };
    int8_t m[WIDE];
    int16_t x[WIDE + 1], y[WIDE + 1];
    uint32_t ratios[4 * WIDE];
    float by[WIDE], from[WIDE];
    const float own = scale(s), to = qfw_scale_mul(own, scale(s));
    const int32_t bits = 16 - (below(s, 3) == 0 ? (int32_t)below(s, 8) : 0);
    const int32_t q = (1 << (bits - 1)) - 1;
    for (size_t j = 0; j < n; j++) {
        by[j] = scale(s);
        m[j] = (int8_t)(below(s, 4) == 0 ? -128 : (int32_t)below(s, 256) - 128);
    }
    qfw_scales_mul(own, by, n, from);
    qfw_ratios_f32_scalar(from, n, to, bits, ratios, n);
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -q, q};
    const qfw_ratios r = {ratios, ratios + n, ratios + 2 * n, ratios + 3 * n};
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    const qfw_rescaling c = {m, x, 8, 16, 1, n, r, NULL, 0};
    (void)qfw_rescale_rows_scalar(&c, &rule);
    report_check(qfw_fold_row(m, n, own, by, to, bits, y) && memcmp(x, y, sizeof x) == 0, number,
                 "fold_row");
}

/* The scale of sums whose columns have scales of their own, against the largest of all columns': products
 * that are the same by other factors, near each other, 0 and anything. */
static void check_known(source *s, size_t n, unsigned number)
{
    enum { WIDE = 12 };
    float from[WIDE];
    uint32_t most[WIDE];
    const uint32_t q = (1u << (1 + below(s, 15))) - 1;
    const float one = scale(s);
    const bool near = below(s, 2) == 0;
    qfw_num largest = {0, 0};
    for (size_t j = 0; j < n; j++) {
        const uint32_t up = below(s, 8), size = word(s) >> below(s, 32);
        from[j] = near ? qfw_scale_lift(one, (int32_t)up) : scale(s);
        most[j] = near ? (1u << 30 >> up) + below(s, 3) : below(s, 4) == 0 ? 0 : size;
        largest = qfw_num_max(largest, qfw_scale_for(from[j], most[j], q));
    }
    const qfw_num found = qfw_known_scale(qfw_kernels_portable(), from, most, (ptrdiff_t)n, q);
    report_check(found.mant == largest.mant && (found.mant == 0 || found.exp == largest.exp),
                 number, "known_scale");
}

int main(void)
{
    source s = {{7, 12}, 0};
    unsigned number;
    report_suite("codes_of_row");
    for (number = 0; number < 12000; number++) {
        check_row(&s, 1 + number % 12, number);
    }
    report_suite_end(number);
    report_suite("fold_row");
    for (number = 0; number < 12000; number++) {
        check_fold(&s, 1 + number % 12, number);
    }
    report_suite_end(number);
    report_suite("known_scale");
    for (number = 0; number < 6000; number++) {
        check_known(&s, 1 + number % 12, number);
    }
    report_suite_end(number);
    report_exit();
    return 1;
}

/* Twins for the DSP extension against their definitions: every form, every tail, any alignment. */
#include "base/round.h"
#include "kernels/at_once.h"
#include "kernels/kernels.h"
#include "report.h"
#include "source.h"

/* Zeros, ends and anything; 16 bits hold 15, so that sums of 100 products stay within int32. */
static int32_t code(source *s, int32_t width)
{
    const int32_t low = width == 8 ? -128 : -4000, high = width == 8 ? 127 : 4000;
    switch (below(s, 8)) {
    case 0:
        return 0;
    case 1:
        return low;
    case 2:
        return high;
    default:
        return low + (int32_t)below(s, (uint32_t)(high - low + 1));
    }
}

static void fill(source *s, void *x, int32_t width, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (width == 8) {
            ((int8_t *)x)[i] = (int8_t)code(s, 8);
        } else {
            ((int16_t *)x)[i] = (int16_t)code(s, 16);
        }
    }
}

/* ---- products ---- */

enum { MOST = 13, LONG = 100, ROOM = MOST * LONG + 16 };

/* Rows in order, or terms in order, or neither; a gap between what is in order. */
static void strides(source *s, size_t n, size_t k, size_t *row, size_t *term)
{
    const size_t gap = below(s, 3) == 0 ? 1 : 0;
    if (below(s, 2) == 0) {
        *row = k + gap < LONG ? k + gap : k;
        *term = 1;
    } else {
        *row = 1;
        *term = n < MOST ? n + gap : n;
    }
}

static void check_product(source *s, size_t m, size_t n, size_t k, unsigned number)
{
    static int16_t a[ROOM], b[ROOM];
    static int32_t x[MOST * (MOST + 1)], y[MOST * (MOST + 1)];
    const int32_t wa = below(s, 3) == 0 ? 16 : 8, wb = below(s, 3) == 0 ? 16 : 8;
    const size_t out_row = n + below(s, 2);
    size_t a_row, a_col, b_row, b_col;
    strides(s, m, k, &a_row, &a_col);
    strides(s, n, k, &b_col, &b_row);
    fill(s, a, wa, ROOM);
    fill(s, b, wb, ROOM);
    const qfw_gemm g = {(uint8_t *)a + (wa == 8 ? below(s, 4) : 2 * below(s, 2)),
                        (uint8_t *)b + (wb == 8 ? below(s, 4) : 2 * below(s, 2)),
                        wa,
                        wb,
                        m,
                        n,
                        k,
                        a_row,
                        a_col,
                        b_row,
                        b_col,
                        (int32_t)below(s, 2)};
    for (size_t i = 0; i < MOST * (MOST + 1); i++) {
        x[i] = y[i] = (int32_t)i - 70;
    }
    qfw_gemm_s32_scalar(&g, x, out_row);
    qfw_gemm_s32_dsp(&g, y, out_row);
    report_check(memcmp(x, y, sizeof x) == 0, number, "a product");
}

static unsigned check_products(source *s)
{
    unsigned number = 0;
    for (size_t k = 0; k <= LONG; k += k < 40 ? 1 : 7) {
        for (size_t m = 1; m <= MOST; m++) {
            for (size_t n = 1; n <= MOST; n++, number++) {
                check_product(s, m, n, k, number);
            }
        }
    }
    return number;
}

/* ---- requantization ---- */

enum { TAILS = 70 };

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

static qfw_code_rule rule_of(source *s, int32_t bits)
{
    const int32_t q = (1 << (bits - 1)) - 1, zp = below(s, 6) == 0 ? q : 0;
    const uint32_t mode = below(s, 5);
    const qfw_rounding rounding = mode == 0   ? QFW_HALF_EVEN
                                  : mode <= 2 ? QFW_STOCHASTIC
                                              : QFW_HALF_AWAY;
    const qfw_code_rule rule = {rounding, zp, -q + zp, q + zp};
    return rule;
}

static void check_bytes(source *s, size_t n, unsigned number)
{
    static int32_t a[TAILS];
    int8_t x[TAILS + 1], y[TAILS + 1];
    const int32_t bits = below(s, 4) == 0 ? 2 + (int32_t)below(s, 6) : 8;
    const qfw_ratio ratio = qfw_ratio_of(scale(s), scale(s), bits);
    const int32_t q = (1 << (bits - 1)) - 1;
    const qfw_code_rule rule = {rule_of(s, bits).rounding, 0, -q, q};
    const qfw_key key = {word(s), word(s)};
    const uint64_t first = below(s, 1000);
    for (size_t i = 0; i < n; i++) {
        a[i] = sum(s, ratio.limit);
    }
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    const uint32_t told = qfw_rescale_s8_scalar(a, n, &ratio, &rule, &key, first, x);
    const uint32_t out = qfw_rescale_s8_dsp(a, n, &ratio, &rule, &key, first, y);
    report_check(memcmp(x, y, sizeof x) == 0 && told == out, number, "rescale_s8");
    const uint32_t most = below(s, 2) == 0 ? qfw_absmax_s32_dsp(a, n) : UINT32_C(1) << 31;
    memset(y, 0x55, sizeof y);
    report_check(qfw_rescale_s8_most(a, n, &ratio, &rule, &key, first, most, y) == told &&
                     memcmp(x, y, sizeof x) == 0,
                 number, "rescale_s8, at most");
    report_check(qfw_absmax_s32_scalar(a, n) == qfw_absmax_s32_dsp(a, n), number, "absmax_s32");
}

/* Floats whose largest is known: ties, zeros, subnormal numbers and any below. */
static void check_floats(source *s, size_t n, unsigned number)
{
    static float x[TAILS];
    int8_t codes[TAILS + 4];
    const size_t fours = n & ~(size_t)3, off = below(s, 4);
    const int32_t q = (1 << (1 + below(s, 7))) - 1;
    const float to = scale(s);
    const qfw_divisor d = qfw_divisor_of(to);
    uint32_t twice = 2 * below(s, 2) * qfw_bits_f32(to), most = twice;
    bool same = true;
    for (size_t i = 0; i < n; i++) {
        const int32_t halves = (int32_t)below(s, (uint32_t)(2 * q + 2));
        const float v = below(s, 4) == 0   ? qfw_from_bits_f32(word(s) >> (9 + below(s, 20)))
                        : below(s, 2) == 0 ? qfw_product_f32(halves, qfw_scale_lift(to, -1))
                                           : qfw_from_bits_f32(word(s) % qfw_bits_f32(to));
        const uint32_t bits = qfw_bits_f32(v), sign = below(s, 2) << 31;
        x[i] = qfw_nearest_quotient(v, &d) <= q ? qfw_from_bits_f32(bits | sign) : 0.0f;
        most = i < fours && 2 * qfw_bits_f32(x[i]) > most ? 2 * qfw_bits_f32(x[i]) : most;
    }
    memset(codes, 0x55, sizeof codes);
    const size_t done = qfw_floats_within(x, n, to, codes + off);
    for (size_t i = 0; i < done; i++) {
        same = same && codes[off + i] == qfw_nearest_quotient(x[i], &d);
    }
    const uint32_t field = qfw_bits_f32(to) >> 23;
    report_check(same && codes[off + done] == 0x55 &&
                     done == (field >= 2 && field <= 248 ? fours : 0),
                 number, "floats_within");
    report_check(qfw_largest_of_fours(x, n, &twice) == fours && twice == most, number,
                 "largest_of_fours");
}

/* Sums that stay in range, of every length of ratio: ties too. */
static void check_within(source *s, size_t n, unsigned number)
{
    static int32_t a[TAILS];
    int8_t x[TAILS + 1], y[TAILS + 1];
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -127, 127};
    const uint32_t bits = below(s, 32);
    const uint32_t most = bits < 31 ? (word(s) >> 1 >> bits) : 1;
    const float from = scale(s);
    const qfw_num to = qfw_scale_for(from, most != 0 ? most : 1, 127);
    const float s_out = below(s, 4) == 0 ? qfw_scale_lift(from, (int32_t)below(s, 30) - 5)
                                         : qfw_num_scale_f32(to, below(s, 3) == 0);
    const qfw_ratio ratio = qfw_ratio_of(from, s_out, 8);
    for (size_t i = 0; i < n; i++) {
        const int32_t size = (int32_t)(below(s, 4) == 0 ? most : word(s) % (most + 1));
        a[i] = below(s, 2) == 0 ? size : -size;
        a[i] = below(s, 4) == 0 ? (int32_t)((uint32_t)a[i] & ~0u << below(s, 20)) : a[i];
        a[i] = a[i] < -(int32_t)most ? 0 : a[i];
    }
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    const uint32_t out = qfw_rescale_s8_scalar(a, n, &ratio, &rule, NULL, 0, x);
    if (qfw_codes_within(a, n, &ratio, &rule, most, y)) {
        report_check(memcmp(x, y, sizeof x) == 0 && out == 0, number, "codes_within");
    } else {
        report_check(y[0] == 0x55 && qfw_rescale((int32_t)most, &ratio, QFW_HALF_AWAY, 0) > 127,
                     number, "codes_within, not");
    }
}

static void check_rows(source *s, size_t columns, size_t rows, unsigned number)
{
    enum { ROWS = 5, WIDE = 12, ALL = ROWS * WIDE + 4 };
    static int32_t a[ALL], x[ALL], y[ALL];
    static const int32_t widths[] = {8, 16, 32, 32};
    uint32_t ratios[4][WIDE];
    float from[WIDE];
    const int32_t bits = below(s, 3) == 0 ? 2 + (int32_t)below(s, 15) : below(s, 2) == 0 ? 8 : 15;
    const int32_t from_width = widths[below(s, 4)], to_width = bits > 8 ? 16 : widths[below(s, 3)];
    const qfw_code_rule rule = rule_of(s, bits);
    const qfw_key key = {word(s), word(s)};
    const float to = scale(s);
    for (size_t i = 0; i < columns; i++) {
        from[i] = below(s, 6) == 0 ? to : scale(s);
    }
    qfw_ratios_f32_scalar(from, columns, to, bits, ratios[0], WIDE);
    for (size_t i = 0; i < ALL; i++) {
        a[i] = sum(s, ratios[1][i % columns]);
    }
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    const qfw_ratios r = {ratios[0], ratios[1], ratios[2], ratios[3]};
    qfw_rescaling c = {a, x, from_width, to_width, rows, columns, r, &key, below(s, 1000)};
    const uint32_t told = qfw_rescale_rows_scalar(&c, &rule);
    c.to = y;
    const uint32_t out = qfw_rescale_rows_dsp(&c, &rule);
    report_check(memcmp(x, y, sizeof x) == 0 && told == out, number, "rescale_rows");
    if (to_width <= from_width) {
        memcpy(y, a, sizeof y);
        c.from = c.to = y;
        report_check(qfw_rescale_rows_dsp(&c, &rule) == told &&
                         memcmp(x, y, rows * columns * (size_t)(to_width / 8)) == 0,
                     number, "rescale_rows, in place");
    }
}

/* ---- what follows a product ---- */

static void check_finish(source *s, size_t rows, size_t n, unsigned number)
{
    enum { ROWS = 5, WIDE = 12, ALL = ROWS * WIDE };
    static int32_t acc[2][ALL];
    int32_t seed[WIDE];
    uint8_t shift[WIDE];
    uint32_t absmax[2][WIDE];
    int32_t mask[ALL];
    static const int32_t kinds[] = {8, 8, 16, 32};
    const bool seeds = below(s, 2) == 0, columns = below(s, 2) == 0;
    for (size_t i = 0; i < ALL; i++) {
        acc[0][i] = acc[1][i] =
            below(s, 9) == 0 ? 0 : (int32_t)(word(s) >> (2 + below(s, 28))) - (1 << 28);
        mask[i] = (int32_t)(below(s, 3) == 0 ? 0 : word(s));
    }
    for (size_t j = 0; j < WIDE; j++) {
        seed[j] = (int32_t)(word(s) >> 2) - (1 << 29);
        shift[j] = (uint8_t)(below(s, 3) == 0 ? below(s, 32) : 0);
        absmax[0][j] = absmax[1][j] = below(s, 2) == 0 ? 0 : word(s) >> below(s, 32);
    }
    const bool masks = below(s, 3) == 0;
    qfw_finish f = {seeds ? seed : NULL, seeds ? shift : NULL, below(s, 2) == 0, columns,
                    masks ? mask : NULL, kinds[below(s, 4)],   absmax[0]};
    qfw_finish_s32_scalar(acc[0], rows, n, &f);
    f.absmax = absmax[1];
    qfw_finish_s32_dsp(acc[1], rows, n, &f);
    report_check(memcmp(acc[0], acc[1], sizeof acc[0]) == 0, number, "finish_s32");
    report_check(memcmp(absmax[0], absmax[1], sizeof absmax[0]) == 0, number, "finish_s32, absmax");
}

/* Codes at once against what follows a product and the requantization, one after the other. */
static void check_finish_codes(source *s, size_t rows, size_t n, unsigned number)
{
    enum { ROWS = 5, WIDE = 12, ALL = ROWS * WIDE };
    int32_t acc[ALL], kept[ALL], seed[WIDE];
    int8_t x[ALL + 1], y[ALL + 1];
    uint8_t shift[WIDE];
    uint32_t absmax[2][WIDE], ratios[4 * WIDE];
    float from[WIDE];
    const float to = scale(s);
    const bool seeds = below(s, 4) != 0, sizes = below(s, 2) == 0;
    for (size_t j = 0; j < n; j++) {
        from[j] = below(s, 6) == 0 ? to : scale(s);
    }
    qfw_ratios_f32_scalar(from, n, to, 8, ratios, n);
    for (size_t i = 0; i < ALL; i++) {
        acc[i] = kept[i] = sum(s, ratios[n + i % n]) / 4;
    }
    for (size_t j = 0; j < WIDE; j++) {
        seed[j] = (int32_t)(word(s) >> (2 + below(s, 30))) - (below(s, 2) == 0 ? 0 : 1 << 20);
        shift[j] = (uint8_t)(below(s, 5) == 0 ? below(s, 32) : 0);
        absmax[0][j] = absmax[1][j] = below(s, 2) == 0 ? 0 : word(s) >> below(s, 32);
    }
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -127, 127};
    const qfw_ratios r = {ratios, ratios + n, ratios + 2 * n, ratios + 3 * n};
    qfw_finish f = {
        seeds ? seed : NULL, seeds ? shift : NULL, below(s, 2) == 0, true, NULL, 0, absmax[0]};
    uint64_t out = 0;
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    qfw_finish_s32_scalar(acc, rows, n, &f);
    const qfw_rescaling c = {acc, x, 32, 8, rows, n, r, NULL, 0};
    const uint32_t told = qfw_rescale_rows_scalar(&c, &rule);
    f.absmax = sizes ? absmax[1] : NULL;
    const bool done = qfw_finish_codes(kept, rows, n, &f, ratios, &rule, y, &out);
    report_check(done && memcmp(x, y, sizeof x) == 0 && told == out, number, "finish_codes");
    report_check(!sizes || memcmp(absmax[0], absmax[1], sizeof absmax[0]) == 0, number,
                 "finish_codes, absmax");
}

int main(void)
{
    source s = {{7, 11}, 0};
    unsigned number;
    report_suite("products");
    report_suite_end(check_products(&s));
    report_suite("rescale_s8");
    for (number = 0; number < 60 * TAILS; number++) {
        check_bytes(&s, number % TAILS, number);
    }
    report_suite_end(number);
    report_suite("floats_within");
    for (number = 0; number < 60 * TAILS; number++) {
        check_floats(&s, number % TAILS, number);
    }
    report_suite_end(number);
    report_suite("codes_within");
    for (number = 0; number < 60 * TAILS; number++) {
        check_within(&s, number % TAILS, number);
    }
    report_suite_end(number);
    report_suite("rescale_rows");
    for (number = 0; number < 6000; number++) {
        check_rows(&s, 1 + number % 12, 1 + number / 12 % 5, number);
    }
    report_suite_end(number);
    report_suite("finish_s32");
    for (number = 0; number < 6000; number++) {
        check_finish(&s, 1 + number / 12 % 5, 1 + number % 12, number);
    }
    report_suite_end(number);
    report_suite("finish_codes");
    for (number = 0; number < 6000; number++) {
        check_finish_codes(&s, 1 + number / 12 % 5, 1 + number % 12, number);
    }
    report_suite_end(number);
    report_exit();
    return 1;
}

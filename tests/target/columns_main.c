/* Rows of sums whose columns have scales of their own, as codes of one scale at once, against the
 * definition with ratios in memory: every number of rows and columns, both widths. */
#include "kernels/at_once.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "report.h"
#include "source.h"

enum { ROWS = 11, WIDE = 7, ALL = ROWS * WIDE };

static float scale(source *s)
{
    const uint32_t e = below(s, 3) != 0 ? 118 + below(s, 16) : 1 + below(s, 254);
    return qfw_from_bits_f32(e << 23 | (below(s, 3) == 0 ? 0 : word(s) >> 9));
}

/* A column's sums up to `most` in size, its ends and odd multiples of powers of two among them. */
static int32_t sum(source *s, uint32_t most)
{
    const uint32_t tie = (1u + 2 * below(s, 128)) << below(s, 23);
    const uint32_t size = below(s, 4) == 0 ? most : below(s, 3) == 0 ? tie : word(s) >> 1;
    const int32_t v = (int32_t)(most == 0 ? 0 : size <= most ? size : size % (most + 1));
    return below(s, 2) == 0 ? v : -v;
}

/* The smallest scale at which no column leaves its codes, as a dynamic range has it; or any. */
static float target(source *s, const float *from, const uint32_t *most, size_t n, uint32_t q)
{
    qfw_num largest = {0, 0};
    for (size_t j = 0; j < n; j++) {
        largest = qfw_num_max(largest, qfw_scale_for(from[j], most[j], q));
    }
    return below(s, 6) == 0 ? scale(s) : qfw_num_scale_f32(largest, false);
}

/* Returns whether the rows were taken. */
static bool check(source *s, unsigned number)
{
    const size_t n = 1 + number % WIDE, rows = 2 + number / WIDE % (ROWS - 1);
    static int32_t a[ALL];
    static int16_t x[ALL + 1], y[ALL + 1];
    uint32_t ratios[4 * WIDE], most[WIDE];
    float from[WIDE];
    const int32_t width = below(s, 2) == 0 ? 16 : 8;
    const int32_t bits = width - (below(s, 3) == 0 ? (int32_t)below(s, 6) : 0);
    const int32_t q = (1 << (bits - 1)) - 1;
    const float one = scale(s);
    for (size_t j = 0; j < n; j++) {
        from[j] = below(s, 3) == 0 ? scale(s) : qfw_scale_lift(one, -(int32_t)below(s, 6));
        most[j] = below(s, 8) == 0 ? 0 : word(s) >> (1 + below(s, 28));
        for (size_t i = 0; i < rows; i++) {
            a[i * n + j] = sum(s, most[j]);
        }
    }
    float to = target(s, from, most, n, (uint32_t)q);
    const qfw_tensor codes = {.format = {QFW_SYM, (uint8_t)bits, (uint8_t)width, 0},
                              .codes = y,
                              .scale = &to,
                              .zero_point = NULL};
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -q, q};
    const qfw_ratios r = {ratios, ratios + n, ratios + 2 * n, ratios + 3 * n};
    const qfw_rescaling c = {a, x, 32, width, rows, n, r, NULL, 0};
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    qfw_ratios_f32_scalar(from, n, to, bits, ratios, n);
    const uint32_t out = qfw_rescale_rows_scalar(&c, &rule);
    const bool done = qfw_codes_of_rows(a, rows, n, from, most, &codes, &rule);
    report_check(!done || (out == 0 && memcmp(x, y, sizeof x) == 0), number, "codes_of_rows");
    return done;
}

int main(void)
{
    enum { TIMES = 12000 };
    source s = {{9, 21}, 0};
    unsigned taken = 0;
    report_suite("codes_of_rows");
    for (unsigned i = 0; i < TIMES; i++) {
        taken += check(&s, i) ? 1 : 0;
    }
    report_check(taken > TIMES / 4 && taken < TIMES, taken, "rows that were taken");
    report_suite_end(TIMES);
    report_exit();
    return 1;
}

/* As twins_main.c, for kernels of operations on few elements. */
#include "twins.h"

/* A tensor whose elements, or all together, have a scale. */
static qfw_single single(source *s, void *codes, float *scales, uint8_t *flags, bool usual)
{
    const int32_t width = below(s, 2) == 0 ? 8 : 16;
    const qfw_single x = {codes,           scales, flags, width, width - (int32_t)below(s, 7),
                          below(s, 3) != 0};
    for (size_t i = 0; i < TAILS; i++) {
        scales[i] = scale(s, usual);
    }
    for (size_t i = 0; i < 2 * TAILS; i++) {
        ((int8_t *)codes)[i] = code(s);
    }
    return x;
}

static void check_singles(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int16_t codes[3][2][TAILS];
    float scales[3][TAILS];
    uint8_t flags[2][2][TAILS] = {{{0}}};
    const bool usual = below(s, 4) != 0, has_state = below(s, 3) != 0;
    const qfw_key key = {word(s), word(s)}, state_key = {word(s), word(s)};
    const qfw_single none = {NULL, NULL, NULL, 0, 0, false};
    qfw_singles a = {single(s, codes[0][0], scales[0], flags[0][0], usual),
                     single(s, codes[1][0], scales[1], flags[1][0], usual),
                     single(s, codes[2][0], scales[2], NULL, usual),
                     scale(s, usual),
                     scale(s, usual),
                     below(s, 8) == 0 ? 0.0f : scale(s, usual),
                     below(s, 8) == 0 ? 0.0f : scale(s, usual),
                     below(s, 5) == 0 ? QFW_HALF_AWAY : QFW_STOCHASTIC,
                     below(s, 5) == 0 ? QFW_HALF_EVEN : QFW_STOCHASTIC,
                     &key,
                     &state_key};
    qfw_singles b = a;
    for (int k = 0; k < 3; k++) {
        memcpy(codes[k][1], codes[k][0], sizeof codes[k][0]);
    }
    b.m.codes = codes[0][1];
    b.m.flags = flags[0][1];
    b.v.codes = codes[1][1];
    b.v.flags = flags[1][1];
    if (!has_state) {
        a.v = b.v = none;
    }
    fast->update_singles(&a, n);
    slow->update_singles(&b, n);
    for (int k = 0; k < 2; k++) {
        report_check(same(codes[k][0], codes[k][1], sizeof codes[k][0]), n, "update_singles");
        report_check(same(flags[k][0], flags[k][1], sizeof flags[k][0]), n,
                     "update_singles, events");
    }
}

static void check_encode(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int32_t a[TAILS];
    float scales[2][TAILS];
    int8_t codes[2][TAILS];
    size_t done[2];
    const qfw_key key = {word(s), word(s)}, *words = below(s, 4) == 0 ? NULL : &key;
    const float s_in = scale(s, below(s, 6) != 0);
    const uint32_t q = 64 + below(s, 64), rare = below(s, 60);
    const uint64_t first = below(s, 8) == 0 ? below(s, 1000) : below(s, 1000) / 8 * 8;
    for (size_t i = 0; i < TAILS; i++) { /* mostly such as are sure */
        const uint32_t size = word(s) >> (5 + below(s, below(s, 3) == 0 ? 27 : 3));
        a[i] = below(s, 9) == 0 ? 0 : below(s, 2) == 0 ? (int32_t)size : -(int32_t)size;
        a[i] = rare == 1 && below(s, 40) == 0 ? (int32_t)(size << 5) : a[i];
        a[i] = rare == 2 && below(s, 40) == 0 ? INT32_MIN : a[i];
        a[i] = below(s, 6) == 0 && a[i] != INT32_MIN ? a[i] / (int32_t)q * (int32_t)q : a[i];
    }
    for (int k = 0; k < 2; k++) {
        memset(scales[k], 0, sizeof scales[k]);
        memset(codes[k], 0, sizeof codes[k]);
        done[k] =
            (k == 0 ? fast : slow)->singles_s8(a, n, s_in, q, words, first, scales[k], codes[k]);
    }
    report_check(done[0] == done[1], n, "singles_s8, how many");
    report_check(same(scales[0], scales[1], done[0] * sizeof(float)), n, "singles_s8, scales");
    report_check(same(codes[0], codes[1], done[0]), n, "singles_s8");
    report_check(done[0] == 0 || first % 8 == 0, n, "singles_s8, a place in a block");
}

static void check_largest(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    float scales[TAILS] = {0.0f};
    uint32_t most[TAILS] = {0};
    const bool usual = below(s, 3) != 0, near = below(s, 3) == 0, end = below(s, 9) == 0;
    const float base = scale(s, true);
    for (unsigned i = 0; i < n; i++) { /* some that are the same but for their last bits */
        scales[i] = near ? qfw_from_bits_f32(qfw_bits_f32(base) + below(s, 9)) : scale(s, usual);
        most[i] = near ? 1000000 + below(s, 3) : word(s) >> (1 + below(s, 31));
        most[i] = below(s, 9) == 0 ? 0 : end && below(s, 9) == 0 ? UINT32_C(1) << 31 : most[i];
    }
    const qfw_num a = fast->largest_s32(scales, most, n), b = slow->largest_s32(scales, most, n);
    qfw_num exact = {0, 0};
    for (unsigned i = 0; i < n; i++) {
        exact = most[i] != 0 ? qfw_num_max(exact, qfw_num_product(scales[i], most[i])) : exact;
    }
    report_check(a.mant == b.mant && a.exp == b.exp, n, "largest_s32");
    report_check(a.mant == exact.mant && (a.mant == 0 || a.exp == exact.exp), n,
                 "largest_s32, by all");
}

static void check_differences(const qfw_kernels *fast, const qfw_kernels *slow, source *s,
                              unsigned n)
{
    int16_t a[TAILS], b[TAILS];
    int32_t d[2][TAILS];
    qfw_wide sum[2] = {{3, 5}, {3, 5}};
    const uint32_t most = 1 + below(s, 0x8000);
    float of_a = scale(s, below(s, 4) != 0), of_b = scale(s, below(s, 4) != 0);
    of_b = below(s, 4) == 0 ? of_a : of_b;
    const float to = of_a > of_b ? of_a : of_b;
    const qfw_ratio ratio_a = qfw_ratio_of(of_a, to, 16), ratio_b = qfw_ratio_of(of_b, to, 16);
    for (unsigned i = 0; i < n; i++) { /* up to the ends, and beyond them */
        a[i] =
            (int16_t)(below(s, 7) == 0 ? INT16_MIN : (int32_t)below(s, 2 * most) - (int32_t)most);
        b[i] =
            (int16_t)(below(s, 7) == 0 ? INT16_MAX : (int32_t)below(s, 2 * most) - (int32_t)most);
    }
    const uint32_t found = fast->differences_s16(a, b, n, &ratio_a, &ratio_b, d[0], &sum[0]);
    const uint32_t known = slow->differences_s16(a, b, n, &ratio_a, &ratio_b, d[1], &sum[1]);
    report_check(found == known, n, "differences_s16, absmax");
    report_check(same(d[0], d[1], n * sizeof *d[0]), n, "differences_s16");
    report_check(qfw_wide_f32(&sum[0]) == qfw_wide_f32(&sum[1]) && sum[0].high == sum[1].high &&
                     sum[0].low == sum[1].low,
                 n, "differences_s16, squares");
}

static void check_ratios(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    enum { COLUMNS = TAILS + 1 };
    float from[TAILS];
    uint32_t made[2][4 * COLUMNS];
    const float to = scale(s, below(s, 4) != 0);
    const int32_t bits = 2 + (int32_t)below(s, 15);
    for (unsigned i = 0; i < n; i++) { /* near it, too, and next to it */
        from[i] = scale(s, below(s, 4) != 0);
        from[i] = below(s, 4) == 0 ? to : from[i];
        from[i] = below(s, 4) == 0 ? qfw_from_bits_f32(qfw_bits_f32(to) ^ below(s, 4)) : from[i];
    }
    for (int k = 0; k < 2; k++) {
        memset(made[k], 7, sizeof made[k]);
        (k == 0 ? fast : slow)->ratios_f32(from, n, to, bits, made[k], COLUMNS);
    }
    report_check(same(made[0], made[1], sizeof made[0]), n, "ratios_f32");
}

static void check_extent(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    float x[TAILS + 1];
    const unsigned from = below(s, 2);
    const int32_t none = below(s, 2) == 0 ? 0 : 0x3F800000;
    int32_t hi[2] = {none, none}, lo[2] = {none, none};
    for (unsigned i = 0; i <= TAILS; i++) { /* any pattern: NaNs and infinities are found as such */
        x[i] = qfw_from_bits_f32(below(s, 9) == 0 ? word(s) : word(s) & 0xBFFFFFFFu);
    }
    fast->extent_f32(x + from, n, &hi[0], &lo[0]);
    slow->extent_f32(x + from, n, &hi[1], &lo[1]);
    report_check(hi[0] == hi[1] && lo[0] == lo[1], n, "extent_f32");
}

int main(void)
{
    run("ratios_f32", check_ratios, 60);
    run("extent_f32", check_extent, 60);
    run("update_singles", check_singles, 60);
    run("singles_s8", check_encode, 60);
    run("largest_s32", check_largest, 60);
    run("differences_s16", check_differences, 60);
    report_exit();
    return 1;
}

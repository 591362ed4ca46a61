/* Rows that move by a panel, against rows that move by sums made one by one: every number of rows of a step
 * and length of a row, any alignment. */
#include "base/random.h"
#include "kernels/panel_rows.h"
#include "report.h"
#include "source.h"

enum { OUT = 5, MOST = 76, TERMS = QFW_PANEL_TERMS };

static void fill(source *s, int8_t *x, size_t n, uint32_t small)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t kind = below(s, 8);
        const int32_t any = (int32_t)below(s, 256) - 128;
        x[i] = (int8_t)(kind == 0 ? 0 : kind == 1 ? -128 : kind == 2 ? 127 : any);
        x[i] = (int8_t)(small != 0 ? x[i] / 32 : x[i]);
    }
}

/* A slope of moderate size, of a gradient by sums of so many bits, or of a state. */
static qfw_slope slope(source *s, int32_t lift)
{
    return (uint32_t)(122 + lift) << 23 | (word(s) & 0x7FFF00u);
}

/* One row both ways; `number` has every combination of lengths. Returns whether the panel took it. */
static bool check_row(source *s, unsigned number)
{
    const size_t n = 4 + 4 * (number % (MOST / 4)), terms = 5 + number % 4, off = number % 3;
    static int8_t e[OUT * TERMS], x[MOST * TERMS + 4], m[2][MOST + 4], v[2][MOST + 4];
    static uint32_t panel[MOST * QFW_PANEL_WORDS];
    static int32_t sums[2][MOST];
    const size_t o = number % (OUT - 3), at = o + below(s, 4); /* of four, and the row */
    uint32_t four[8], all = 0, most = 0;
    fill(s, e, OUT * terms, below(s, 2));
    fill(s, x + off, n * terms, 0);
    fill(s, m[0] + off, n, 0);
    fill(s, v[0] + off, n, 0);
    memset(e, 0, below(s, 3) * OUT * terms / 4);
    memset(v[0] + off, 0, below(s, 3) == 0 ? n / 2 : 0);
    e[OUT * (terms - 1) + at] = 1;
    for (size_t i = 0; i < n; i++) {
        m[0][off + i] = m[0][off + i] == -128 ? -127 : m[0][off + i];
        v[0][off + i] = v[0][off + i] == -128 ? -127 : v[0][off + i];
        sums[0][i] = 0;
        for (size_t k = 0; k < terms; k++) {
            sums[0][i] += e[k * OUT + at] * x[off + k * n + i];
        }
        most = qfw_abs32(sums[0][i]) > most ? qfw_abs32(sums[0][i]) : most;
    }
    for (size_t k = 0; k < terms; k++) {
        all += qfw_abs32(e[k * OUT + at]);
    }
    memcpy(m[1], m[0], sizeof m[0]);
    memcpy(v[1], v[0], sizeof v[0]);
    const int32_t lift = -(int32_t)below(s, 22), bits = 8 + qfw_msb64(all);
    const qfw_key key = {word(s), word(s)}, key_v = {word(s), word(s)};
    const qfw_pace of_m = {slope(s, lift), slope(s, -(int32_t)below(s, 12)), &key};
    const qfw_pace of_v = {slope(s, lift + (int32_t)below(s, 5)),
                           slope(s, 4 - (int32_t)below(s, 3)), &key_v};
    const ptrdiff_t first = 4 * (ptrdiff_t)below(s, 20);
    qfw_fill_panel(x + off, n, terms, panel);
    qfw_panel_codes(e + o, OUT, terms, four);
    const uint32_t *codes = four + 2 * (at - o), told = qfw_panel_sum(codes);
    qfw_panel_row r = {m[0] + off, v[0] + off, codes, told, false, first,
                       n,          sums[1],    panel, key,  key_v, 0};
    const bool own = qfw_panel_own(&r, qfw_panel_slope_of(of_v.v));
    const qfw_panel_slopes of = {qfw_panel_slope_of(of_m.g), qfw_panel_slope_of(of_m.v),
                                 qfw_panel_slope_of(of_v.g)};
    if (below(s, 2) == 0) {
        report_check(qfw_panel_largest(&r) == most, number, "the largest sum");
    }
    const int32_t out = own ? qfw_move_by_panel(&r, &of) : -1;
    if (out >= 0) {
        qfw_row by = {NULL, sums[0], v[1] + off, n, first, 0, bits};
        const uint32_t wanted = qfw_move_both(m[1] + off, v[1] + off, &by, &of_m, &of_v);
        report_check((uint32_t)out == wanted, number, "what was held");
    }
    report_check(told == all, number, "the size of codes");
    report_check(memcmp(m[0], m[1], sizeof m[0]) == 0 && memcmp(v[0], v[1], sizeof v[0]) == 0,
                 number, "a row by a panel");
    return out >= 0;
}

int main(void)
{
    enum { TIMES = 6000 };
    source s = {{5, 17}, 0};
    unsigned taken = 0;
    report_suite("panel");
    for (unsigned i = 0; i < TIMES; i++) {
        taken += check_row(&s, i) ? 1 : 0;
    }
    report_check(taken > TIMES / 4 && taken < TIMES, taken, "rows that were taken");
    report_suite_end(TIMES);
    report_exit();
    return 1;
}

/* Every table of this machine against the portable one: rows of sums to int8, and normalisations, at
 * every number of columns; and the integer root against its definition. */
#include "base/elementary.h"
#include "base/round.h"
#include "kernels/kernels.h"
#include "report.h"
#include "source.h"

enum { TAILS = 200, ROOM = 700 };

/* Of up to `bits` bits and either sign. */
static int64_t number(source *s, uint32_t bits)
{
    const uint64_t v = ((uint64_t)word(s) << 32 | word(s)) >> (64 - bits);
    return below(s, 2) == 0 ? (int64_t)v : -(int64_t)v;
}

static bool same(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

/* ---- rows of sums ---- */

static void check_rescale(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    const size_t count = n % 8 == 7 ? ROOM - 100 : n; /* more than are drawn at once */
    const uint32_t bits = 1 + below(s, 31);
    const int32_t width = below(s, 4) == 0 ? 5 : 8, q = (1 << (width - 1)) - 1;
    const qfw_rounding rounding = below(s, 5) == 0 ? (qfw_rounding)below(s, 2) : QFW_STOCHASTIC;
    const qfw_code_rule rule = {rounding, 0, -q, q};
    const qfw_key key = {word(s), word(s)};
    int32_t a[ROOM];
    int8_t codes[2][ROOM];
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        a[i] = below(s, 8) == 0 ? 0 : (int32_t)number(s, bits);
        most = qfw_abs32(a[i]) > most ? qfw_abs32(a[i]) : most;
    }
    float scale = 1.0f;
    slow->scales_s32(0x1p-9f, &most, 1, (uint32_t)q, false, &scale);
    scale *= below(s, 4) == 0 ? 0.25f : 1.0f; /* and then some saturate */
    const qfw_ratio ratio = qfw_ratio_of(0x1p-9f, scale, width);
    const uint64_t first = below(s, 5000);
    memset(codes, 0x55, sizeof codes);
    const uint32_t x = fast->rescale_s8(a, count, &ratio, &rule, &key, first, codes[0] + 5);
    const uint32_t y = slow->rescale_s8(a, count, &ratio, &rule, &key, first, codes[1] + 5);
    report_check(same(codes[0], codes[1], ROOM) && x == y, n, "rescale_s8");
}

/* ---- normalisations ---- */

typedef struct {
    qfw_columns at;
    qfw_row_codes x;
    int16_t room[ROOM]; /* of either width */
} matrix;

/* n columns, or all and some rows more. */
static void fill(source *s, unsigned n, matrix *m)
{
    const qfw_columns at = {below(s, 30), QFW_CHANNELS + below(s, 6), 1 + n % QFW_CHANNELS};
    const int32_t width = below(s, 3) == 0 ? 16 : 8;
    m->at = at;
    m->x.codes = m->room;
    m->x.width = width;
    for (size_t i = 0; i < ROOM; i++) {
        const int32_t end = width == 8 ? 0x7F81 : 0x7FFF; /* 127 and -127, or the largest */
        m->room[i] = (int16_t)(below(s, 6) == 0 ? end : number(s, 15));
    }
}

static void check_sums(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    matrix m;
    int32_t sum[2][QFW_CHANNELS] = {{0}};
    uint64_t squares[2][QFW_CHANNELS] = {{0}};
    fill(s, n, &m);
    fast->norm_sums(&m.at, m.x, sum[0], squares[0]);
    slow->norm_sums(&m.at, m.x, sum[1], squares[1]);
    report_check(same(sum[0], sum[1], sizeof sum[0]), n, "norm_sums");
    report_check(same(squares[0], squares[1], sizeof squares[0]), n, "norm_sums: squares");
}

/* Squares that an int32 does not hold: the same row over and over. */
static void check_many(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    const qfw_columns at = {200000 + below(s, 3), 0, 1 + n % QFW_CHANNELS};
    int8_t row[QFW_CHANNELS];
    int32_t sum[2][QFW_CHANNELS] = {{0}};
    uint64_t squares[2][QFW_CHANNELS] = {{0}};
    for (size_t j = 0; j < QFW_CHANNELS; j++) {
        row[j] = (int8_t)(127 - 254 * (int32_t)below(s, 2));
    }
    const qfw_row_codes x = {row, 8};
    fast->norm_sums(&at, x, sum[0], squares[0]);
    slow->norm_sums(&at, x, sum[1], squares[1]);
    report_check(same(sum[0], sum[1], sizeof sum[0]) &&
                     same(squares[0], squares[1], sizeof squares[0]),
                 n, "norm_sums of many rows");
}

static void check_codes(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    matrix m;
    qfw_norm_lines lines;
    int32_t acc[2][ROOM];
    fill(s, n, &m);
    for (size_t j = 0; j < QFW_CHANNELS; j++) { /* |m slope - offset| < 2^57 */
        lines.slope[j] = number(s, 41);
        lines.offset[j] = number(s, 56);
        lines.shift[j] = 27 + below(s, 36);
        lines.sign[j] = (int32_t)below(s, 3) - 1;
    }
    memset(acc, 0x55, sizeof acc);
    fast->norm_codes(&m.at, m.x, &lines, acc[0] + 3);
    slow->norm_codes(&m.at, m.x, &lines, acc[1] + 3);
    report_check(same(acc[0], acc[1], sizeof acc[0]), n, "norm_codes");
}

static void check_back(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    matrix m;
    qfw_norm_back back;
    int32_t acc[2][ROOM];
    int64_t sum[2][QFW_CHANNELS], along[2][QFW_CHANNELS];
    fill(s, n, &m);
    back.slope = 64 * (int64_t)(1 + below(s, 1 << 16));
    back.frac = 6 + (int32_t)below(s, 11);
    back.down = 27 + (int32_t)below(s, 5); /* |y| < 2^37 + 2^37 + 2^57 */
    for (size_t j = 0; j < QFW_CHANNELS; j++) {
        back.offset[j] = number(s, 37);
        back.t[j] = number(s, 37);
        back.sign[j] = (int32_t)below(s, 3) - 1;
        sum[0][j] = sum[1][j] = number(s, 30);
        along[0][j] = along[1][j] = number(s, 50);
    }
    for (size_t i = 0; i < ROOM; i++) {
        acc[0][i] = acc[1][i] = (int32_t)number(s, 25);
    }
    fast->norm_along(&m.at, m.x, acc[0], sum[0], along[0]);
    slow->norm_along(&m.at, m.x, acc[1], sum[1], along[1]);
    report_check(same(sum[0], sum[1], sizeof sum[0]) && same(along[0], along[1], sizeof along[0]),
                 n, "norm_along");
    fast->norm_back(&m.at, m.x, &back, acc[0]);
    slow->norm_back(&m.at, m.x, &back, acc[1]);
    report_check(same(acc[0], acc[1], sizeof acc[0]), n, "norm_back");
}

/* ---- the integer root ---- */

static void check_root(uint64_t w, unsigned n)
{
    const uint64_t r = qfw_isqrt(w);
    const bool next = r < UINT32_MAX && (r + 1) * (r + 1) <= w;
    report_check(r <= UINT32_MAX && r * r <= w && !next, n, "isqrt");
}

static void check_roots(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    const uint64_t any = (uint64_t)word(s) << 32 | word(s), r = word(s) >> below(s, 32);
    (void)fast, (void)slow;
    check_root(any >> below(s, 64), n);
    check_root(r * r, n);
    check_root(r * r + 2 * r, n); /* the last below the next square */
    check_root(UINT64_MAX - n, n);
    check_root(n, n);
}

typedef void check_fn(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n);

static void run(const char *name, check_fn *check, unsigned times)
{
    source s = {{7, 11}, 0};
    unsigned cases = 0;
    report_suite(name);
    for (int isa = QFW_ISA_PORTABLE; isa < QFW_ISA_COUNT; isa++) {
        const qfw_kernels *fast = qfw_host_kernels((qfw_isa)isa);
        for (unsigned i = 0; fast != NULL && i < times; i++, cases++) {
            check(fast, qfw_kernels_portable(), &s, i % TAILS);
        }
    }
    report_suite_end(cases);
}

int main(void)
{
    run("rescale_s8", check_rescale, 50 * TAILS);
    run("norm_sums", check_sums, 10 * TAILS);
    run("norm_sums of many rows", check_many, 8);
    run("norm_codes", check_codes, 10 * TAILS);
    run("norm_along and norm_back", check_back, 10 * TAILS);
    run("isqrt", check_roots, 100 * TAILS);
    report_exit();
    return 1;
}

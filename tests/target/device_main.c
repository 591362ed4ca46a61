/* Kernels that firmware takes instead of a definition, against that: every length, any alignment. */
#include "base/random.h"
#include "kernels/kernels.h"
#include "kernels/moved.h"
#include "report.h"

#if defined(__ARM_FEATURE_DSP)
#define GEMM qfw_gemm_s32_dsp
#else
#define GEMM qfw_gemm_s32_scalar
#endif

enum { MOST_K = 208, MOST_N = 9, ROOM = MOST_K * MOST_N + 8 };

static void fill(int8_t *x, size_t n, uint32_t seed)
{
    const qfw_key key = {seed, 3};
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = qfw_draw(&key, (uint32_t)i);
        x[i] = (int8_t)(u % 5 == 0 ? 0 : u % 7 == 0 ? -128 : (int32_t)(u >> 8 & 0xFFu) - 128);
    }
}

/* Sums one by one, rows by rows. */
static void define(const qfw_gemm *g, const int8_t *a, const int8_t *b, int32_t *out)
{
    for (size_t i = 0; i < g->m; i++) {
        for (size_t j = 0; j < g->n; j++, out++) {
            *out = g->add != 0 ? *out : 0;
            for (size_t p = 0; p < g->k; p++) {
                *out += a[i * g->a_row + p] * b[j * g->b_col + p];
            }
        }
    }
}

static unsigned check_products(void)
{
    static int8_t a[ROOM], b[ROOM]; /* two rows, MOST_N columns */
    unsigned number = 0;
    fill(a, ROOM, 1);
    fill(b, ROOM, 2);
    for (size_t k = 0; k <= MOST_K; k += k < 40 ? 1 : 4) {
        for (size_t n = 1; n <= MOST_N; n++, number++) {
            const size_t off = (k + n) % 4, off_b = k % 3 == 0 ? 0 : n % 4;
            const qfw_gemm g = {a + off, b + off_b, 8, 8, 2, n, k, k, 1, 1, k, n % 2};
            int32_t x[2 * MOST_N], y[2 * MOST_N], z[2 * MOST_N];
            for (size_t i = 0; i < 2 * n; i++) {
                x[i] = y[i] = z[i] = (int32_t)i - 7;
            }
            define(&g, a + off, b + off_b, x);
            GEMM(&g, y, n);
            qfw_gemm_s32_scalar(&g, z, n);
            const bool same = memcmp(x, y, 2 * n * sizeof *x) == 0;
            report_check(same && memcmp(x, z, 2 * n * sizeof *x) == 0, number, "a product");
        }
    }
    return number;
}

/* Every length, any alignment, errors that are 0 among others; extremes of both. */
static unsigned check_sums(void)
{
    enum { OUT = 3, TERMS = 9, N = 21 };
    static int8_t e[OUT * TERMS], x[N * TERMS + 4];
    unsigned number = 0;
    for (size_t terms = 1; terms <= TERMS; terms++) {
        for (size_t n = 1; n <= N; n++, number++) {
            int32_t sums[N] = {0}, own[N] = {0};
            uint32_t all = 0;
            const size_t off = number % 4;
            fill(e, OUT * terms, number);
            fill(x + off, n * terms, number + 1);
            memset(e, 0, number % 6 == 0 ? OUT * terms : number % 5);
            for (size_t k = 0; k < terms; k++) {
                all += qfw_abs32(e[k * OUT]);
                for (size_t i = 0; i < n; i++) {
                    own[i] += e[k * OUT] * x[off + k * n + i];
                }
            }
            const bool told = qfw_sum_row(sums, e, OUT, x + off, n, terms) == all;
            report_check(told && memcmp(sums, own, n * sizeof *own) == 0, number, "sums of a row");
        }
    }
    return number;
}

/* Every number of them, any alignment; more rows than 16 bits hold, of the least code too. */
static unsigned check_biases(void)
{
    enum { OUT = 9, TERMS = 300 };
    static int8_t e[OUT * TERMS + 4];
    unsigned number = 0;
    for (size_t terms = 0; terms <= TERMS; terms += terms < 12 ? 1 : 48) {
        for (size_t n = 1; n <= OUT; n++, number++) {
            int32_t sums[OUT] = {0}, own[OUT] = {0};
            const size_t off = number % 4;
            fill(e + off, n * terms, number);
            memset(e + off, number % 7 == 0 ? -128 : 127, number % 3 == 0 ? n * terms : 0);
            for (size_t i = 0; i < n * terms; i++) {
                own[i % n] += e[off + i];
            }
            qfw_sum_biases(sums, e + off, n, terms);
            report_check(memcmp(sums, own, n * sizeof *own) == 0, number, "sums of biases");
        }
    }
    return number;
}

/* Of a row: what it has, and the coefficients of its two terms. */
typedef struct {
    size_t n;
    ptrdiff_t first;
    int32_t code;       /* of a row of sums: their bits */
    qfw_coef g, v, g_v; /* g_v: of the gradient in the state */
    bool sums, state;
} motion;

enum { MOST_ROW = 70 };

/* As loop_coef_of makes it: it is moved up by 28 at most. */
static qfw_coef coef(int32_t mu, int32_t down)
{
    const int32_t shift = down < -28 ? -28 : down;
    const qfw_coef k = {mu, shift < 0 ? (1 << 28) >> -shift : 1 << 28,
                        (uint8_t)(shift < 0 ? 0 : shift), (uint8_t)(shift < 0 ? -shift : 0)};
    return k;
}

/* The gradient as update_s32 takes it: products, or sums of up to so many bits, their extremes
 * included. */
static void gradient_of(const motion *c, const int8_t *x, unsigned number, int32_t *g)
{
    const qfw_key key = {number, 7};
    const int32_t most = 1 << (c->sums ? c->code : 0);
    for (size_t i = 0; i < c->n; i++) {
        const uint32_t u = qfw_draw(&key, (uint32_t)i);
        const int32_t some = (int32_t)(u & (uint32_t)(2 * most - 1)) - most;
        g[i] = !c->sums       ? c->code * x[i]
               : u >> 28 == 0 ? most - 1
               : u >> 28 == 1 ? 0
               : u >> 28 == 2 ? -most
                              : some;
    }
}

static qfw_soft_upper upper_of(const qfw_coef *k)
{
    const qfw_slope slope = qfw_slope_of(k);
    const qfw_soft_upper u = {(slope >> 8 & 0x7FFFu) | 0x8000u, slope >> 23};
    return u;
}

/* Both move, as a row of whole blocks where it may be one. */
static uint32_t move_both(const motion *c, int8_t *m, int8_t *v, qfw_row *row, const qfw_pace *of_m,
                          const qfw_pace *of_v)
{
    const qfw_slopes k = {upper_of(&c->g), upper_of(&c->v), upper_of(&c->g_v)};
    qfw_blocks b;
    if (!c->sums && c->first % 32 == 0 &&
        qfw_begin_blocks(&b, of_m->key, of_v->key, row->n, of_v->v)) {
        const uint32_t out = qfw_move_blocks(&b, (size_t)row->first, m, v, row->x, row->code, &k);
        if (out != 4) {
            return out;
        }
    }
    return qfw_move_both(m, v, row, of_m, of_v);
}

/* Parameter and state move as update_s32 moves them. */
static void check_row(const motion *c, unsigned number)
{
    int8_t m[MOST_ROW + 4] = {0}, v[MOST_ROW + 4] = {0}, x[MOST_ROW + 4] = {0};
    int32_t wide_m[MOST_ROW] = {0}, wide_v[MOST_ROW] = {0}, g[MOST_ROW] = {0};
    uint32_t u[MOST_ROW], u_v[MOST_ROW];
    const qfw_key key = {number, 11}, key_v = {number, 13};
    static const int32_t betas[] = {58982, 65024, 65280, 65535, 32768};
    const qfw_coef none = {0, 0, 0, 0}, of_v = c->state ? c->v : none;
    const qfw_coef beta = coef(betas[number % 5], -4);
    const qfw_move move = {c->g, of_v, none, 20, -127, 127, QFW_STOCHASTIC};
    const qfw_move state = {c->g_v, beta, none, 20, -127, 127, QFW_STOCHASTIC};
    const size_t off = number % 4, n = c->n;
    fill(m + off, n, number);
    fill(v + off, n, number + 1);
    fill(x + off, n, number + 2);
    memset(x + off, 0, number % 3 == 0 ? n / 2 : 0);
    memset(v + off, 0, number % 5 == 0 ? n / 2 : 0);
    gradient_of(c, x + off, number, g);
    for (size_t i = 0; i < n; i++) {
        m[off + i] = m[off + i] == -128 ? -127 : m[off + i];
        wide_m[i] = m[off + i];
        wide_v[i] = v[off + i];
    }
    qfw_uniforms(&key, (uint64_t)c->first, n, u);
    qfw_uniforms(&key_v, (uint64_t)c->first, n, u_v);
    const uint32_t told =
        qfw_update_s32_scalar(wide_m, c->state ? wide_v : NULL, g, n, true, &move, &state, u, u_v);
    qfw_row row = {
        c->sums ? NULL : x + off, g, c->state ? v + off : NULL, n, c->first, c->code, c->code};
    const qfw_pace of_m = {qfw_slope_of(&c->g), qfw_slope_of(&c->v), &key};
    const qfw_pace of_s = {qfw_slope_of(&c->g_v), qfw_slope_of(&beta), &key_v};
    const uint32_t out = c->state ? move_both(c, m + off, v + off, &row, &of_m, &of_s)
                                  : qfw_move_row(m + off, &row, &of_m);
    bool same = out == told;
    for (size_t i = 0; i < n; i++) {
        same = same && m[off + i] == wide_m[i] && v[off + i] == wide_v[i];
    }
    report_check(same, number, c->state ? "with a state" : c->sums ? "sums" : "products");
}

/* Every shift, and all alignments of the words. */
static unsigned check_moves(void)
{
    unsigned number = 0;
    for (int32_t shift = -28; shift < 44; shift++) {
        for (int32_t code = -128; code <= 128; code += shift % 2 == 0 ? 64 : 37) {
            for (int kind = 0; kind < 4; kind++, number++) {
                const bool sums = kind >= 2;
                const int32_t bits = 3 + (code + 128) / 10;
                const motion c = {number * 7 % (MOST_ROW + 1),
                                  (ptrdiff_t)(number % 37),
                                  sums ? bits : code,
                                  coef(number % 3 == 0 ? 65535 : 40000, shift),
                                  coef(60001, (int32_t)(number % 48) - 20),
                                  coef(45001, shift + (int32_t)(number % 19) - 9),
                                  sums,
                                  kind % 2 == 1};
                check_row(&c, number);
            }
        }
    }
    return number;
}

/* Every length of up to two blocks and more. */
static unsigned check_lengths(void)
{
    unsigned number = 0;
    for (size_t n = 0; n <= MOST_ROW; n++) {
        for (int kind = 0; kind < 12; kind++, number++) {
            const motion c = {n,
                              (ptrdiff_t)(n % 5),
                              kind % 4 >= 2 ? 17 : 100,
                              coef(50000, kind < 4   ? 6
                                          : kind < 8 ? 12
                                                     : 18),
                              coef(45000, kind % 3 - 1),
                              coef(60000, kind * 2),
                              kind % 4 >= 2,
                              kind % 2 == 1};
            check_row(&c, number);
        }
    }
    return number;
}

/* Terms about the bounds up to which a step is a byte, and those up to which nothing is held. */
static unsigned check_bounds(void)
{
    static const int32_t codes[] = {0, 1, -2, 26, 35, 64, -127, -128};
    unsigned number = 0;
    for (int32_t shift = -2; shift < 21; shift++) {
        for (int32_t of_v = -7; of_v < 1; of_v++) {
            for (int kind = 0; kind < 8; kind++, number++) {
                const bool sums = number % 3 == 2;
                const motion c = {1 + number % MOST_ROW,
                                  (ptrdiff_t)(number % 11),
                                  sums ? 5 + shift : codes[kind],
                                  coef(number % 2 == 0 ? 65535 : 33000, shift),
                                  coef(number % 5 == 0 ? 65535 : 37000, of_v),
                                  coef(52001, shift + kind - 3),
                                  sums,
                                  true};
                check_row(&c, number);
            }
        }
    }
    return number;
}

/* Rows that are whole blocks of random words, one without an error among four. */
static unsigned check_blocks(void)
{
    unsigned number = 0;
    for (int32_t shift = -6; shift < 14; shift++) {
        for (int32_t of_v = -7; of_v < 20; of_v++) {
            for (int32_t code = 0; code <= 120; code += 40, number++) {
                const motion c = {32 * (1 + number % 2),
                                  (ptrdiff_t)(32 * (number % 71)),
                                  number % 7 == 0 ? -code : code,
                                  coef(number % 2 == 0 ? 65535 : 33000, shift),
                                  coef(number % 5 == 0 ? 65535 : 37000, of_v),
                                  coef(52001, shift + (int32_t)(number % 13) - 9),
                                  false,
                                  true};
                check_row(&c, number);
            }
        }
    }
    return number;
}

/* Codes halved, at every length and from every place in a block. */
static unsigned check_halves(void)
{
    unsigned number = 0;
    for (size_t n = 0; n <= MOST_ROW; n++) {
        for (ptrdiff_t first = 0; first < 40; first += 3, number++) {
            const qfw_key key = {number, 17};
            int8_t m[MOST_ROW + 4] = {0}, own[MOST_ROW + 4];
            uint32_t u[MOST_ROW];
            const size_t off = number % 4;
            fill(m + off, n, number);
            memcpy(own, m, sizeof m);
            qfw_uniforms(&key, (uint64_t)first, n, u);
            for (size_t i = 0; i < n; i++) {
                own[off + i] = (int8_t)((own[off + i] + (int32_t)(u[i] >> 31)) >> 1);
            }
            qfw_halve_row(m + off, first, n, &key);
            report_check(memcmp(m, own, sizeof m) == 0, number, "halves");
        }
    }
    return number;
}

int main(void)
{
    report_suite("products");
    report_suite_end(check_products());
    report_suite("sums");
    report_suite_end(check_sums());
    report_suite("biases");
    report_suite_end(check_biases());
    report_suite("moves");
    report_suite_end(check_moves());
    report_suite("lengths");
    report_suite_end(check_lengths());
    report_suite("bounds");
    report_suite_end(check_bounds());
    report_suite("blocks");
    report_suite_end(check_blocks());
    report_suite("halves");
    report_suite_end(check_halves());
    report_exit();
    return 1;
}

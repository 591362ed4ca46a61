/* Rows of weights that move by a panel of the wire, with the DSP extension of a Cortex-M. */
#include "kernels/dsp.h"
#include "kernels/panel_rows.h"

#if defined(__ARM_FEATURE_DSP)

/* How far the codes of a panel are moved up, and those that meet it at most. */
enum { OF_PANEL = 8, OF_CODES = 8 };

/* ---- the panel ---- */

/* Four rows of x at four columns: the words of each column that are theirs. */
QFW_ALWAYS_INLINE void block(const int8_t *const x[4], size_t i, uint32_t *to)
{
    uint32_t upper = 0xFF00FF00u;
    __asm__("" : "+r"(upper)); /* a register takes what is shifted in the same step */
    const uint32_t w0 = dsp_word(x[0] + i), w2 = dsp_word(x[2] + i);
    const uint32_t e0 = w0 << 8 & upper, o0 = w0 & upper, e2 = w2 << 8 & upper, o2 = w2 & upper;
    const uint32_t w1 = dsp_word(x[1] + i), w3 = dsp_word(x[3] + i);
    const uint32_t e1 = w1 << 8 & upper, o1 = w1 & upper, e3 = w3 << 8 & upper, o3 = w3 & upper;
    to[0] = dsp_lows(e0, e2);
    to[1] = dsp_lows(e1, e3);
    to[4] = dsp_lows(o0, o2);
    to[5] = dsp_lows(o1, o3);
    to[8] = dsp_highs(e0, e2);
    to[9] = dsp_highs(e1, e3);
    to[12] = dsp_highs(o0, o2);
    to[13] = dsp_highs(o1, o3);
}

void qfw_fill_panel(const int8_t *x, size_t n, size_t terms, uint32_t *panel)
{
    for (size_t half = 0; half < 2; half++, panel += 2) {
        const int8_t *row[4] = {x, x, x, x};
        const size_t first = 4 * half, some = terms < first + 4 ? terms - first : 4;
        for (size_t k = 0; k < some; k++) {
            row[k] = x + (first + k) * n;
        }
        for (size_t i = 0; i < n; i += 4) {
            block(row, i, panel + QFW_PANEL_WORDS * i);
        }
    }
}

/* Four rows' codes of four columns, a word of a column's. */
QFW_ALWAYS_INLINE void four_codes(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, uint32_t *to)
{
    const uint32_t lower = 0x00FF00FFu;
    const uint32_t e0 = (w0 & lower) | (w1 & lower) << 8, o0 = (w0 >> 8 & lower) | (w1 & ~lower);
    const uint32_t e2 = (w2 & lower) | (w3 & lower) << 8, o2 = (w2 >> 8 & lower) | (w3 & ~lower);
    to[0] = dsp_lows(e0, e2);
    to[2] = dsp_lows(o0, o2);
    to[4] = dsp_highs(e0, e2);
    to[6] = dsp_highs(o0, o2);
}

void qfw_panel_codes(const int8_t *e, size_t out, size_t terms, uint32_t *codes)
{
    const int8_t *f = e + 4 * out;
    four_codes(dsp_word(e), dsp_word(e + out), dsp_word(e + 2 * out), dsp_word(e + 3 * out), codes);
    if (terms == QFW_PANEL_TERMS) {
        four_codes(dsp_word(f), dsp_word(f + out), dsp_word(f + 2 * out), dsp_word(f + 3 * out),
                   codes + 1);
    } else {
        four_codes(dsp_word(f), terms > 5 ? dsp_word(f + out) : 0,
                   terms > 6 ? dsp_word(f + 2 * out) : 0, 0, codes + 1);
    }
}

/* A code and 128 are as far apart as it and 0. */
uint32_t qfw_panel_sum(const uint32_t *codes)
{
    const uint32_t middle = 0x80808080u;
    return dsp_apart(codes[1] ^ middle, middle, dsp_apart(codes[0] ^ middle, middle, 0));
}

/* ---- sums ---- */

/* Codes of 16 bits, as a panel's words have them, and 2^up times them, up <= 8: what is moved out of a
 * low half is not its neighbour's. */
typedef struct {
    uint32_t two[QFW_PANEL_WORDS];
} factors;

static factors factors_of(const uint32_t *codes, uint32_t up)
{
    const uint32_t keep = ~(((UINT32_C(1) << up) - 1) << 16);
    const factors f = {{dsp_even(codes[0]) << up & keep, dsp_odd(codes[0]) << up & keep,
                        dsp_even(codes[1]) << up & keep, dsp_odd(codes[1]) << up & keep}};
    return f;
}

/* A column in the four registers from w0 on: its sum in w0. */
#define COLUMN(w0, w1, w2, w3)                        \
    "ldmia r0!, {" w0 ", " w1 ", " w2 ", " w3 "}\n\t" \
    "smuad " w0 ", " w0 ", r3\n\t"                    \
    "smlad " w0 ", " w1 ", r11, " w0 "\n\t"           \
    "smlad " w0 ", " w2 ", r12, " w0 "\n\t"           \
    "smlad " w0 ", " w3 ", lr, " w0 "\n\t"

#define FOUR_COLUMNS               \
    COLUMN("r4", "r5", "r6", "r7") \
    COLUMN("r5", "r6", "r7", "r8") \
    COLUMN("r6", "r7", "r8", "r9") \
    COLUMN("r7", "r8", "r9", "r10") "stmia r1!, {r4, r5, r6, r7}\n\t"

/* Sums of fours of columns, some at least, up to `end`: they go in pairs, an odd one first. By registers
 * that are named; r7, which some compilers keep, is as it was after. */
static __attribute__((noinline)) void sum_columns(const uint32_t *panel, int32_t *sums,
                                                  const int32_t *end, const factors *f)
{
    register const uint32_t *x __asm__("r0") = panel;
    register int32_t *to __asm__("r1") = sums;
    register const int32_t *stop __asm__("r2") = end;
    register const factors *by __asm__("r3") = f;
    __asm__ volatile("push {r7}\n\t"
                     "sub r4, r2, r1\n\t"
                     "ldr r11, [r3, #4]\n\t"
                     "ldrd r12, lr, [r3, #8]\n\t"
                     "ldr r3, [r3]\n\t"
                     "lsls r4, r4, #27\n\t"
                     "bmi 2f\n"
                     "1:\n\t" FOUR_COLUMNS "2:\n\t" FOUR_COLUMNS "cmp r1, r2\n\t"
                     "bne 1b\n\t"
                     "pop {r7}"
                     : "+r"(x), "+r"(to), "+r"(by)
                     : "r"(stop)
                     : "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "memory", "cc");
}

/* |v|, or most if that is larger; below 2^31. */
QFW_ALWAYS_INLINE int32_t larger(int32_t v, int32_t most)
{
    return most + dsp_positive((int32_t)qfw_abs32(v) - most);
}

/* Sums of 8 codes are below 2^17, and 2^8 times that. */
QFW_COLD QFW_NOINLINE uint32_t qfw_panel_largest(qfw_panel_row *r)
{
    const factors f = factors_of(r->codes, 0);
    const int32_t *end = r->sums + r->n;
    int32_t most = 0;
    sum_columns(r->panel, r->sums, end, &f);
    for (const int32_t *sum = r->sums; sum < end; sum += 4) {
        most = larger(sum[3], larger(sum[2], larger(sum[1], larger(sum[0], most))));
    }
    r->made = true;
    return (uint32_t)most >> OF_PANEL;
}

/* 2^up times the sums. */
static QFW_COLD QFW_NOINLINE void move_up(int32_t *sums, const int32_t *end, uint32_t up)
{
    for (; sums < end; sums += 4) {
        sums[0] = (int32_t)((uint32_t)sums[0] << up);
        sums[1] = (int32_t)((uint32_t)sums[1] << up);
        sums[2] = (int32_t)((uint32_t)sums[2] << up);
        sums[3] = (int32_t)((uint32_t)sums[3] << up);
    }
}

/* ---- codes ---- */

/* Codes of both, the words of the first being u and u_v. The term of a sum is (sum g) >> 32, that of a
 * state (2^8 mu v) >> 16. */
typedef struct {
    int32_t g, mu;
    uint32_t u, step;
    int32_t g_v, mu_v; /* of the state */
    uint32_t u_v, step_v;
    const int8_t *end; /* of the state's codes */
    uint32_t out;      /* not 0: a code of the parameter was held */
} pace;

/* Random words of four elements, the first in r8, as their last bits in r10, r11, r12 and r8. */
#define FOUR_WORDS(to)         \
    "lsr r10, r8, #12\n\t"     \
    "add r8, r8, r9\n\t"       \
    "lsr r11, r8, #12\n\t"     \
    "add r8, r8, r9\n\t"       \
    "lsr r12, r8, #12\n\t"     \
    "add r8, r8, r9\n\t"       \
    "add r9, r8, r9\n\t"       \
    "str r9, [lr, " to "]\n\t" \
    "lsr r8, r8, #12\n\t"

/* And the terms of the state's codes, 0 and 2 in r6, 1 and 3 in r5, and of the sums, in r2; steps with
 * four more bits, two a word. */
#define FOUR_TERMS(next)               \
    "smlawb r10, r7, r6, r10\n\t"      \
    "smlawb r11, r7, r5, r11\n\t"      \
    "smlawt r12, r7, r6, r12\n\t"      \
    "smlawt r8, r7, r5, r8\n\t"        \
    "ldrd r7, r9, [r2, #8]\n\t"        \
    "smmla r12, r4, r7, r12\n\t"       \
    "smmla r8, r4, r9, r8\n\t"         \
    "ldrd r7, r9, [r2]" next "\n\t"    \
    "smmla r10, r4, r7, r10\n\t"       \
    "smmla r11, r4, r9, r11\n\t"       \
    "pkhtb r10, r12, r10, asr #16\n\t" \
    "pkhtb r11, r8, r11, asr #16\n\t"

/* What of them a byte takes, in order. */
#define BYTES_OF(or)               \
    "and r10, r10, r3, ror #4\n\t" \
    "and r11, r3, r11, lsl #4\n\t" or " r10, r11, r10, lsr #4\n\t"

/* -128 becomes -127 */
#define NO_LEAST(x)              \
    "mov r9, #0x01010101\n\t"    \
    "qsub8 " x ", " x ", r9\n\t" \
    "qadd8 " x ", " x ", r9\n\t"

/* Four codes of the parameter less their steps, which are bytes, and of the state; what is held goes to
 * `held`. */
#define FOUR(on, stays, held)                                                                     \
    "ldr r5, [r1]\n\t"                                                                            \
    "and r6, r3, r5, lsl #8\n\t"                                                                  \
    "and r5, r3, r5\n\t"                                                                          \
    "ldmdb lr, {r4, r7, r8, r9}\n\t" FOUR_WORDS("#-8") FOUR_TERMS("")                             \
        BYTES_OF("orrs") "beq " stays "f\n\t"                                                     \
                         "ldr r9, [r1, r0]\n\t"                                                   \
                         "qsub8 r11, r9, r10\n\t"                                                 \
                         "qadd8 r10, r11, r10\n\t"                                                \
                         "cmp r10, r9\n\t"                                                        \
                         "bne " held "f\n" on ":\n\t" NO_LEAST(                                   \
                             "r11") "str r11, [r1, r0]\n" stays ":\n\t"                           \
                                    "ldmia lr, {r4, r7, r8, r9}\n\t" FOUR_WORDS("#8") FOUR_TERMS( \
                                        ", #16") "ssat16 r10, #12, r10\n\t"                       \
                                                 "ssat16 r11, #12, r11\n\t" BYTES_OF("orr")       \
                                                     NO_LEAST("r10") "str r10, [r1], #4\n\t"

#define HELD(on, held) held ":\n\tstr lr, [lr, #20]\n\tb " on "b\n"

/* Codes from v up to p->end, fours of them, and those of the parameter, `to_m` from them: fours go in pairs,
 * an odd one first. By registers that are named; r7, which some compilers keep, is as it was after. A state
 * that was held sets the flag. */
static __attribute__((noinline)) void move_fours(ptrdiff_t to_m, int8_t *v, const int32_t *sums,
                                                 pace *p)
{
    register ptrdiff_t other __asm__("r0") = to_m;
    register int8_t *own __asm__("r1") = v;
    register const int32_t *from __asm__("r2") = sums;
    register uint32_t upper __asm__("r3") = 0xFF00FF00u;
    register const void *middle __asm__("lr") = &p->g_v;
    __asm__ volatile("push {r7}\n\t"
                     "ldr r4, [lr, #16]\n\t"
                     "sub r4, r4, r1\n\t"
                     "lsls r4, r4, #29\n\t"
                     "bmi 2f\n"
                     "1:\n\t" FOUR("3", "4", "8") "2:\n\t" FOUR(
                         "5", "6", "7") "ldr r9, [lr, #16]\n\t"
                                        "cmp r1, r9\n\t"
                                        "bne 1b\n\t"
                                        "b 9f\n" HELD("3", "8") HELD("5", "7") "9:\n\t"
                                                                               "pop {r7}"
                     : "+r"(own), "+r"(from)
                     : "r"(other), "r"(upper), "r"(middle)
                     : "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
}

/* ---- a row ---- */

/* Terms of the parameter are at most 2^25 of sums and 2^26 of codes, so that steps are bytes. Those of the
 * state are below 127 2^20 of codes, and at most 2^30 of sums: one above 2^28, which the definition clamps,
 * leaves the codes by more than one step either way. */
enum { MOST_G = 25, MOST_MU = 26, MOST_OWN = 27, MOST_G_V = 30 };

/* 2^8 mu, as codes of a state are multiplied; terms of at most 2^most. */
QFW_ALWAYS_INLINE bool find_mu(qfw_panel_slope v, int32_t most, int32_t *to)
{
    const int32_t left = 8 + v.lift;
    *to = (int32_t)(v.mu << (left & 31));
    return (uint32_t)left <= (uint32_t)(most - 15);
}

bool qfw_panel_own(qfw_panel_row *r, qfw_panel_slope own)
{
    return find_mu(own, MOST_OWN, &r->own);
}

/* qfw_draw of two numbers at a time: `at` is the first's times the constant of its own. */
QFW_ALWAYS_INLINE qfw_draw_pair draw_pair(const qfw_key *key, uint32_t at, uint32_t m, uint32_t m2)
{
    uint32_t x = key->k0 + at, y = x + 0x9E3779B9u;
    x = (x ^ x >> 16) * m;
    y = (y ^ y >> 16) * m;
    x = ((x ^ x >> 15) + key->k1) * m2;
    y = ((y ^ y >> 15) + key->k1) * m2;
    const qfw_draw_pair d = {x ^ x >> 16, (y ^ y >> 16) | 1u};
    return d;
}

/* The words of element `at`, of both: qfw_words_at. */
static inline void draw_words(const qfw_panel_row *r, ptrdiff_t at, pace *p)
{
    const uint32_t in = (uint32_t)at & 31u, twice = (uint32_t)at >> 5 << 1;
    uint32_t m = 0x7feb352du, m2 = 0x846ca68bu;
    __asm__("" : "+r"(m), "+r"(m2)); /* else one is made of the other, again and again */
    const qfw_draw_pair w = draw_pair(&r->key, twice * 0x9E3779B9u, m, m2);
    const qfw_draw_pair w_v = draw_pair(&r->key_v, twice * 0x9E3779B9u, m, m2);
    p->u = w.a + in * w.b;
    p->step = w.b;
    p->u_v = w_v.a + in * w_v.b;
    p->step_v = w_v.b;
}

static uint32_t move_blocks(const qfw_panel_row *r, pace *p)
{
    const int32_t *sums = r->sums;
    const ptrdiff_t to_m = (ptrdiff_t)((uintptr_t)r->m - (uintptr_t)r->v);
    ptrdiff_t at = r->first;
    int8_t *v = r->v;
    p->out = 0;
    dsp_clear_flag();
    for (size_t left = r->n, n; left > 0; left -= n, at += (ptrdiff_t)n, v += n, sums += n) {
        draw_words(r, at, p);
        n = moved_count(at, left);
        p->end = v + n;
        move_fours(to_m, v, sums, p);
    }
    return (p->out != 0 ? 1u : 0u) | dsp_flag() << 1;
}

/* |sum| < 2^bits, and so are parts of it: 2^up times them are within an int32. What they are multiplied by
 * then, so that the high word is a term, is below 2^31. */
int32_t qfw_move_by_panel(const qfw_panel_row *r, const qfw_panel_slopes *of)
{
    const int32_t bits = 8 + qfw_msb64(r->all), room = 31 - bits;
    const int32_t up = room < OF_PANEL + OF_CODES ? room : OF_PANEL + OF_CODES;
    const int32_t lift = of->g.lift, lift_v = of->g_v.lift;
    const int32_t left = 32 + lift - up, left_v = 32 + lift_v - up;
    pace p;
    p.g = (int32_t)(of->g.mu << (left & 31));
    p.g_v = (int32_t)(of->g_v.mu << (left_v & 31));
    p.mu_v = r->own;
    if (up < OF_PANEL || (uint32_t)left > 15 || (uint32_t)left_v > 15 ||
        bits + 16 + lift > MOST_G || bits + 16 + lift_v > MOST_G_V ||
        !find_mu(of->v, MOST_MU, &p.mu)) {
        return -1;
    }
    if (r->made) {
        move_up(r->sums, r->sums + r->n, (uint32_t)(up - OF_PANEL));
    } else {
        const factors f = factors_of(r->codes, (uint32_t)(up - OF_PANEL));
        sum_columns(r->panel, r->sums, r->sums + r->n, &f);
    }
    return (int32_t)move_blocks(r, &p);
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

/* A row of int8 codes that moves, with the DSP extension of a Cortex-M. */
#include "kernels/both_dsp.h"
#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

typedef struct pace pace;

/* Moves a row; not 0 if a value was outside -128 .. 127 and the flag does not say so. */
typedef uint32_t mover(int8_t *to, const qfw_row *r, const pace *p);

/* Coefficients of instructions that multiply: the term of a byte is (g x) >> 16, that of a sum ((sum <<
 * up) g) >> 32, that of a state (2^8 v x) >> 16; and those they were made of. */
struct pace {
    int32_t g, v;
    uint32_t up;
    mover *move;
    const qfw_pace *of;
};

/* n codes, a multiple of four and not 0, that move by bytes, the words of the first being w. */
typedef struct {
    const int8_t *x, *end; /* the end of what moves */
    int32_t g;
    qfw_words w;
} bytes;

/* How the gradient's codes come. */
typedef enum { BYTES, SUMS } source;

/* A term alone has 24 bits more than its code, of which the random word has the upper 20 and 0 below:
 * with what a floor at 2^-20 would drop of the term the sum does not pass the next code. Two terms, of
 * which each is a floor of its own, have 20. */
enum { ALONE_FRAC = 24 };

/* The random word of a step, as its last bits. */
static inline int32_t word(uint32_t u, const bool alone)
{
    return (int32_t)(alone ? u >> 8 & 0xFFFFF0u : u >> (32 - MOVED_FRAC));
}

/* Codes from `to` on less their steps, a term alone; `out` grows with every difference that was held. By
 * registers that are named: no compiler has to find room for them all. r7, which some keep, is as it was
 * after. Four codes of x that are 0 move nothing. */
#define EVEN_UP "and r6, r10, r5, lsl #8\n\t"
#define ODD_UP "and r5, r10, r5\n\t"
#define EVEN "sxtb16 r6, r5\n\t"
#define ODD "sxtb16 r5, r5, ror #8\n\t"
#define NEXT_WORD(to) "and " to ", r9, r1, lsr #8\n\tadd r1, r1, r2\n\t"
#define FOURS(name, even, odd)                                                                   \
    static __attribute__((noinline)) uint32_t name(int8_t *to, const bytes *b)                   \
    {                                                                                            \
        register int8_t *m __asm__("r4") = to;                                                   \
        register uint32_t u __asm__("r1") = b->w.u;                                              \
        register uint32_t step __asm__("r2") = b->w.step;                                        \
        register const int8_t *x __asm__("r3") = b->x;                                           \
        register int32_t g __asm__("r8") = b->g;                                                 \
        register uint32_t mask __asm__("r9") = 0xFFFFF0u;                                        \
        register uint32_t upper __asm__("r10") = 0xFF00FF00u;                                    \
        register uint32_t out __asm__("r0") = 0;                                                 \
        register const int8_t *end __asm__("r12") = b->end;                                      \
        __asm__ volatile(                                                                        \
            "push {r7}\n"                                                                        \
            "1:\n\t"                                                                             \
            "ldr r5, [r3], #4\n\t"                                                               \
            "cbz r5, 3f\n\t" NEXT_WORD("r11") even odd                                           \
            "smlawb r11, r8, r6, r11\n\t" NEXT_WORD("lr") "smlawb lr, r8, r5, lr\n\t" NEXT_WORD( \
                "r7") "smlawt r6, r8, r6, r7\n\t"                                                \
                      "pkhtb r11, r6, r11, asr #16\n\t" NEXT_WORD(                               \
                          "r7") "smlawt r5, r8, r5, r7\n\t"                                      \
                                "pkhtb lr, r5, lr, asr #16\n\t"                                  \
                                "uxtb16 r11, r11, ror #8\n\t"                                    \
                                "and lr, lr, r10\n\t"                                            \
                                "orrs r11, r11, lr\n\t"                                          \
                                "beq 2f\n\t"                                                     \
                                "ldr r5, [r4]\n\t"                                               \
                                "mov r7, #0x01010101\n\t"                                        \
                                "qsub8 r6, r5, r11\n\t"                                          \
                                "qadd8 r11, r6, r11\n\t"                                         \
                                "usada8 r0, r11, r5, r0\n\t"                                     \
                                "qsub8 r6, r6, r7\n\t" /* -128 becomes -127 */                   \
                                "qadd8 r6, r6, r7\n\t"                                           \
                                "str r6, [r4], #4\n\t"                                           \
                                "cmp r4, r12\n\t"                                                \
                                "bne 1b\n\t"                                                     \
                                "b 4f\n"                                                         \
                                "3:\n\t"                                                         \
                                "add r1, r1, r2, lsl #2\n"                                       \
                                "2:\n\t"                                                         \
                                "add r4, r4, #4\n\t"                                             \
                                "cmp r4, r12\n\t"                                                \
                                "bne 1b\n"                                                       \
                                "4:\n\t"                                                         \
                                "pop {r7}"                                                       \
            : "+r"(m), "+r"(u), "+r"(x), "+r"(out)                                               \
            : "r"(step), "r"(g), "r"(mask), "r"(upper), "r"(end)                                 \
            : "r5", "r6", "r11", "lr", "memory", "cc");                                          \
        return out;                                                                              \
    }

FOURS(bytes_alone, EVEN, ODD)
FOURS(bytes_up_alone, EVEN_UP, ODD_UP)

/* Four codes less the steps of terms alone, a byte each; with every difference that was held `out` grows.
 */
static inline uint32_t move_alone(int8_t *m, int32_t y0, int32_t y1, int32_t y2, int32_t y3,
                                  uint32_t out)
{
    const uint32_t by02 = dsp_highs((uint32_t)y0, (uint32_t)y2);
    const uint32_t by13 = dsp_highs((uint32_t)y1, (uint32_t)y3);
    const uint32_t steps = dsp_high_bytes(by02) | (by13 & 0xFF00FF00u);
    if (steps == 0) { /* they stay */
        return out;
    }
    const uint32_t four = dsp_word(m), less = dsp_less_bytes(four, steps);
    dsp_put_word(m, dsp_no_least(less));
    return dsp_apart(dsp_plus_bytes(less, steps), four, out);
}

/* And less those of two terms: |y| < 2^31, so a step has at most 11 bits and the difference fits 16. */
static inline void move_both(int8_t *m, int32_t y0, int32_t y1, int32_t y2, int32_t y3)
{
    const uint32_t by02 = dsp_pack_tops((uint32_t)(y2 >> 4), y0);
    const uint32_t by13 = dsp_pack_tops((uint32_t)(y3 >> 4), y1);
    if ((by02 | by13) == 0) {
        return;
    }
    const uint32_t four = dsp_word(m);
    const uint32_t v02 = dsp_held(dsp_less(dsp_even(four), by02));
    const uint32_t v13 = dsp_held(dsp_less(dsp_odd(four), by13));
    dsp_put_word(m, dsp_no_least(dsp_low_bytes(v02) | dsp_low_bytes(v13) << 8));
}

/* Four steps. */
static inline void set_four(int8_t *v, int32_t y0, int32_t y1, int32_t y2, int32_t y3)
{
    dsp_put_word(v, dsp_no_least(dsp_bytes(dsp_top(y0), dsp_top(y1), dsp_top(y2), dsp_top(y3))));
}

/* n codes by their sums, the words of the first being w: a multiple of four. */
QFW_ALWAYS_INLINE uint32_t move_fours(int8_t *to, const int32_t *sum, const int8_t *own, size_t n,
                                      const pace *p, qfw_words w, const bool state, const bool anew)
{
    const uint32_t upper = 0xFF00FF00u, up = p->up, step = w.step;
    const int32_t g = p->g, v = p->v;
    const int8_t *end = to + n;
    uint32_t u = w.u, out = 0;
    for (; to < end; to += 4, sum += 4) {
        int32_t y0 = word(u, !state), y1 = word(u += step, !state);
        int32_t y2 = word(u += step, !state), y3 = word(u += step, !state);
        u += step;
        if (state) {
            const uint32_t four = dsp_word(anew ? to : own);
            const uint32_t v02 = four << 8 & upper, v13 = four & upper;
            own += anew ? 0 : 4;
            y0 = dsp_low(v, v02, y0);
            y1 = dsp_low(v, v13, y1);
            y2 = dsp_high(v, v02, y2);
            y3 = dsp_high(v, v13, y3);
        }
        y0 = dsp_most(sum[0], up, g, y0);
        y1 = dsp_most(sum[1], up, g, y1);
        y2 = dsp_most(sum[2], up, g, y2);
        y3 = dsp_most(sum[3], up, g, y3);
        if (anew) {
            set_four(to, y0, y1, y2, y3);
        } else if (state) {
            move_both(to, y0, y1, y2, y3);
        } else {
            out = move_alone(to, y0, y1, y2, y3, out);
        }
    }
    return out;
}

/* Fewer than four, or all of a row that instructions do not take. */
static __attribute__((noinline)) uint32_t move_rest(int8_t *to, const qfw_row *r,
                                                    const qfw_pace *of, size_t from, size_t end,
                                                    bool anew)
{
    const qfw_words w = moved_words(of->key, r->first + (ptrdiff_t)from);
    return moved_one_by_one(to, r, from, end, of->g, of->v, w, anew);
}

/* A row, block by block; `from`, `state` and `anew` are constants at each call. */
QFW_ALWAYS_INLINE uint32_t move_blocks(int8_t *to, const qfw_row *r, const pace *p,
                                       const source from, const bool state, const bool anew)
{
    uint32_t out = 0;
    ptrdiff_t at = r->first;
    for (size_t i = 0, n; i < r->n; i += n, at += (ptrdiff_t)n) {
        const qfw_words w = moved_words(p->of->key, at);
        n = moved_count(at, r->n - i);
        const size_t most = QFW_HAS_RESTS ? n & ~(size_t)3 : n;
        if (from == SUMS) {
            out |=
                move_fours(to + i, r->sums + i, state ? r->v + i : NULL, most, p, w, state, anew);
        } else if (most != 0) {
            const bytes b = {r->x + i, to + i + most, p->g, w};
            out |= p->up == 0 ? bytes_alone(to + i, &b) : bytes_up_alone(to + i, &b);
        }
        if (most < n) {
            out |= move_rest(to, r, p->of, i + most, i + n, anew);
        }
    }
    return out;
}

static uint32_t move_bytes(int8_t *to, const qfw_row *r, const pace *p)
{
    return move_blocks(to, r, p, BYTES, false, false);
}

static uint32_t move_sums(int8_t *to, const qfw_row *r, const pace *p)
{
    return move_blocks(to, r, p, SUMS, false, false);
}

static uint32_t move_sums_on(int8_t *to, const qfw_row *r, const pace *p)
{
    return move_blocks(to, r, p, SUMS, true, false);
}

static uint32_t set_sums(int8_t *to, const qfw_row *r, const pace *p)
{
    return move_blocks(to, r, p, SUMS, true, true);
}

/* |code mu| < 2^bits, mu < 2^16. */
static int32_t bits_of_factor(int32_t code)
{
    return code == 0 ? 0 : 17 + qfw_msb64(qfw_abs32(code));
}

/* What multiplies a byte, or 2^8 times it, with terms of at most 2^28: code mu 2^lift, the factor having
 * 16 bits more, or 8. */
static bool find_factor(int32_t c, int32_t left, int32_t *to)
{
    *to = (int32_t)((uint32_t)c << (left & 31));
    return left >= 0;
}

/* What codes of a state are multiplied by, 2^8 times them: terms of at most 2^most. mu < 2^16. */
static bool find_mu(const qfw_coef *v, int32_t most, int32_t *to)
{
    const int32_t left = 8 + v->left - v->right;
    *to = (int32_t)((uint32_t)v->mu << (left & 31));
    return left >= 0 && left + 15 <= most;
}

/* Whether the row's terms are within what the instructions make of them: 2^30 of a term alone, so that
 * a step has 7 bits; 2^28 of each of two. Bytes have no state here. */
static bool find_pace(const qfw_row *r, bool anew, pace *p)
{
    const bool has_state = QFW_HAS_STATE && r->v != NULL;
    const qfw_coef *g = p->of->g;
    const int32_t lift = g->left - g->right + (has_state ? 0 : ALONE_FRAC - MOVED_FRAC);
    const int32_t most = has_state ? 28 : 30;
    p->v = 0;
    if (has_state && !find_mu(p->of->v, most, &p->v)) {
        return false;
    }
    if (QFW_HAS_ANY_MOVE && r->x == NULL) {
        const int32_t all = 32 + lift, of_g = all < 15 ? all : 15;
        p->move = !has_state ? move_sums : anew ? set_sums : move_sums_on;
        p->up = (uint32_t)(all - of_g);
        p->g = (int32_t)((uint32_t)g->mu << (of_g & 31));
        return all >= 0 && r->bits + all - of_g <= 30 && r->bits + 16 + lift <= most;
    }
    const int32_t bits = bits_of_factor(r->code) + lift;
    p->up = bits > 15 ? 8 : 0;
    p->move = move_bytes;
    return !has_state && bits + 7 <= most &&
           find_factor(r->code * g->mu, lift + 16 - (int32_t)p->up, &p->g);
}

/* The row's sums are within 2^bits, and not 2^(bits - 1). */
static int32_t bits_of(const qfw_row *r)
{
    uint32_t any = 0;
    for (size_t i = 0; i < r->n; i++) {
        any |= (uint32_t)(r->sums[i] ^ (r->sums[i] >> 31));
    }
    return any == 0 ? 0 : qfw_msb64(any) + 1;
}

uint32_t qfw_move_row(int8_t *to, qfw_row *r, const qfw_coef *g, const qfw_coef *v,
                      const qfw_key *key, bool anew)
{
    const qfw_pace of = {g, v, key};
    pace p;
    p.of = &of;
    bool fast = find_pace(r, anew, &p);
    if (QFW_HAS_ANY_MOVE && !fast && r->x == NULL) {
        r->bits = bits_of(r);
        fast = find_pace(r, anew, &p);
    }
    if (!fast) {
        uint32_t out = 0;
        for (size_t i = 0, n; i < r->n; i += n) {
            n = moved_count(r->first + (ptrdiff_t)i, r->n - i);
            out |= move_rest(to, r, &of, i, i + n, anew);
        }
        return out;
    }
    dsp_clear_flag();
    return (p.move(to, r, &p) != 0 ? 1u : 0u) | dsp_flag();
}

/* ---- with a state, at once ---- */

typedef uint32_t mover_of_both(int8_t *m, int8_t *v, const int8_t *x, const both *b);

/* Steps of the parameter are bytes: terms are at most 2^25 of x and 2^26 of v. Those of the state are
 * held. NULL: one is beyond. */
static mover_of_both *find_both(const qfw_row *r, const qfw_pace *of_m, const qfw_pace *of_v,
                                both *b)
{
    const qfw_coef *g = of_m->g, *g_v = of_v->g;
    const int32_t lift = g->left - g->right, lift_v = g_v->left - g_v->right;
    const int32_t bits = bits_of_factor(r->code);
    const bool up = bits + lift > 15, up_v = lift_v >= -8;
    const bool fast = find_mu(of_m->v, 26, &b->mu) && find_mu(of_v->v, 28, &b->mu_v) &&
                      find_factor(r->code * g->mu, lift + (up ? 8 : 16), &b->g) &&
                      find_factor(r->code * g_v->mu, lift_v + (up_v ? 8 : 16), &b->g_v) &&
                      bits + 7 + lift <= 25 && bits + 7 + lift_v <= 28 && (up_v || !up);
    return !fast ? NULL : up ? both_up : up_v ? state_up : both_low;
}

/* By bytes, block by block. */
static uint32_t move_both_bytes(int8_t *m, int8_t *v, const qfw_row *r, const qfw_pace *of_m,
                                const qfw_pace *of_v, mover_of_both *move, both *b)
{
    static const int8_t zeros[32] = {0};
    uint32_t out = 0;
    ptrdiff_t at = r->first;
    dsp_clear_flag();
    for (size_t i = 0, n; i < r->n; i += n, at += (ptrdiff_t)n) {
        const qfw_words w = moved_words(of_m->key, at), w_v = moved_words(of_v->key, at);
        n = moved_count(at, r->n - i);
        const size_t most = n & ~(size_t)3;
        b->u = w.u;
        b->step = w.step;
        b->u_v = w_v.u;
        b->step_v = w_v.step;
        b->end = m + i + most;
        b->out = 0;
        if (most != 0) {
            out |= move(m + i, v + i, r->code == 0 ? zeros : r->x + i, b) != 0 ? 1u : 0u;
        }
        if (most < n) {
            out |= move_rest(m, r, of_m, i + most, i + n, false);
            out |= move_rest(v, r, of_v, i + most, i + n, true) << 1;
        }
    }
    return out | dsp_flag() << 1;
}

uint32_t qfw_move_both(int8_t *m, int8_t *v, qfw_row *r, const qfw_pace *of_m, const qfw_pace *of_v)
{
    both b;
    mover_of_both *const move = r->x == NULL ? NULL : find_both(r, of_m, of_v, &b);
    if (move != NULL) {
        return move_both_bytes(m, v, r, of_m, of_v, move, &b);
    }
    const uint32_t out = qfw_move_row(m, r, of_m->g, of_m->v, of_m->key, false);
    return out | qfw_move_row(v, r, of_v->g, of_v->v, of_v->key, true) << 1;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

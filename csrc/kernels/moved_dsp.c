/* A row of int8 codes that moves, with the DSP extension of a Cortex-M. */
#include "kernels/both_dsp.h"
#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

/* The term of a byte is (g x) >> 16, or 2^8 times that, that of a sum ((sum << up) g) >> 32. */

/* How bytes move. */
typedef struct {
    int32_t g;
    qfw_words w; /* of the first */
} bytes;

/* A term alone has 24 bits more than its code, of which the random word has the upper 20 and 0 below:
 * with what a floor at 2^-20 would drop of the term the sum does not pass the next code. Two terms, of
 * which each is a floor of its own, have 20. */
enum { ALONE_FRAC = 24 };

/* Codes from `to` up to `last`, fours of them, less their steps, a term alone; `out` grows with every
 * difference that was held. By registers that are named: no compiler has to find room for them all. r7,
 * which some keep, is as it was after. Four codes of x that are 0 move nothing. */
#define EVEN_UP "and r6, r10, r5, lsl #8\n\t"
#define ODD_UP "and r5, r10, r5\n\t"
#define EVEN "sxtb16 r6, r5\n\t"
#define ODD "sxtb16 r5, r5, ror #8\n\t"
#define NEXT_WORD(to) "and " to ", r9, r1, lsr #8\n\tadd r1, r1, r2\n\t"
#define FOURS(name, even, odd)                                                                   \
    static __attribute__((noinline)) uint32_t name(int8_t *to, const int8_t *by,                 \
                                                   const int8_t *last, const bytes *b)           \
    {                                                                                            \
        register int8_t *m __asm__("r4") = to;                                                   \
        register uint32_t u __asm__("r1") = b->w.u;                                              \
        register uint32_t step __asm__("r2") = b->w.step;                                        \
        register const int8_t *x __asm__("r3") = by;                                             \
        register int32_t g __asm__("r8") = b->g;                                                 \
        register uint32_t mask __asm__("r9") = 0xFFFFF0u;                                        \
        register uint32_t upper __asm__("r10") = 0xFF00FF00u;                                    \
        register uint32_t out __asm__("r0") = 0;                                                 \
        register const int8_t *end __asm__("r12") = last;                                        \
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

/* The random word of a step alone, as its last bits. */
static inline int32_t word(uint32_t u)
{
    return (int32_t)(u >> 8 & 0xFFFFF0u);
}

/* The same by sums. */
static uint32_t sums_alone(int8_t *to, const int32_t *sum, const int8_t *end, int32_t g,
                           uint32_t up, qfw_words w)
{
    const uint32_t step = w.step;
    uint32_t u = w.u, out = 0;
    for (; to < end; to += 4, sum += 4, u += step) {
        const int32_t y0 = dsp_most(sum[0], up, g, word(u));
        const int32_t y1 = dsp_most(sum[1], up, g, word(u += step));
        const int32_t y2 = dsp_most(sum[2], up, g, word(u += step));
        const int32_t y3 = dsp_most(sum[3], up, g, word(u += step));
        const uint32_t by02 = dsp_highs((uint32_t)y0, (uint32_t)y2);
        const uint32_t by13 = dsp_highs((uint32_t)y1, (uint32_t)y3);
        const uint32_t steps = dsp_high_bytes(by02) | (by13 & 0xFF00FF00u);
        if (steps != 0) {
            const uint32_t four = dsp_word(to), less = dsp_less_bytes(four, steps);
            dsp_put_word(to, dsp_no_least(less));
            out = dsp_apart(dsp_plus_bytes(less, steps), four, out);
        }
    }
    return out;
}

/* All of a row that instructions do not take, code by code. */
static QFW_COLD uint32_t move_all(int8_t *to, const qfw_row *r, const qfw_pace *of, bool anew)
{
    const qfw_coef none = {0, 0, 0, 0}, g = moved_coef(of->g, MOVED_FRAC, 63);
    const qfw_coef v = QFW_HAS_STATE && r->v != NULL ? moved_coef(of->v, MOVED_FRAC, 31) : none;
    uint32_t out = 0;
    for (size_t i = 0, n; i < r->n; i += n) {
        const ptrdiff_t at = r->first + (ptrdiff_t)i;
        n = moved_count(at, r->n - i);
        out |= moved_one_by_one(to, r, i, i + n, &g, &v, moved_words(of->key, at), anew);
    }
    return out;
}

/* Fewer than four elements, and others that are 0: `wide` bytes each. */
typedef struct {
    uint32_t word[4];
} four;

QFW_ALWAYS_INLINE void copy_some(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
    }
}

static QFW_NOINLINE four four_of(const void *from, size_t size)
{
    four f = {{0, 0, 0, 0}};
    copy_some(f.word, from, size);
    return f;
}

/* ---- factors ---- */

/* |code mu| < 2^bits, mu < 2^16; code not 0. */
static inline int32_t bits_of_factor(int32_t code)
{
    return 17 + qfw_msb64(qfw_abs32(code));
}

/* The row's sums are within -2^bits .. 2^bits - 1, and not 2^(bits - 1). */
static int32_t bits_of(const qfw_row *r)
{
    uint32_t any = 0;
    for (size_t i = 0; i < r->n; i++) {
        any |= (uint32_t)(r->sums[i] ^ (r->sums[i] >> 31));
    }
    return any == 0 ? 0 : qfw_msb64(any) + 1;
}

/* Whether bytes have terms of at most 2^most, most <= 30, |code mu| < 2^bits; large: 2^8 times them are
 * multiplied. */
QFW_ALWAYS_INLINE bool find_bytes(int32_t code, qfw_slope g, int32_t bits, int32_t lift, bool large,
                                  int32_t most, int32_t *to)
{
    const int32_t left = lift + (large ? 8 : 16);
    *to = (int32_t)((uint32_t)(code * moved_mu(g)) << (left & 31));
    return left >= 0 && bits + 7 + lift <= most;
}

/* Whether sums have, as ((sum << up) g) >> 32; few: sums of 16 bits, which are multiplied as bytes are. */
QFW_ALWAYS_INLINE bool find_sums(int32_t bits, qfw_slope g, int32_t lift, bool few, int32_t most,
                                 int32_t *to, uint32_t *up)
{
    const int32_t all = lift + (few ? 16 : 32), of_g = all < 15 ? all : 15;
    *up = (uint32_t)(all - of_g);
    *to = (int32_t)((uint32_t)moved_mu(g) << (of_g & 31));
    return all >= 0 && bits + all - of_g <= 30 && bits + 16 + lift <= most;
}

/* What codes of a state are multiplied by, 2^8 times them: terms of at most 2^most. mu < 2^16. */
QFW_ALWAYS_INLINE bool find_mu(qfw_slope v, int32_t most, int32_t *to)
{
    const int32_t left = v == 0 ? 0 : 8 + moved_lift(v);
    *to = (int32_t)((uint32_t)moved_mu(v) << (left & 31));
    return (uint32_t)left <= (uint32_t)(most - 15);
}

/* ---- alone ---- */

/* Whether terms are at most 2^30, so that a step has 7 bits. */
static bool find_alone(const qfw_row *r, qfw_slope g, int32_t *to, uint32_t *up, bool *large)
{
    const int32_t lift = moved_lift(g) + ALONE_FRAC - MOVED_FRAC;
    if (QFW_HAS_ANY_MOVE && r->x == NULL) {
        return find_sums(r->bits, g, lift, false, 30, to, up);
    }
    const int32_t bits = bits_of_factor(r->code);
    *large = bits + lift > 15;
    return find_bytes(r->code, g, bits, lift, *large, 30, to);
}

/* n elements of one block, four at a time. */
QFW_INLINE uint32_t move_alone(int8_t *to, const void *x, size_t n, bool sums, bool large,
                               uint32_t up, const bytes *b)
{
    return sums    ? sums_alone(to, x, to + n, b->g, up, b->w)
           : large ? bytes_up_alone(to, x, to + n, b)
                   : bytes_alone(to, x, to + n, b);
}

/* A core of one plan in which qfw_move_rows leaves rows that no instructions take, and nothing else does. */
enum { ONLY_FAR = !QFW_HAS_RESTS && !QFW_HAS_ANY_MOVE };

uint32_t qfw_move_row(int8_t *to, qfw_row *r, const qfw_pace *of)
{
    const bool sums = QFW_HAS_ANY_MOVE && r->x == NULL;
    const uint8_t *x = sums ? (const void *)r->sums : (const void *)r->x;
    const size_t wide = sums ? sizeof *r->sums : 1;
    bool large = false;
    uint32_t up = 0, out = 0;
    bytes b;
    if (ONLY_FAR) {
        return move_all(to, r, of, false);
    }
    bool fast = find_alone(r, of->g, &b.g, &up, &large);
    if (sums && !fast) {
        r->bits = bits_of(r);
        fast = find_alone(r, of->g, &b.g, &up, &large);
    }
    if (!fast) {
        return move_all(to, r, of, false);
    }
    ptrdiff_t at = r->first;
    for (size_t left = r->n, n; left > 0; left -= n, at += (ptrdiff_t)n, to += n, x += n * wide) {
        b.w = moved_words(of->key, at);
        n = moved_count(at, left);
        const size_t most = QFW_HAS_RESTS ? n & ~(size_t)3 : n;
        if (most != 0) {
            out |= move_alone(to, x, most, sums, large, up, &b);
        }
        if (most < n) {
            four m = four_of(to + most, n - most);
            const four by = four_of(x + most * wide, (n - most) * wide);
            b.w.u = qfw_add32(b.w.u, qfw_mul32(b.w.step, (uint32_t)most));
            out |= move_alone((int8_t *)m.word, by.word, 4, sums, large, up, &b);
            copy_some(to + most, m.word, n - most);
        }
    }
    return out != 0 ? 1u : 0u;
}

/* ---- with a state ---- */

typedef uint32_t mover(int8_t *m, int8_t *v, const void *x, const both *b);

/* Terms of the state are at most 2^28 each, and steps are held. Those of the parameter: at most 2^25 of x
 * and 2^26 of v, so that steps are bytes; or `far` 2^28 each. NULL: one is beyond. */
enum { NEAR_G = 25, NEAR_MU = 26, MOST = 28 };

/* 127 / 128: what state_alone takes. */
enum { ALONE_MOST = 0x3F7E0000 };

/* By bytes, an error not 0. */
QFW_ALWAYS_INLINE mover *find_products(const qfw_row *r, qfw_slope g, qfw_slope g_v, bool far,
                                       both *b)
{
    const int32_t code = r->code, bits = bits_of_factor(code), most = far ? MOST : NEAR_G;
    const int32_t lift = moved_lift(g), lift_v = moved_lift(g_v);
    const bool up_v = lift_v >= -8, up = far ? up_v && lift >= -8 : bits + lift > 15;
    const bool low = bits + lift <= 15 && bits + lift_v <= 15;
    const bool fast = (up ? up_v : !far || low) &&
                      find_bytes(code, g, bits, lift, up, most, &b->g) &&
                      find_bytes(code, g_v, bits, lift_v, far ? up : up_v, MOST, &b->g_v);
    return !fast ? NULL : far ? up ? far_up : far_low : up ? both_up : up_v ? state_up : both_low;
}

/* By sums. */
static mover *find_of_sums(const qfw_row *r, qfw_slope g, qfw_slope g_v, bool far, both *b)
{
    const int32_t lift = moved_lift(g), lift_v = moved_lift(g_v), most = far ? MOST : NEAR_G;
    const bool down = lift < 0 && lift >= -16 && lift_v < 0 && lift_v >= -16;
    const bool few = !far && r->bits <= 15 && down;
    const bool fast = find_sums(r->bits, g, lift, few, most, &b->g, &b->up) &&
                      find_sums(r->bits, g_v, lift_v, few, MOST, &b->g_v, &b->up_v);
    return !fast ? NULL : far ? far_sums : few ? both_few : both_sums;
}

/* Of a row without an error the gradient's slopes do not count. */
QFW_ALWAYS_INLINE mover *find_both(const qfw_row *r, const qfw_pace *of_m, const qfw_pace *of_v,
                                   bool far, both *b)
{
    if (!find_mu(of_m->v, far ? MOST : NEAR_MU, &b->mu) || !find_mu(of_v->v, MOST, &b->mu_v)) {
        return NULL;
    }
    if (QFW_HAS_ANY_MOVE && r->x == NULL) {
        return find_of_sums(r, of_m->g, of_v->g, far, b);
    }
    if (r->code == 0) {
        return far ? far_low : of_v->v <= ALONE_MOST ? state_alone : both_low;
    }
    return find_products(r, of_m->g, of_v->g, far, b);
}

static QFW_COLD mover *find_rarely(qfw_row *r, const qfw_pace *of_m, const qfw_pace *of_v, both *b)
{
    mover *move = NULL;
    if (QFW_HAS_ANY_MOVE && r->x == NULL) {
        r->bits = bits_of(r);
        move = find_both(r, of_m, of_v, false, b);
    }
    return move != NULL ? move : find_both(r, of_m, of_v, true, b);
}

/* The elements beyond fours of a block, n of them. */
static QFW_NOINLINE uint32_t move_last(int8_t *m, int8_t *v, const void *x, size_t n, size_t wide,
                                       mover *move, both *b)
{
    four of_m = four_of(m, n), of_v = four_of(v, n);
    const four by = four_of(x, n * wide);
    b->end = (int8_t *)(of_m.word + 1);
    const uint32_t out = move((int8_t *)of_m.word, (int8_t *)of_v.word, by.word, b);
    copy_some(m, of_m.word, n);
    copy_some(v, of_v.word, n);
    return out;
}

/* Block by block; the gradient of a row without one is zeros. */
static __attribute__((flatten)) uint32_t move_blocks(int8_t *m, int8_t *v, const qfw_row *r,
                                                     const qfw_pace *of_m, const qfw_pace *of_v,
                                                     mover *move, both *b)
{
    static const int8_t zeros[32] = {0};
    const bool sums = QFW_HAS_ANY_MOVE && r->x == NULL;
    const int8_t *x = sums ? (const void *)r->sums : r->code == 0 ? zeros : r->x;
    const size_t wide = sums ? sizeof *r->sums : r->code == 0 ? 0 : 1;
    ptrdiff_t at = r->first;
    uint32_t out = 0;
    b->out = 0;
    dsp_clear_flag();
    for (size_t left = r->n, n; left > 0; left -= n, at += (ptrdiff_t)n) {
        const qfw_words w = moved_words(of_m->key, at), w_v = moved_words(of_v->key, at);
        n = moved_count(at, left);
        const size_t most = QFW_HAS_RESTS ? n & ~(size_t)3 : n;
        b->u = w.u;
        b->step = w.step;
        b->u_v = w_v.u;
        b->step_v = w_v.step;
        b->end = m + most;
        if (most != 0) {
            out |= move(m, v, x, b);
        }
        if (most < n) {
            const uint32_t done = (uint32_t)most;
            b->u = qfw_add32(w.u, qfw_mul32(w.step, done));
            b->u_v = qfw_add32(w_v.u, qfw_mul32(w_v.step, done));
            out |= move_last(m + most, v + most, x + most * wide, n - most, wide, move, b);
        }
        m += n;
        v += n;
        x += n * wide;
    }
    return (out & 1u) | dsp_flag() << 1;
}

uint32_t qfw_move_both(int8_t *m, int8_t *v, qfw_row *r, const qfw_pace *of_m, const qfw_pace *of_v)
{
    both b;
    mover *move = find_both(r, of_m, of_v, false, &b);
    if (move == NULL) {
        move = find_rarely(r, of_m, of_v, &b);
    }
    if (move != NULL) {
        return move_blocks(m, v, r, of_m, of_v, move, &b);
    }
    const uint32_t out = move_all(m, r, of_m, false);
    return out | move_all(v, r, of_v, true) << 1;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

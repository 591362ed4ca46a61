/* A row of int8 codes that moves, with the DSP extension of a Cortex-M. */
#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

typedef struct pace pace;

/* n codes, a multiple of four; x: bytes or sums. */
typedef void fours(int8_t *to, const void *x, const int8_t *v, const pace *p);

/* Coefficients of instructions that multiply: the term of a byte is (g x) >> 16, that of a sum ((sum <<
 * up) g) >> 32, that of a state (2^8 v x) >> 16. */
struct pace {
    int32_t g, v;
    uint32_t up;
    size_t n;
    qfw_words w; /* of the first code */
    fours *move;
};

/* How the gradient's codes come: bytes, bytes that are multiplied by 2^8 first, sums. */
typedef enum { BYTES, BYTES_UP, SUMS } source;

/* The random word of a step, as its last bits. */
static inline int32_t word(uint32_t u)
{
    return (int32_t)(u >> (32 - MOVED_FRAC));
}

static inline void put_four(int8_t *m, uint32_t four)
{
    uint8_t *b = (uint8_t *)m; /* one instruction, whatever the alignment */
    b[0] = (uint8_t)(four & 0xFFu);
    b[1] = (uint8_t)(four >> 8 & 0xFFu);
    b[2] = (uint8_t)(four >> 16 & 0xFFu);
    b[3] = (uint8_t)(four >> 24);
}

/* Four codes less four steps, of which y has 20 bits more: |y| < 2^31, so a step has at most 11 bits and
 * the difference fits 16. */
static inline void move_four(int8_t *m, int32_t y0, int32_t y1, int32_t y2, int32_t y3)
{
    const uint32_t four = dsp_word(m);
    const uint32_t by02 = dsp_pack_tops((uint32_t)(y2 >> 4), y0);
    const uint32_t by13 = dsp_pack_tops((uint32_t)(y3 >> 4), y1);
    const uint32_t v02 = dsp_held(dsp_less(dsp_even(four), by02));
    const uint32_t v13 = dsp_held(dsp_less(dsp_odd(four), by13));
    put_four(m, dsp_no_least(dsp_low_bytes(v02) | dsp_low_bytes(v13) << 8));
}

/* Four steps. */
static inline void set_four(int8_t *v, int32_t y0, int32_t y1, int32_t y2, int32_t y3)
{
    put_four(v, dsp_no_least(dsp_bytes(dsp_top(y0), dsp_top(y1), dsp_top(y2), dsp_top(y3))));
}

/* `from`, `state` and `anew` are constants at each call. Where codes and state are 0 nothing moves. */
QFW_ALWAYS_INLINE void move_fours(int8_t *to, const void *x, const int8_t *own, const pace *p,
                                  const source from, const bool state, const bool anew)
{
    const uint32_t upper = 0xFF00FF00u, up = p->up, step = p->w.step;
    const int32_t g = p->g, v = p->v, *sum = x;
    const int8_t *byte = x, *end = to + p->n;
    uint32_t u = p->w.u;
    for (; to < end; to += 4) {
        uint32_t four = 0, four_v = 0;
        if (state) {
            four_v = dsp_word(anew ? to : own);
            own += anew ? 0 : 4;
        }
        if (from != SUMS) {
            four = dsp_word(byte);
            byte += 4;
            if ((four | four_v) == 0) {
                u += 4 * step;
                continue;
            }
        }
        int32_t y0 = word(u), y1 = word(u += step), y2 = word(u += step), y3 = word(u += step);
        u += step;
        if (state) {
            const uint32_t v02 = four_v << 8 & upper, v13 = four_v & upper;
            y0 = dsp_low(v, v02, y0);
            y1 = dsp_low(v, v13, y1);
            y2 = dsp_high(v, v02, y2);
            y3 = dsp_high(v, v13, y3);
        }
        if (from == SUMS) {
            y0 = dsp_most(sum[0], up, g, y0);
            y1 = dsp_most(sum[1], up, g, y1);
            y2 = dsp_most(sum[2], up, g, y2);
            y3 = dsp_most(sum[3], up, g, y3);
            sum += 4;
        } else if (!state || four != 0) {
            const uint32_t x02 = from == BYTES_UP ? four << 8 & upper : dsp_even(four);
            const uint32_t x13 = from == BYTES_UP ? four & upper : dsp_odd(four);
            y0 = dsp_low(g, x02, y0);
            y1 = dsp_low(g, x13, y1);
            y2 = dsp_high(g, x02, y2);
            y3 = dsp_high(g, x13, y3);
        }
        if (anew) {
            set_four(to, y0, y1, y2, y3);
        } else if ((uint32_t)(y0 | y1 | y2 | y3) >> MOVED_FRAC != 0) { /* else they stay */
            move_four(to, y0, y1, y2, y3);
        }
    }
}

static void move_bytes(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, BYTES, false, false);
}

static void move_bytes_up(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, BYTES_UP, false, false);
}

static void move_sums(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, SUMS, false, false);
}

static void move_bytes_on(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, BYTES, true, false);
}

static void move_bytes_up_on(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, BYTES_UP, true, false);
}

static void move_sums_on(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, SUMS, true, false);
}

static void set_bytes(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, BYTES, true, true);
}

static void set_bytes_up(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, BYTES_UP, true, true);
}

static void set_sums(int8_t *to, const void *x, const int8_t *v, const pace *p)
{
    move_fours(to, x, v, p, SUMS, true, true);
}

static fours *fours_of(source from, bool state, bool anew)
{
    if (QFW_HAS_ANY_MOVE && from == SUMS) {
        return !(QFW_HAS_STATE && state) ? move_sums : anew ? set_sums : move_sums_on;
    }
    if (!(QFW_HAS_STATE && state)) {
        return from == BYTES ? move_bytes : move_bytes_up;
    }
    return anew            ? from == BYTES ? set_bytes : set_bytes_up
           : from == BYTES ? move_bytes_on
                           : move_bytes_up_on;
}

/* Whether the row's terms are within what the instructions make of them. */
static bool find_pace(const qfw_row *r, const qfw_coef *g, const qfw_coef *v, bool anew, pace *p)
{
    const bool has_state = QFW_HAS_STATE && r->v != NULL;
    const int32_t right = g->right, bits = moved_bits(r);
    const int32_t of_v = 8 + v->left - v->right; /* what mu of v is lifted by: 2^31 is beyond it */
    if (has_state && (!moved_is_small(g, bits) || !moved_is_small(v, 7) || of_v < 0 || of_v > 15)) {
        return false;
    }
    p->v = has_state ? (int32_t)((uint32_t)v->mu << of_v) : 0;
    if (QFW_HAS_ANY_MOVE && r->x == NULL) {
        const int32_t up = right < 17 ? 17 - right : 0;
        p->move = fours_of(SUMS, has_state, anew);
        p->up = (uint32_t)up;
        p->g = (int32_t)((uint32_t)g->mu << ((32 - right - up) & 31));
        return g->left == 0 && right <= 32 && bits + up <= 30 && bits + 16 - right <= 30;
    }
    p->move = fours_of(right <= 8 ? BYTES_UP : BYTES, has_state, anew);
    p->up = 0;
    p->g = (int32_t)((uint32_t)(r->code * g->mu) << (((right <= 8 ? 8 : 16) - right) & 31));
    return g->left == 0 && right <= 16;
}

/* Fewer than four, among zeros, which stay. */
static void move_last(int8_t *to, const void *x, const int8_t *v, size_t n, bool sums, pace *p)
{
    int8_t some[4] = {0}, own[4] = {0}, bytes[4] = {0};
    int32_t words[4] = {0};
    memcpy(some, to, n);
    if (QFW_HAS_STATE && v != NULL) {
        memcpy(own, v, n);
    }
    if (QFW_HAS_ANY_MOVE && sums) {
        memcpy(words, x, n * sizeof *words);
    } else {
        memcpy(bytes, x, n);
    }
    p->n = 4;
    p->move(some, QFW_HAS_ANY_MOVE && sums ? (const void *)words : bytes, own, p);
    memcpy(to, some, n);
}

uint32_t qfw_move_row(int8_t *to, const qfw_row *r, const qfw_coef *g, const qfw_coef *v,
                      const qfw_key *key, bool anew)
{
    static const int8_t zeros[32] = {0};
    const bool sums = QFW_HAS_ANY_MOVE && r->x == NULL, still = !sums && r->code == 0;
    pace p;
    const bool fast = find_pace(r, g, v, anew, &p);
    uint32_t out = 0;
    dsp_clear_flag();
    for (size_t i = 0, n; i < r->n; i += n) {
        const ptrdiff_t first = r->first + (ptrdiff_t)i;
        p.w = moved_words(key, first);
        n = moved_count(first, r->n - i);
        if (!fast) {
            out |= moved_one_by_one(to, r, i, i + n, g, v, p.w, anew);
            continue;
        }
        const size_t most = n & ~(size_t)3;
        const void *x = still ? zeros : sums ? (const void *)(r->sums + i) : r->x + i;
        const int8_t *own = QFW_HAS_STATE && r->v != NULL ? r->v + i : NULL;
        p.n = most;
        p.move(to + i, x, own, &p);
        if (most < n) {
            p.w.u += (uint32_t)most * p.w.step;
            x = sums ? (const void *)((const int32_t *)x + most) : (const int8_t *)x + most;
            move_last(to + i + most, x, own != NULL ? own + most : NULL, n - most, sums, &p);
        }
    }
    return out | dsp_flag();
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif

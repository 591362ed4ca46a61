/* How the scale of a parameter or a state changes: docs/numerics.md section 17. */
#include "engine/rescale.h"
#include "base/layout.h"
#include "base/random.h"
#include "base/round.h"
#include "base/scale.h"
#include "engine/count.h"
#include "kernels/codes.h"
#include "kernels/moved.h"

typedef struct {
    int32_t least, most;
} span;

static void see_bytes(const int8_t *codes, ptrdiff_t n, span *s)
{
    int8_t least = 0, most = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        least = codes[i] < least ? codes[i] : least;
        most = codes[i] > most ? codes[i] : most;
    }
    s->least = least < s->least ? least : s->least;
    s->most = most > s->most ? most : s->most;
}

/* Where all codes are Sym in whole bytes and flash is scarce, all loops are one kind of loop. */
enum { ARE_PLAIN = QFW_IS_SMALL && !QFW_HAS_PACKED && !QFW_HAS_ASYM };

static inline int32_t code_at(const void *codes, int slot, ptrdiff_t i)
{
    return slot == 8    ? ((const int8_t *)codes)[i]
           : slot == 16 ? ((const int16_t *)codes)[i]
                        : ((const int32_t *)codes)[i];
}

static span plain_span(const qfw_operand *x, ptrdiff_t scale)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&x->t.layout);
    span s = {0, 0};
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&x->t.layout, scale, r);
        for (ptrdiff_t i = run.first; i < run.first + run.n; i++) {
            const int32_t m = code_at(x->t.codes, qfw_slot(&x->t.format), i);
            s.least = m < s.least ? m : s.least;
            s.most = m > s.most ? m : s.most;
        }
    }
    return s;
}

/* The smallest and largest code (Asym: minus the zero point) of a scale, 0 included. */
static span span_of(const qfw_operand *x, ptrdiff_t scale)
{
    if (ARE_PLAIN) {
        return plain_span(x, scale);
    }
    const ptrdiff_t runs = qfw_runs_per_scale(&x->t.layout);
    const bool bytes = x->plan->kind == QFW_SYM && qfw_slot(&x->t.format) == 8;
    span s = {0, 0};
    int32_t m[QFW_TILE];
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&x->t.layout, scale, r);
        if (!QFW_DIRECT && bytes) {
            see_bytes((const int8_t *)x->t.codes + run.first, run.n, &s);
            continue;
        }
        for (ptrdiff_t i = 0; i < run.n; i += QFW_TILE) {
            const size_t n = run.n - i < QFW_TILE ? (size_t)(run.n - i) : QFW_TILE;
            qfw_load_codes(&x->t, run.first + i, n, scale, m);
            for (size_t k = 0; k < n; k++) {
                s.least = m[k] < s.least ? m[k] : s.least;
                s.most = m[k] > s.most ? m[k] : s.most;
            }
        }
    }
    return s;
}

/* Whether n bytes are 0, a word of them at a time. */
static bool are_zero(const uint8_t *p, ptrdiff_t n)
{
    enum { FOUR = 4 * sizeof(size_t) };
    size_t a, b, c, d, any = 0;
    for (; n >= FOUR; n -= FOUR, p += FOUR) {
        QFW_COPY_FEW(&a, p, sizeof a);
        QFW_COPY_FEW(&b, p + sizeof a, sizeof b);
        QFW_COPY_FEW(&c, p + 2 * sizeof a, sizeof c);
        QFW_COPY_FEW(&d, p + 3 * sizeof a, sizeof d);
        any |= (a | b) | (c | d);
    }
    for (; n > 0; n--, p++) {
        any |= *p;
    }
    return any == 0;
}

bool qfw_has_no_range(const qfw_operand *x, ptrdiff_t scale)
{
    if (qfw_bits_f32(x->t.scale[scale]) != qfw_bits_f32(1.0f)) {
        return false;
    }
    const int slot = qfw_slot(&x->t.format) / 8;
    const bool often = QFW_HAS_STATE || !QFW_IS_SMALL; /* every step asks of a state's rows */
    if (often && x->plan->kind == QFW_SYM && slot > 0 && qfw_runs_per_scale(&x->t.layout) == 1) {
        const qfw_run run = qfw_run_of(&x->t.layout, scale, 0);
        return are_zero((const uint8_t *)x->t.codes + run.first * slot, run.n * slot);
    }
    const span s = span_of(x, scale);
    return s.least == 0 && s.most == 0;
}

void qfw_codes_at(const qfw_operand *x, ptrdiff_t scale, int32_t *lo, int32_t *hi)
{
    qfw_code_range(&x->t.format, lo, hi);
    if (qfw_is_asym(x->plan->kind)) {
        const int32_t zp = x->t.zero_point[scale];
        *lo -= zp;
        *hi -= zp;
    }
}

void qfw_load_held(const qfw_tensor *t, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m)
{
    const int slot = qfw_slot(&t->format);
    const bool asym = qfw_is_asym(t->format.kind);
    qfw_load_codes(t, first, n, scale, m);
    if (slot > t->format.bits && (slot == 32 || (slot == 16 && asym))) {
        const int32_t zp = asym ? t->zero_point[scale] : 0;
        int32_t lo, hi;
        qfw_code_range(&t->format, &lo, &hi);
        for (size_t i = 0; i < n; i++) {
            m[i] = m[i] > hi - zp ? hi - zp : m[i] < lo - zp ? lo - zp : m[i];
        }
    }
}

/* The random bits of elements first, first + 1, ...: w.u >> 31. */
static inline void draw_next(const qfw_key *key, ptrdiff_t element, bool first, qfw_words *w)
{
    w->u = qfw_add32(w->u, w->step);
    if (first || (element & 31) == 0) {
        *w = qfw_words_at(key, (uint64_t)element);
    }
}

/* Codes of a run, halved or (without a key) doubled. */
static void shift_plain(const qfw_operand *x, qfw_run run, const qfw_key *key)
{
    const int slot = qfw_slot(&x->t.format);
    qfw_words w = {0, 0};
    for (ptrdiff_t i = run.first; i < run.first + run.n; i++) {
        int32_t m = code_at(x->t.codes, slot, i);
        if (key != NULL) {
            draw_next(key, i, i == run.first, &w);
            m = (m + (int32_t)(w.u >> 31)) >> 1;
        } else {
            m *= 2;
        }
        if (slot == 8) {
            ((int8_t *)x->t.codes)[i] = (int8_t)m;
        } else if (slot == 16) {
            ((int16_t *)x->t.codes)[i] = (int16_t)m;
        } else {
            ((int32_t *)x->t.codes)[i] = m;
        }
    }
}

/* Codes that are shifted at once: a device, where that is rare, has little stack for it. */
enum { SHIFTED = QFW_DIRECT ? 1 : QFW_TILE };

/* Any codes, halved or (without a key) doubled. */
QFW_COLD static void shift_run(const qfw_operand *x, qfw_run run, const qfw_key *key)
{
    const int32_t zp = qfw_is_asym(x->plan->kind) ? x->t.zero_point[run.scale] : 0;
    int32_t m[SHIFTED];
    qfw_words w = {0, 0};
    for (ptrdiff_t i = 0; i < run.n; i += SHIFTED) {
        const ptrdiff_t n = run.n - i < SHIFTED ? run.n - i : SHIFTED;
        qfw_load_codes(&x->t, run.first + i, (size_t)n, run.scale, m);
        for (ptrdiff_t k = 0; k < n; k++) {
            if (key != NULL) {
                draw_next(key, run.first + i + k, i + k == 0, &w);
            }
            m[k] = (key != NULL ? (m[k] + (int32_t)(w.u >> 31)) >> 1 : 2 * m[k]) + zp;
        }
        qfw_store_codes(&x->t, run.first + i, (size_t)n, m);
    }
}

/* Codes of a scale halved, b a random bit an element, or doubled. */
static void shift_codes(const qfw_operand *x, ptrdiff_t scale, const qfw_key *key)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&x->t.layout);
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&x->t.layout, scale, r);
        if (ARE_PLAIN && (!QFW_HAS_STATE || key == NULL || qfw_slot(&x->t.format) != 8)) {
            shift_plain(x, run, key);
        } else if (key != NULL && x->plan->kind == QFW_SYM && qfw_slot(&x->t.format) == 8) {
            qfw_halve_row((int8_t *)x->t.codes + run.first, run.first, (size_t)run.n, key);
        } else {
            shift_run(x, run, key);
        }
    }
}

/* ---- a first range ---- */

/* The largest |g| over a run of the parameter, g's element 0 being number `first`. */
static qfw_num largest(const qfw_tensor *g, qfw_run run, ptrdiff_t first)
{
    const bool has_floats = QFW_HAS_FLOAT_STEP || QFW_HAS_ADAMW || QFW_HAS_HINDSIGHT;
    qfw_num most = {0, 0};
    int32_t m[QFW_TILE];
    for (ptrdiff_t i = run.first - first, end = i + run.n; i < end;) {
        if (has_floats && g->format.kind == QFW_FLOAT32) {
            most = qfw_num_max(most, qfw_num_f32(((const float *)g->codes)[i++]));
            continue;
        }
        const qfw_run part = qfw_run_at(&g->layout, i);
        ptrdiff_t n = part.n < end - i ? part.n : end - i;
        if (!QFW_DIRECT && g->format.kind == QFW_SYM && qfw_slot(&g->format) == 8 &&
            are_zero((const uint8_t *)g->codes + i, n)) {
            i += n;
            continue;
        }
        n = n < QFW_TILE ? n : QFW_TILE;
        uint32_t size = 0;
        qfw_load_codes(g, i, (size_t)n, part.scale, m);
        for (ptrdiff_t k = 0; k < n; k++) {
            size = qfw_abs32(m[k]) > size ? qfw_abs32(m[k]) : size;
        }
        most = qfw_num_max(most, qfw_scale_for(g->scale[part.scale], size, 1));
        i += n;
    }
    return most;
}

qfw_num qfw_largest(const qfw_tensor *x, ptrdiff_t n)
{
    const qfw_run all = {0, n, 0};
    return largest(x, all, 0);
}

/* Moves the zero point under codes that all are zero. */
static void shift_zero(const qfw_operand *x, ptrdiff_t scale, uint16_t zero_point)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&x->t.layout);
    const int32_t code = zero_point;
    x->t.zero_point[scale] = zero_point;
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&x->t.layout, scale, r);
        for (ptrdiff_t i = 0; i < run.n; i++) {
            qfw_store_codes(&x->t, run.first + i, 1, &code);
        }
    }
}

/* 4 c R^growth, each product a coefficient's. */
static float reach_of(float c, qfw_num most, qfw_growth growth)
{
    const float four = qfw_coef_mul(4.0f, c), r = qfw_num_scale_f32(most, false);
    if (QFW_HAS_ADAMW && growth == QFW_AS_ONE) {
        return four;
    }
    const float once = qfw_coef_mul(four, r);
    return !QFW_HAS_ADAMW || growth == QFW_AS_GRADIENT ? once : qfw_coef_mul(once, r);
}

void qfw_start_scale(const qfw_operand *x, ptrdiff_t scale, qfw_num most, float c,
                     qfw_growth growth)
{
    const float reach = most.mant == 0 ? 0.0f : reach_of(c, most, growth);
    if (qfw_bits_f32(reach) == 0) {
        return;
    }
    int32_t lo, hi;
    if (qfw_is_asym(x->plan->kind)) { /* room on both sides, of a square on one */
        qfw_code_range(&x->t.format, &lo, &hi);
        shift_zero(x, scale, (uint16_t)(growth == QFW_AS_SQUARE ? 0 : hi / 2));
    }
    qfw_codes_at(x, scale, &lo, &hi);
    const qfw_num s = qfw_num_ratio_up(qfw_num_normal(reach), 1, (uint32_t)hi, 24);
    x->t.scale[scale] = qfw_num_scale_f32(s, qfw_is_pow2(x->t.format.pow2));
}

static void start_scale(const qfw_operand *x, ptrdiff_t scale, const qfw_tensor *g, ptrdiff_t first,
                        float c, qfw_growth growth)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&x->t.layout);
    qfw_num most = {0, 0};
    for (ptrdiff_t r = 0; r < runs; r++) {
        most = qfw_num_max(most, largest(g, qfw_run_of(&x->t.layout, scale, r), first));
    }
    qfw_start_scale(x, scale, most, c, growth);
}

void qfw_start_scales(const qfw_operand *x, const qfw_tensor *g, ptrdiff_t first, ptrdiff_t n,
                      float c, qfw_growth growth)
{
    if (x->plan->kind == QFW_FLOAT32) {
        return;
    }
    if (!QFW_DIRECT && n == x->n) { /* every scale, and hardly one of them is 1 */
        uint32_t ones = 0;
        for (ptrdiff_t k = 0; k < x->scales; k++) {
            ones |= qfw_bits_f32(x->t.scale[k]) == QFW_F32_ONE ? 1u : 0u;
        }
        if (ones == 0) {
            return;
        }
        for (ptrdiff_t k = 0; k < x->scales; k++) {
            if (x->t.scale[k] == 1.0f && qfw_has_no_range(x, k)) {
                start_scale(x, k, g, first, c, growth);
            }
        }
        return;
    }
    for (ptrdiff_t i = first; i < first + n;) {
        const qfw_run run = qfw_run_at(&x->t.layout, i);
        if (qfw_has_no_range(x, run.scale)) {
            start_scale(x, run.scale, g, first, c, growth);
        }
        i += run.n;
    }
}

/* ---- after a step ---- */

enum { OWN_KEY = 0x57334833 };

/* The next flag that is set from number i on, or n. */
static ptrdiff_t next_flag(const uint8_t *flags, ptrdiff_t i, ptrdiff_t n)
{
    for (uint32_t four; n - i >= 4; i += 4) {
        QFW_COPY_FEW(&four, flags + i, sizeof four);
        if (four != 0) {
            break;
        }
    }
    while (i < n && flags[i] == 0) {
        i++;
    }
    return i;
}

/* Scale i, which has a flag or is looked at. */
QFW_INLINE void settle_scale(const qfw_operand *x, ptrdiff_t i, bool flag, bool look,
                             const qfw_key *key)
{
    const float s = x->t.scale[i];
    if (flag) {
        shift_codes(x, i, key);
        const float twice = qfw_scale_lift(s, 1);
        x->t.scale[i] = qfw_is_pow2(x->plan->pow2) && twice == FLT_MAX ? s : twice;
    } else if (look && qfw_bits_f32(s) >= 2 * (uint32_t)QFW_F32_MIN_NORMAL) {
        int32_t lo, hi;
        const span found = span_of(x, i);
        qfw_codes_at(x, i, &lo, &hi);
        const bool some = found.least != 0 || found.most != 0;
        if (some && found.most <= 3 * hi / 8 && -found.least <= 3 * -lo / 8) {
            shift_codes(x, i, NULL);
            x->t.scale[i] = qfw_scale_lift(s, -1);
        }
    }
    qfw_count_scale(x, i, s);
}

void qfw_settle_scales(const qfw_call *call, const qfw_operand *x, const uint8_t *flags)
{
    const uint32_t step = call->progress.step;
    const bool look = qfw_looks_at_scales(call), all = QFW_IS_SMALL || look || qfw_is_counted(x);
    if (!all && next_flag(flags, 0, x->scales) == x->scales) { /* hardly ever one moves */
        return;
    }
    qfw_key key;
    qfw_make_key(call->seed, step, x->plan->stream ^ OWN_KEY, &key);
    for (ptrdiff_t i = 0; i < x->scales; i++) {
        i = all ? i : next_flag(flags, i, x->scales);
        const bool flag = i < x->scales && flags[i] != 0;
        if (flag || look || (i < x->scales && qfw_is_counted(x))) {
            settle_scale(x, i, flag, look, &key);
        }
    }
}

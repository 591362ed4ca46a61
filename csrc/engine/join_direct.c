/* Sums of codes in bytes where the core has the DSP extension (docs/numerics.md section 33). */
#include "engine/join.h"
#include "kernels/codes.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* How an operand comes to the common scale; `left`: its codes are moved up by so much, exactly. */
typedef struct {
    dsp_ratio ratio;
    int32_t left;
} lift;

static bool lift_of(const qfw_operand *x, float scale, lift *to)
{
    const qfw_ratio r = qfw_ratio_of(x->t.scale[0], scale, QFW_JOIN_BITS);
    const bool takes = dsp_takes(r.mult, r.up, r.down, 8, &to->ratio);
    /* m 2^23 2^30 / 2^(32 + shift) */
    to->left = r.mult == UINT32_C(1) << 30 ? 21 - (int32_t)to->ratio.shift : -1;
    return takes && x->plan->kind == QFW_SYM && qfw_slot(&x->t.format) == 8;
}

/* One operand, written or added. */
static void lift_codes(const int8_t *m, size_t n, const lift *by, bool adds, int32_t *to)
{
    const dsp_ratio r = by->ratio;
    for (const int8_t *end = m + n; m < end; to++) {
        const int32_t x = (int32_t)((uint32_t)*m++ << 23);
        const int32_t v = dsp_nearest(x, r.mult, r.half, r.shift);
        *to = adds ? *to + v : v;
    }
}

/* Sums of two operands' codes, in halves of words, extend most and least. */
#define FOUR_SUMS                          \
    "ldr %[e], [%[a]], #4\n\t"             \
    "ldr %[y], [%[b]], #4\n\t"             \
    "sxtb16 %[o], %[e], ror #8\n\t"        \
    "sxtb16 %[e], %[e]\n\t"                \
    "sxtab16 %[o], %[o], %[y], ror #8\n\t" \
    "sxtab16 %[e], %[e], %[y]\n\t"         \
    "ssub16 %[y], %[e], %[o]\n\t"          \
    "sel %[y], %[e], %[o]\n\t"             \
    "sel %[z], %[o], %[e]\n\t"             \
    "ssub16 %[t], %[y], %[most]\n\t"       \
    "sel %[most], %[y], %[most]\n\t"       \
    "ssub16 %[t], %[z], %[least]\n\t"      \
    "sel %[least], %[least], %[z]\n\t"     \
    "lsl %[y], %[o], %[left]\n\t"          \
    "lsl %[t], %[e], %[left]\n\t"          \
    "strd %[t], %[y], [%[to]], #8\n\t"     \
    "asr %[e], %[e], #16\n\t"              \
    "asr %[o], %[o], #16\n\t"              \
    "lsl %[e], %[e], %[left]\n\t"          \
    "lsl %[o], %[o], %[left]\n\t"          \
    "strd %[e], %[o], [%[to]], #8\n\t"

/* Eights of two operands that are moved up by `left` >= 16: |sum| <= 2^8 times 2^left is an int32, and
 * the high half of a word falls out of the low one's. Returns the largest magnitude of a sum. */
static uint32_t add_eights(const int8_t *a, const int8_t *b, size_t n, int32_t left, int32_t *to)
{
    const int8_t *end = a + n;
    uint32_t most = 0, least = 0, e, o, y, z, t;
    if (a < end) {
        __asm__ volatile(
            "1:\n\t" FOUR_SUMS FOUR_SUMS "cmp %[a], %[end]\n\t"
            "bne 1b"
            : [a] "+r"(a), [b] "+r"(b), [to] "+r"(to), [most] "+r"(most), [least] "+r"(least),
              [e] "=&r"(e), [o] "=&r"(o), [y] "=&r"(y), [z] "=&r"(z), [t] "=&r"(t)
            : [end] "r"(end), [left] "r"(left)
            : "memory", "cc");
    }
    const int32_t m0 = (int16_t)(most & 0xFFFFu), m1 = (int32_t)most >> 16;
    const int32_t l0 = (int16_t)(least & 0xFFFFu), l1 = (int32_t)least >> 16;
    const int32_t high = m0 > m1 ? m0 : m1, low = l0 < l1 ? l0 : l1;
    return (uint32_t)(high > -low ? high : -low) << left;
}

bool qfw_join_directly(const qfw_call *call, int operands, float scale)
{
    const qfw_operand *acc = &call->at[0];
    int32_t *to = acc->t.codes;
    const size_t n = (size_t)acc->n;
    lift by[QFW_OP_TENSORS];
    for (int i = 1; i <= operands; i++) {
        if (!lift_of(&call->at[i], scale, &by[i])) {
            return false;
        }
    }
    const bool two =
        operands == 2 && by[1].left == by[2].left && by[1].left >= 16 && by[1].left <= 22;
    const size_t done = two ? n & ~(size_t)7 : 0;
    uint32_t most = 0;
    if (two) {
        most = add_eights(call->at[1].t.codes, call->at[2].t.codes, done, by[1].left, to);
    }
    for (int i = 1; i <= operands; i++) {
        lift_codes((const int8_t *)call->at[i].t.codes + done, n - done, &by[i], i > 1, to + done);
    }
    const uint32_t rest = qfw_absmax_s32_dsp(to + done, n - done);
    acc->absmax[0] = rest > most ? rest : most;
    return true;
}

#else
bool qfw_join_directly(const qfw_call *call, int operands, float scale)
{
    (void)call, (void)operands, (void)scale;
    return false;
}
#endif

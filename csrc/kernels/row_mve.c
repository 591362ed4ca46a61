/* Columns of a row four at a time. */
#include "kernels/row_mve.h"

#if defined(__ARM_FEATURE_MVE)

/* What all columns have in common: offsets 0, 4, ... in the instructions below. */
typedef struct {
    uint32_t mant, recip, exp, most, q;
    int32_t least;
} common;

/* qfw_ratio_mult, the sum that follows, qfw_near of its magnitude, its sign. Whether all of it was done;
 * else nothing is written. q0: mantissas, then remainders; q1: minus `down`; q2: multipliers; q3: sums;
 * q4: results. */
static inline bool codes_of_four(const float *from, const int32_t *acc, const int32_t *seed,
                                 const uint8_t *shift, uint32_t over, const common *c,
                                 int8_t *codes)
{
    const uint32_t one = 1;
    uint32_t t;
    __asm__ volatile("vldrw.u32 q0, [%[from]]\n\t"
                     "ldr %[t], [%[c]]\n\t"
                     "vdup.32 q5, %[t]\n\t"
                     "ldr %[t], [%[c], #8]\n\t"
                     "vshr.u32 q1, q0, #23\n\t"
                     "vsub.i32 q1, q1, %[t]\n\t"
                     "vshl.i32 q0, q0, #8\n\t"
                     "vorr.i32 q0, #0x80000000\n\t"
                     "vshr.u32 q0, q0, #1\n\t"
                     "vptt.u32 hi, q5, q0\n\t"
                     "vshlt.i32 q0, q0, #1\n\t"
                     "vsubt.i32 q1, q1, %[one]\n\t"
                     "vneg.s32 q6, q1\n\t"
                     "ldr %[t], [%[c], #12]\n\t"
                     "vcmp.u32 cs, q6, %[t]\n\t"
                     "vmrs %[t], p0\n\t"
                     "cbnz %[t], 1f\n\t"
                     "ldr %[t], [%[c], #4]\n\t"
                     "vdup.32 q6, %[t]\n\t"
                     "vmulh.u32 q2, q0, q6\n\t"
                     "vmul.i32 q3, q2, %[over]\n\t"
                     "vshl.i32 q0, q0, #23\n\t"
                     "vsub.i32 q0, q0, q3\n\t"
                     "vpt.u32 cs, q0, %[over]\n\t"
                     "vaddt.i32 q2, q2, %[one]\n\t"
                     "vldrw.u32 q3, [%[acc]]\n\t"
                     "vldrb.u32 q4, [%[shift]]\n\t"
                     "vneg.s32 q4, q4\n\t"
                     "vshl.s32 q3, q3, q4\n\t"
                     "vldrw.u32 q4, [%[seed]]\n\t"
                     "vadd.i32 q3, q3, q4\n\t"
                     "ldr %[t], [%[c], #20]\n\t"
                     "vdup.32 q5, %[t]\n\t"
                     "vmax.s32 q3, q3, q5\n\t"
                     "vabs.s32 q4, q3\n\t"
                     "vmulh.u32 q4, q4, q2\n\t"
                     "vshl.u32 q4, q4, q1\n\t"
                     "vadd.i32 q4, q4, %[one]\n\t"
                     "vshr.u32 q4, q4, #1\n\t"
                     "ldr %[t], [%[c], #16]\n\t"
                     "vcmp.u32 hi, q4, %[t]\n\t"
                     "vmrs %[t], p0\n\t"
                     "cbnz %[t], 1f\n\t"
                     "vpt.s32 lt, q3, zr\n\t"
                     "vnegt.s32 q4, q4\n\t"
                     "vstrb.32 q4, [%[codes]]\n"
                     "1:"
                     : [t] "=&l"(t)
                     : [from] "l"(from), [acc] "l"(acc), [seed] "r"(seed), [shift] "l"(shift),
                       [over] "r"(over), [one] "r"(one), [c] "l"(c), [codes] "l"(codes)
                     : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",
                       "s12", "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22",
                       "s23", "s24", "s25", "s26", "s27", "memory", "cc");
    return t == 0;
}

size_t qfw_codes_by_four_mve(const int32_t *acc, size_t n, const qfw_finish *f, const float *from,
                             const qfw_ratio_to *to, int32_t bits, int8_t *codes)
{
    const common c = {to->mant,
                      to->recip,
                      to->exp,
                      (uint32_t)(28 - bits),
                      (1u << (bits - 1)) - 1,
                      f->relu ? 0 : INT32_MIN};
    const int32_t *first = acc, *last = acc + (n & ~(size_t)3), *seed = f->seed;
    const uint8_t *shift = f->shift;
    while (acc < last && codes_of_four(from, acc, seed, shift, to->mant >> 7, &c, codes)) {
        acc += 4;
        from += 4;
        seed += 4;
        shift += 4;
        codes += 4;
    }
    return (size_t)(acc - first);
}

#else
typedef int qfw_no_mve; /* a unit that is not empty */
#endif

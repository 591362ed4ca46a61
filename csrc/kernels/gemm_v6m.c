/* Rows of bytes by four columns at a time, where only eight registers take part in most instructions: the
 * four sums stay in others, which can be added to. */
#include "kernels/gemm_v6m.h"

#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)

/* Where a row and four columns end, and minus their length, 0 not being one. */
typedef struct {
    const int8_t *a, *b[4];
    ptrdiff_t from;
    int32_t sum[4];
} dots;

#define COLUMN(at, sum)          \
    "ldrsb r7, [" at ", r5]\n\t" \
    "muls r7, r6, r7\n\t"        \
    "add " sum ", " sum ", r7\n\t"

#define TERM                                                                           \
    "ldrsb r6, [r0, r5]\n\t" COLUMN("r1", "r8") COLUMN("r2", "r9") COLUMN("r3", "r10") \
        COLUMN("r4", "r11") "adds r5, r5, #1\n\t"

/* By registers that are named; what is beyond a multiple of four terms comes first. Of r7 compilers make
 * use that do not say so. */
static __attribute__((noinline)) void sum_four(dots *d)
{
    register dots *with __asm__("r0") = d;
    __asm__ volatile(".syntax unified\n\t"
                     "mov r12, r7\n\t"
                     "mov lr, r0\n\t"
                     "ldr r1, [r0, #4]\n\t"
                     "ldr r2, [r0, #8]\n\t"
                     "ldr r3, [r0, #12]\n\t"
                     "ldr r4, [r0, #16]\n\t"
                     "ldr r5, [r0, #20]\n\t"
                     "ldr r0, [r0]\n\t"
                     "movs r6, #0\n\t"
                     "mov r8, r6\n\t"
                     "mov r9, r6\n\t"
                     "mov r10, r6\n\t"
                     "mov r11, r6\n"
                     "1:\n\t"
                     "lsls r6, r5, #30\n\t"
                     "beq 2f\n\t" TERM "b 1b\n"
                     "2:\n\t"
                     "cmp r5, #0\n\t"
                     "beq 4f\n"
                     "3:\n\t" TERM TERM TERM TERM "bne 3b\n"
                     "4:\n\t"
                     "mov r0, lr\n\t"
                     "mov r1, r8\n\t"
                     "mov r2, r9\n\t"
                     "mov r3, r10\n\t"
                     "mov r4, r11\n\t"
                     "adds r0, r0, #24\n\t"
                     "stmia r0!, {r1, r2, r3, r4}\n\t"
                     "mov r7, r12"
                     : "+r"(with)
                     :
                     : "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr",
                       "memory", "cc");
}

/* Columns beyond the last are the last one. */
void qfw_gemm_bytes_v6m(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    dots d;
    for (size_t i = 0; i < g->m; i++) {
        int32_t *o = out + i * out_row;
        d.a = (const int8_t *)g->a + i * g->a_row + g->k;
        d.from = -(ptrdiff_t)g->k;
        const int8_t *b = (const int8_t *)g->b + g->k;
        for (size_t j = 0; j < g->n; j += 4) {
            const size_t n = g->n - j < 4 ? g->n - j : 4;
            for (size_t c = 0; c < 4; c++) {
                d.b[c] = b;
                b += c + 1 < n || n == 4 ? g->b_col : 0;
            }
            sum_four(&d);
            for (size_t c = 0; c < n; c++, o++) {
                *o = g->add != 0 ? *o + d.sum[c] : d.sum[c];
            }
        }
    }
}

#else
typedef int qfw_no_v6m; /* a unit that is not empty */
#endif

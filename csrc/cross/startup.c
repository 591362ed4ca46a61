/* From reset to main on the emulated Cortex-M boards. A fault ends the emulator with 139. */
#include "cross/semihost.h"
#include "cross/stack.h"

/* Of link.ld. */
extern uint32_t qfw_data_load[], qfw_data_start[], qfw_data_end[], qfw_bss_start[], qfw_bss_end[];

int main(void);
void qfw_reset(void);

static void fault(void)
{
    semihost_put("fault\n");
    semihost_exit(139);
}

typedef struct {
    const void *stack;
    void (*handlers[15])(void);
} vector_table;

/* Reset, NMI, hard fault, and what the larger cores tell apart; calls and ticks are not in use. */
__attribute__((section(".vectors"), used)) static const vector_table vectors = {
    qfw_stack_top,
    {qfw_reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault, fault}};

/* ARMv8-M faults where the others would run into the data. */
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
static inline void guard_stack(void)
{
    __asm__ volatile("msr msplim, %0" : : "r"(qfw_stack_limit));
}
#else
static inline void guard_stack(void)
{
}
#endif

/* Coprocessors 10 and 11 are the FPU, and MVE. */
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
static inline void enable_fpu(void)
{
    volatile uint32_t *const cpacr = (volatile uint32_t *)0xE000ED88u;
    *cpacr |= UINT32_C(0xF) << 20;
    __asm__ volatile("dsb\n isb" : : : "memory");
}
#else
static inline void enable_fpu(void)
{
}
#endif

/* The hardware has loaded the stack pointer. */
void qfw_reset(void)
{
    guard_stack();
    enable_fpu();
    for (uint32_t *to = qfw_data_start, *from = qfw_data_load; to < qfw_data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = qfw_bss_start; to < qfw_bss_end;) {
        *to++ = 0;
    }
    stack_paint();
    semihost_exit(main());
}

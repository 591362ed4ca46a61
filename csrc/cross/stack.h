/* How deep the stack of an emulated board went: what it never reached has kept its paint. */
#ifndef QFW_CROSS_STACK_H
#define QFW_CROSS_STACK_H

#include <stdint.h>

#define STACK_PAINT UINT32_C(0x5AC35AC3)

/* Of link.ld. */
extern uint32_t qfw_stack_top[], qfw_stack_limit[], qfw_paint_start[], qfw_paint_end[];

/* For the reset, before it calls anything. */
static inline void stack_paint(void)
{
    for (uint32_t *to = qfw_paint_start; to < qfw_paint_end;) {
        *to++ = STACK_PAINT;
    }
}

/* In bytes. */
static inline uint32_t stack_used(void)
{
    const uint32_t *at = qfw_paint_start;
    while (at < qfw_paint_end && *at == STACK_PAINT) {
        at++;
    }
    return (uint32_t)((uintptr_t)qfw_stack_top - (uintptr_t)at);
}

static inline uint32_t stack_size(void)
{
    return (uint32_t)((uintptr_t)qfw_stack_top - (uintptr_t)qfw_stack_limit);
}

#endif

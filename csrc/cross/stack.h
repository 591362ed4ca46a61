/* How deep the stack of an emulated board went: what it never reached has kept its paint. */
#ifndef QFW_CROSS_STACK_H
#define QFW_CROSS_STACK_H

#include <stdint.h>

#define STACK_PAINT UINT32_C(0x5AC35AC3)

/* Of link.ld. The paint begins below the stack, to show when that runs over. */
extern uint32_t qfw_stack_top[], qfw_stack_limit[], qfw_stack_paint[];

/* For the reset, whose own frame is in the last 512 bytes. */
static inline void stack_paint(void)
{
    for (uint32_t *to = qfw_stack_paint; to < qfw_stack_top - 128; to++) {
        *to = STACK_PAINT;
    }
}

/* Bytes. */
static inline uint32_t stack_used(void)
{
    const uint32_t *at = qfw_stack_paint;
    while (at < qfw_stack_top && *at == STACK_PAINT) {
        at++;
    }
    return (uint32_t)(qfw_stack_top - at) * 4;
}

static inline uint32_t stack_size(void)
{
    return (uint32_t)(qfw_stack_top - qfw_stack_limit) * 4;
}

#endif

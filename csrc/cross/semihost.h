/* Text and exit code of an emulated board, through the debugger's trap. */
#ifndef QFW_CROSS_SEMIHOST_H
#define QFW_CROSS_SEMIHOST_H

#include <stdint.h>

enum { SEMIHOST_WRITE0 = 0x04, SEMIHOST_EXIT_EXTENDED = 0x20 };

static inline int32_t semihost_call(int32_t operation, const void *argument)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory", "r2", "r3", "r12", "lr");
    return r0;
}

static inline void semihost_put(const char *text)
{
    semihost_call(SEMIHOST_WRITE0, text);
}

/* The emulator ends with `code` (0..255) as its own. */
__attribute__((noreturn)) static inline void semihost_exit(int code)
{
    enum { APPLICATION_EXIT = 0x20026 };
    const uint32_t reason[2] = {APPLICATION_EXIT, (uint32_t)code};
    semihost_call(SEMIHOST_EXIT_EXTENDED, reason);
    for (;;) {
    }
}

#endif

/* What the core calls of string.h, in little code: libc's are made for long stretches, and it has few.
 * A loop with a fence in it is not taken for a call of the function that it is in. */
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memset(void *to, int byte, size_t n);

typedef uint32_t __attribute__((may_alias)) word;

#define FENCE(p) __asm__ volatile("" : "+r"(p))

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    if ((((uintptr_t)t | (uintptr_t)f) & 3) == 0) {
        for (; !QFW_IS_SMALL && n >= 16; n -= 16, t += 16, f += 16) {
            const word *from4 = (const word *)(const void *)f;
            word *to4 = (word *)(void *)t;
            const word a = from4[0], b = from4[1], c = from4[2], d = from4[3];
            to4[0] = a, to4[1] = b, to4[2] = c, to4[3] = d;
            FENCE(t);
        }
        for (; n >= 4; n -= 4, t += 4, f += 4) {
            *(word *)(void *)t = *(const word *)(const void *)f;
            FENCE(t);
        }
    }
    for (; n > 0; n--) {
        *t++ = *f++;
        FENCE(t);
    }
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    const uint8_t b = (uint8_t)byte;
    const word four = 0x01010101u * b;
    uint8_t *t = to;
    if (((uintptr_t)t & 3) == 0) {
        for (; !QFW_IS_SMALL && n >= 16; n -= 16, t += 16) {
            word *to4 = (word *)(void *)t;
            to4[0] = to4[1] = to4[2] = to4[3] = four;
            FENCE(t);
        }
        for (; n >= 4; n -= 4, t += 4) {
            *(word *)(void *)t = four;
            FENCE(t);
        }
    }
    for (; n > 0; n--) {
        *t++ = b;
        FENCE(t);
    }
    return to;
}

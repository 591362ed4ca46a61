#include "host/threads.h"

#include <immintrin.h>

enum { ROUND_TO_NEAREST_NO_FLUSH = 0x1F80 };

uint32_t qfw_host_float_enter(void)
{
    const uint32_t mode = _mm_getcsr();
    _mm_setcsr(ROUND_TO_NEAREST_NO_FLUSH);
    return mode;
}

void qfw_host_float_leave(uint32_t mode)
{
    _mm_setcsr(mode);
}

void qfw_host_pause(void)
{
    _mm_pause();
}

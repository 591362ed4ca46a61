/* What the AVX2 twins share. */
#ifndef QFW_KERNELS_AVX2_H
#define QFW_KERNELS_AVX2_H

#include "kernels/kernels.h"

#include <immintrin.h>

/* Asks for memory this many floats ahead: it is read while the last ones are being worked on, also
 * across the pages where the CPU's own prefetching stops. An address past the end does no harm.
 * A macro: gcc drops calls of a function that does nothing else. */
enum { QFW_AHEAD = 512 };
#define QFW_PREFETCH(x) \
    _mm_prefetch((const char *)((uintptr_t)(x) + QFW_AHEAD * sizeof *(x)), _MM_HINT_T0)

/* Beyond these 1/s or s/2 is subnormal or near it and no longer has its 24 bits. */
#define QFW_REACH_MIN 0x1p-120f
#define QFW_REACH_MAX 0x1p120f

static inline bool qfw_in_reach(float s)
{
    return s >= QFW_REACH_MIN && s <= QFW_REACH_MAX;
}

/* The high words of eight products of unsigned words; those of b are all the same. */
static inline __m256i qfw_mulhi_avx2(__m256i a, __m256i b)
{
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    return _mm256_blend_epi32(even, odd, 0xAA);
}

#endif

/* Which loop of multiply-accumulates stands for the CPU's limit. */
#include "host/peak.h"

#ifndef QFW_HAVE_AVX2
uint64_t qfw_peak_avx2(uint32_t width, uint64_t rounds)
{
    (void)width, (void)rounds;
    return 0;
}
#endif

#ifndef QFW_HAVE_AVX512
uint64_t qfw_peak_avx512(uint32_t width, uint64_t rounds)
{
    (void)width, (void)rounds;
    return 0;
}
#endif

uint64_t qfw_host_peak(qfw_isa isa, uint32_t width, uint64_t rounds)
{
    if (qfw_host_kernels(isa) == NULL) {
        return 0;
    }
    return isa == QFW_ISA_AVX512 ? qfw_peak_avx512(width, rounds)
           : isa == QFW_ISA_AVX2 ? qfw_peak_avx2(width, rounds)
                                 : 0;
}

/* What only the desktop has: which kernels this CPU can run. */
#include "kernels/kernels.h"

#ifdef QFW_HAVE_AVX2
static const qfw_kernels avx2 = {
    "avx2",
#define QFW_KERNEL(kernel) qfw_##kernel##_avx2,
#include "kernels/kernels.def"
};

static const qfw_kernels *avx2_if_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
static const qfw_kernels *avx2_if_supported(void)
{
    return NULL;
}
#endif

#ifdef QFW_HAVE_AVX512
static const qfw_kernels avx512 = {
    "avx512",
#define QFW_KERNEL(kernel) qfw_##kernel##_avx2,
#define QFW_KERNEL_512(kernel) qfw_##kernel##_avx512,
#include "kernels/kernels.def"
};

static const qfw_kernels *avx512_if_supported(void)
{
    const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return has && avx2_if_supported() != NULL ? &avx512 : NULL;
}
#else
static const qfw_kernels *avx512_if_supported(void)
{
    return NULL;
}
#endif

const qfw_kernels *qfw_host_kernels(qfw_isa isa)
{
    switch (isa) {
    case QFW_ISA_PORTABLE:
        return qfw_kernels_portable();
    case QFW_ISA_AVX2:
        return avx2_if_supported();
    case QFW_ISA_AVX512:
        return avx512_if_supported();
    default:
        return NULL;
    }
}

const char *qfw_host_compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

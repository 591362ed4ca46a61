#include "kernels/kernels.h"

static const qfw_kernels portable = {
    "portable",
#define QFW_KERNEL(kernel) qfw_##kernel##_scalar,
#include "kernels/kernels.def"
};

const qfw_kernels *qfw_kernels_portable(void)
{
    return &portable;
}

const char *qfw_kernels_name(const qfw_kernels *kernels)
{
    return kernels->name;
}

/* What a net is opened on: plan, constants, state, and the machine. */
#include "base/round.h"
#include "engine/state.h"

/* Volatile, so that nothing is computed beforehand. */
bool qfw_floats_are_ieee(void)
{
#ifdef __SOFTFP__ /* functions of the compiler: no mode that could be set otherwise */
    return true;
#else
    volatile float tiny = 0x1p-126f, half = 0.5f, one = 1.0f, eps = 0x1p-24f, third = 3.0f;
    volatile float a = 0x1.000002p0f, b = 0x1.fffffcp-1f;
    volatile int32_t big = 16777217;
    const float subnormal = tiny * half, product = a * b;
    const float contracted = a * b - one; /* not 0 if the product was not rounded */
    const float tie = one + eps, sum = one + (eps + eps), quotient = one / third;
    return qfw_bits_f32(subnormal) == 0x00400000u && qfw_bits_f32(product) == 0x3F800000u &&
           contracted == 0.0f && tie == 1.0f && qfw_bits_f32(sum) == 0x3F800001u &&
           qfw_bits_f32(quotient) == 0x3EAAAAABu && (float)big == 16777216.0f;
#endif
}

qfw_status qfw_check_image(const qfw_image *image)
{
    if (image == NULL || image->plan == NULL || !qfw_has_kernels(image->kernels) ||
        image->ops == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_check_bytes(image->plan, image->plan_bytes));
    const qfw_plan_header *h = image->plan;
    if (!QFW_ANY_PLAN && h->crc != QFW_PLAN_CRC) {
        return QFW_E_FEATURE;
    }
    const bool there = h->const_bytes == 0 || image->constants != NULL;
    return there && h->const_bytes == image->const_bytes &&
                   (uintptr_t)image->constants % QFW_ALIGN == 0
               ? QFW_OK
               : QFW_E_SIZE;
}

qfw_status qfw_arena_size(const qfw_image *image, size_t *bytes)
{
    QFW_TRY(qfw_check_image(image));
    if (bytes == NULL) {
        return QFW_E_NULL;
    }
    *bytes = ((const qfw_plan_header *)image->plan)->arena_bytes;
    return QFW_OK;
}

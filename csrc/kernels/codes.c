#include "kernels/codes.h"
#include "base/pack.h"

void qfw_load_codes(const qfw_tensor *t, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m)
{
    const bool is_signed = !qfw_is_asym(t->format.kind);
    switch (qfw_slot(&t->format)) {
    case 8:
        for (size_t i = 0; i < n; i++) {
            m[i] = is_signed ? ((const int8_t *)t->codes)[first + (ptrdiff_t)i]
                             : ((const uint8_t *)t->codes)[first + (ptrdiff_t)i];
        }
        break;
    case 16:
        for (size_t i = 0; i < n; i++) {
            m[i] = is_signed ? ((const int16_t *)t->codes)[first + (ptrdiff_t)i]
                             : ((const uint16_t *)t->codes)[first + (ptrdiff_t)i];
        }
        break;
    case 32:
        memcpy(m, (const int32_t *)t->codes + first, n * sizeof *m);
        break;
    default:
        if (QFW_HAS_PACKED) {
            qfw_unpack_tile(t->codes, (uint64_t)first, n, t->format.bits, is_signed, m);
        }
        break;
    }
    if (!is_signed) {
        for (size_t i = 0; i < n; i++) {
            m[i] = (m[i] & 0xFFFF) -
                   t->zero_point[scale]; /* an Asym code has 16 bits whatever its container holds */
        }
    }
}

void qfw_store_codes(const qfw_tensor *t, ptrdiff_t first, size_t n, const int32_t *codes)
{
    switch (qfw_slot(&t->format)) {
    case 8:
        for (size_t i = 0; i < n; i++) {
            ((uint8_t *)t->codes)[first + (ptrdiff_t)i] = (uint8_t)((uint32_t)codes[i] & 0xFFu);
        }
        break;
    case 16:
        for (size_t i = 0; i < n; i++) {
            ((uint16_t *)t->codes)[first + (ptrdiff_t)i] = (uint16_t)((uint32_t)codes[i] & 0xFFFFu);
        }
        break;
    case 32:
        memcpy((int32_t *)t->codes + first, codes, n * sizeof *codes);
        break;
    default:
        if (QFW_HAS_PACKED) {
            qfw_pack_tile(t->codes, (uint64_t)first, n, t->format.bits, codes);
        }
        break;
    }
}

void qfw_code_range(const qfw_format *format, int32_t *lo, int32_t *hi)
{
    if (format->bits == 32) {
        *lo = INT32_MIN;
        *hi = INT32_MAX;
    } else if (!qfw_is_asym(format->kind)) {
        *hi = (1 << (format->bits - 1)) - 1;
        *lo = -*hi;
    } else {
        *lo = 0;
        *hi = (1 << format->bits) - 1;
    }
}

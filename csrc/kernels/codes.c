#include "kernels/codes.h"
#include "base/pack.h"

void qfw_load_codes(const qfw_tensor *t, int64_t first, size_t n, int64_t scale, int32_t *m)
{
    const bool is_signed = t->format.kind == QFW_SYM;
    switch (qfw_slot(&t->format)) {
    case 8:
        for (size_t i = 0; i < n; i++) {
            m[i] = is_signed ? ((const int8_t *)t->codes)[first + (int64_t)i]
                             : ((const uint8_t *)t->codes)[first + (int64_t)i];
        }
        break;
    case 16:
        for (size_t i = 0; i < n; i++) {
            m[i] = is_signed ? ((const int16_t *)t->codes)[first + (int64_t)i]
                             : ((const uint16_t *)t->codes)[first + (int64_t)i];
        }
        break;
    case 32:
        memcpy(m, (const int32_t *)t->codes + first, n * sizeof *m);
        break;
    default:
        qfw_unpack_tile(t->codes, (uint64_t)first, n, t->format.bits, is_signed, m);
        break;
    }
    if (!is_signed) {
        for (size_t i = 0; i < n; i++) {
            m[i] = (m[i] & 0xFFFF) -
                   t->zero_point[scale]; /* an Asym code has 16 bits whatever its container holds */
        }
    }
}

void qfw_store_codes(const qfw_tensor *t, int64_t first, size_t n, const int32_t *codes)
{
    switch (qfw_slot(&t->format)) {
    case 8:
        for (size_t i = 0; i < n; i++) {
            ((uint8_t *)t->codes)[first + (int64_t)i] = (uint8_t)((uint32_t)codes[i] & 0xFFu);
        }
        break;
    case 16:
        for (size_t i = 0; i < n; i++) {
            ((uint16_t *)t->codes)[first + (int64_t)i] = (uint16_t)((uint32_t)codes[i] & 0xFFFFu);
        }
        break;
    case 32:
        memcpy((int32_t *)t->codes + first, codes, n * sizeof *codes);
        break;
    default:
        qfw_pack_tile(t->codes, (uint64_t)first, n, t->format.bits, codes);
        break;
    }
}

void qfw_code_range(const qfw_format *format, int32_t *lo, int32_t *hi)
{
    if (format->bits == 32) {
        *lo = INT32_MIN;
        *hi = INT32_MAX;
    } else if (format->kind == QFW_SYM) {
        *hi = (1 << (format->bits - 1)) - 1;
        *lo = -*hi;
    } else {
        *lo = 0;
        *hi = (1 << format->bits) - 1;
    }
}

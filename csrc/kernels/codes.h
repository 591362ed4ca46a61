/* Codes in whatever slots they are stored, as int32. */
#ifndef QFW_KERNELS_CODES_H
#define QFW_KERNELS_CODES_H

#include "base/config.h"
#include "base/fixed.h"
#include "include/qfw.h"

/* Of kind and pow2 of a format or a tensor of a plan. */
static inline bool qfw_is_asym(uint32_t kind)
{
    return QFW_HAS_ASYM && kind == QFW_ASYM;
}

static inline bool qfw_is_pow2(uint32_t pow2)
{
    return QFW_HAS_POW2 && pow2 != 0;
}

/* m[i] = code of element first + i (Asym: minus the zero point of scale number `scale`): any int32
 * that the slot holds. */
void qfw_load_codes(const qfw_tensor *t, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m);

/* Writes codes (Asym: with the zero point in them). */
void qfw_store_codes(const qfw_tensor *t, ptrdiff_t first, size_t n, const int32_t *codes);

/* The codes of a Sym or Asym format: lo .. hi; 32 bits: all of int32. */
void qfw_code_range(const qfw_format *format, int32_t *lo, int32_t *hi);

/* Bits of a signed number that holds every code (Asym: minus any zero point). */
static inline int qfw_signed_bits(const qfw_format *format)
{
    return format->bits + (qfw_is_asym(format->kind) ? 1 : 0);
}

/* The slot an element takes if that is whole bytes, else 0. */
static inline int qfw_slot(const qfw_format *format)
{
    const bool packed = QFW_HAS_PACKED && format->container == 0;
    const bool plain = packed && (format->bits == 8 || format->bits == 16);
    return plain ? format->bits : format->container;
}

#endif

/* Bit strings: docs/numerics.md section 2, container "packed". */
#ifndef QFW_BASE_PACK_H
#define QFW_BASE_PACK_H

#include "base/fixed.h"

/* Reads n codes of `bits` bits (1..16) that start at element `first`. */
void qfw_unpack_tile(const uint8_t *packed, uint64_t first, size_t n, int bits, bool is_signed,
                     int32_t *codes);

/* Writes them; the other bits of the first and last byte stay as they are. */
void qfw_pack_tile(uint8_t *packed, uint64_t first, size_t n, int bits, const int32_t *codes);

#endif

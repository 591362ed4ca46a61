/* CRC-32 as in zlib: polynomial 0xEDB88320, reflected. */
#ifndef QFW_BASE_CRC_H
#define QFW_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the beginning) over n bytes. */
uint32_t qfw_crc32(uint32_t crc, const void *bytes, size_t n);

#endif

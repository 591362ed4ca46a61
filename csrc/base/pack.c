#include "base/pack.h"

#include "base/config.h"
#include "include/qfw.h"

/* Codes of 1, 2 or 4 bits from a byte's start on, whole bytes of them; `bits` is a constant at each
 * call. Returns how many codes. A device does without: it is the same by the longer way. */
static inline size_t unpack_bytes(const uint8_t *p, size_t n, const int bits, bool is_signed,
                                  int32_t *codes)
{
    const size_t each = 8 / (size_t)bits;
    const uint32_t mask = (UINT32_C(1) << bits) - 1,
                   sign = is_signed ? UINT32_C(1) << (bits - 1) : 0;
    size_t i = 0;
    for (; n - i >= each; i += each, p++) {
        for (size_t k = 0; k < each; k++) {
            const uint32_t code = (uint32_t)*p >> (k * (size_t)bits) & mask;
            codes[i + k] = (int32_t)(code ^ sign) - (int32_t)sign;
        }
    }
    return i;
}

static inline size_t pack_bytes(uint8_t *p, size_t n, const int bits, const int32_t *codes)
{
    const size_t each = 8 / (size_t)bits;
    const uint32_t mask = (UINT32_C(1) << bits) - 1;
    size_t i = 0;
    for (; n - i >= each; i += each, p++) {
        uint32_t byte = 0;
        for (size_t k = 0; k < each; k++) {
            byte |= ((uint32_t)codes[i + k] & mask) << (k * (size_t)bits);
        }
        *p = (uint8_t)byte;
    }
    return i;
}

static size_t unpack_some(const uint8_t *p, size_t n, int bits, bool is_signed, int32_t *codes)
{
    return bits == 1   ? unpack_bytes(p, n, 1, is_signed, codes)
           : bits == 2 ? unpack_bytes(p, n, 2, is_signed, codes)
           : bits == 4 ? unpack_bytes(p, n, 4, is_signed, codes)
                       : 0;
}

static size_t pack_some(uint8_t *p, size_t n, int bits, const int32_t *codes)
{
    return bits == 1   ? pack_bytes(p, n, 1, codes)
           : bits == 2 ? pack_bytes(p, n, 2, codes)
           : bits == 4 ? pack_bytes(p, n, 4, codes)
                       : 0;
}

void qfw_unpack_tile(const uint8_t *packed, uint64_t first, size_t n, int bits, bool is_signed,
                     int32_t *codes)
{
    const uint64_t bit = first * (uint64_t)bits;
    const uint8_t *p = packed + bit / 8;
    const size_t done = !QFW_DIRECT && bit % 8 == 0 ? unpack_some(p, n, bits, is_signed, codes) : 0;
    p += done * (size_t)bits / 8;
    const uint32_t mask = (UINT32_C(1) << bits) - 1,
                   sign = is_signed ? UINT32_C(1) << (bits - 1) : 0;
    int have = -(int)(bit % 8); /* bits of `acc` not yet used; at most 7 + 16 */
    uint32_t acc = 0;
    for (size_t i = done; i < n; i++) {
        if (have < 0) { /* only at the start: drop what belongs to elements before */
            acc = (uint32_t)*p++ >> -have;
            have += 8;
        }
        while (have < bits) {
            acc |= (uint32_t)*p++ << have;
            have += 8;
        }
        codes[i] = (int32_t)((acc & mask) ^ sign) - (int32_t)sign;
        acc >>= bits;
        have -= bits;
    }
}

void qfw_pack_tile(uint8_t *packed, uint64_t first, size_t n, int bits, const int32_t *codes)
{
    const uint64_t bit = first * (uint64_t)bits;
    uint8_t *p = packed + bit / 8;
    const size_t done = !QFW_DIRECT && bit % 8 == 0 ? pack_some(p, n, bits, codes) : 0;
    p += done * (size_t)bits / 8;
    const uint32_t mask = (UINT32_C(1) << bits) - 1;
    int have = (int)(bit % 8);
    uint32_t acc = have != 0 ? *p & ((UINT32_C(1) << have) - 1) : 0;
    for (size_t i = done; i < n; i++) {
        acc |= ((uint32_t)codes[i] & mask) << have; /* at most 7 + 16 bits */
        have += bits;
        for (; have >= 8; have -= 8, acc >>= 8) {
            *p++ = (uint8_t)(acc & 0xFFu);
        }
    }
    if (have != 0) {
        *p = (uint8_t)((*p & (0xFFu << have)) | acc);
    }
}

/* Whole arrays go eight codes, so `bits` bytes, at a time: four codes to a word of 4 * bits <= 60
 * bits (16 bits are plain int16 and take the tile's way). A block is written as 8 or 16 bytes, the
 * next one mends what is too much; the last blocks, where that would pass the end, take the tile's
 * way too. */

typedef struct {
    uint64_t w0, w1;
} block;

static uint64_t load_le(const uint8_t *p)
{
    uint64_t w = 0;
    for (int i = 0; i < 8; i++) {
        w |= (uint64_t)p[i] << (8 * i);
    }
    return w;
}

static void store_le(uint8_t *p, uint64_t w)
{
    for (int i = 0; i < 8; i++) {
        p[i] = (uint8_t)(w >> (8 * i) & 0xFFu);
    }
}

static uint64_t low_bits(int n)
{
    return (UINT64_C(1) << n) - 1;
}

static block join(uint64_t lo, uint64_t hi, int half)
{
    const block b = {lo | (hi & low_bits(64 - half)) << half, hi >> (64 - half)};
    return b;
}

static block load_block(const uint8_t *p, int bits)
{
    block b = {load_le(p), 0};
    if (bits > 8) {
        b.w1 = load_le(p + 8) & low_bits(8 * bits - 64);
    }
    return b;
}

static void store_block(uint8_t *p, block b, int bits)
{
    store_le(p, b.w0);
    if (bits > 8) {
        store_le(p + 8, b.w1);
    }
}

/* How many blocks can be moved as whole words. */
static size_t whole_blocks(size_t n, int bits)
{
    const size_t need = bits > 8 ? 16 : 8, bytes = n / 8 * (size_t)bits;
    return bits == 16 || bytes < need ? 0 : (bytes - need) / (size_t)bits + 1;
}

/* `wide` is a constant at each call, so each becomes a loop of its own. */
static inline void pack_blocks(const void *codes, bool wide, size_t blocks, int bits,
                               uint8_t *packed)
{
    const int half = 4 * bits;
    const uint64_t mask = low_bits(bits);
    for (size_t i = 0; i < blocks; i++, packed += bits) {
        uint64_t w[2] = {0, 0};
        for (size_t k = 0; k < 8; k++) {
            const int32_t c =
                wide ? ((const int16_t *)codes)[8 * i + k] : ((const int8_t *)codes)[8 * i + k];
            w[k / 4] |= ((uint64_t)(uint32_t)c & mask) << ((int)(k % 4) * bits);
        }
        store_block(packed, join(w[0], w[1], half), bits);
    }
}

static inline void unpack_blocks(const uint8_t *packed, bool is_signed, size_t blocks, int bits,
                                 bool wide, void *codes)
{
    const int half = 4 * bits;
    const uint32_t mask = (uint32_t)low_bits(bits),
                   sign = is_signed ? UINT32_C(1) << (bits - 1) : 0;
    for (size_t i = 0; i < blocks; i++, packed += bits) {
        const block b = load_block(packed, bits);
        const uint64_t w[2] = {b.w0 & low_bits(half),
                               (b.w0 >> half | b.w1 << (64 - half)) & low_bits(half)};
        for (size_t k = 0; k < 8; k++) {
            const uint32_t u = (uint32_t)(w[k / 4] >> ((int)(k % 4) * bits) & mask);
            const int32_t c = (int32_t)(u ^ sign) - (int32_t)sign;
            if (wide) {
                ((uint16_t *)codes)[8 * i + k] = (uint16_t)((uint32_t)c & 0xFFFFu);
            } else {
                ((uint8_t *)codes)[8 * i + k] = (uint8_t)((uint32_t)c & 0xFFu);
            }
        }
    }
}

enum { TILE = 64 };

static qfw_status check(const void *codes, int32_t wide, size_t n, int32_t bits,
                        const uint8_t *packed)
{
    if (bits < 1 || bits > 16) {
        return QFW_E_BITS;
    }
    if (wide == 0 && bits > 8) {
        return QFW_E_CONTAINER;
    }
    return n > 0 && (codes == NULL || packed == NULL) ? QFW_E_NULL : QFW_OK;
}

qfw_status qfw_pack(const void *codes, int32_t wide, size_t n, int32_t bits, uint8_t *packed)
{
    const qfw_status status = check(codes, wide, n, bits, packed);
    if (status != QFW_OK || n == 0) {
        return status;
    }
    const size_t blocks = whole_blocks(n, bits);
    if (wide != 0) {
        pack_blocks(codes, true, blocks, bits, packed);
    } else {
        pack_blocks(codes, false, blocks, bits, packed);
    }
    if (8 * blocks < n) {
        packed[(n * (size_t)bits - 1) / 8] = 0; /* the bits after the last code */
    }
    for (size_t i = 8 * blocks; i < n; i += TILE) {
        int32_t tile[TILE];
        const size_t count = n - i < TILE ? n - i : TILE;
        for (size_t k = 0; k < count; k++) {
            tile[k] = wide != 0 ? ((const int16_t *)codes)[i + k] : ((const int8_t *)codes)[i + k];
        }
        qfw_pack_tile(packed, i, count, bits, tile);
    }
    return QFW_OK;
}

qfw_status qfw_unpack(const uint8_t *packed, size_t n, int32_t bits, int32_t is_signed,
                      int32_t wide, void *codes)
{
    const qfw_status status = check(codes, wide, n, bits, packed);
    if (status != QFW_OK || n == 0) {
        return status;
    }
    const size_t blocks = whole_blocks(n, bits);
    if (wide != 0) {
        unpack_blocks(packed, is_signed != 0, blocks, bits, true, codes);
    } else {
        unpack_blocks(packed, is_signed != 0, blocks, bits, false, codes);
    }
    for (size_t i = 8 * blocks; i < n; i += TILE) {
        int32_t tile[TILE];
        const size_t count = n - i < TILE ? n - i : TILE;
        qfw_unpack_tile(packed, i, count, bits, is_signed != 0, tile);
        for (size_t k = 0; k < count; k++) {
            if (wide != 0) {
                ((uint16_t *)codes)[i + k] = (uint16_t)((uint32_t)tile[k] & 0xFFFFu);
            } else {
                ((uint8_t *)codes)[i + k] = (uint8_t)((uint32_t)tile[k] & 0xFFu);
            }
        }
    }
    return QFW_OK;
}

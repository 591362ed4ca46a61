/* The gold cases as gold.py writes them. Floats are bit patterns; an array of `void` has the width
 * of its type. Case i is the i-th of its file in tests/gold. */
#ifndef GOLD_H
#define GOLD_H

#include <stddef.h>
#include <stdint.h>

#include "include/qfw.h"

enum { GOLD_ROUNDINGS = 3, GOLD_RULES = 2, GOLD_BLOCKS = 8 };

typedef struct {
    uint32_t seed, step, tensor;
} gold_key;

typedef struct {
    uint64_t first;
    const uint32_t *words;
    uint8_t n, uniform; /* uniform: of qfw_uniforms, else of qfw_draws */
} gold_block;

typedef struct {
    gold_key key;
    uint32_t k0, k1;
    gold_block blocks[GOLD_BLOCKS];
} gold_draws_case;

typedef struct {
    const int32_t *codes;
    const uint8_t *packed; /* the first 0, 1, .. n codes, one bit string after the other */
    uint8_t n, bits, is_signed;
} gold_packing_case;

typedef enum { GOLD_FIXED = 0, GOLD_RANGE, GOLD_DYNAMIC } gold_mode;

/* Of requant.json: int32 with source_scale, one for `run` elements. Of quantize.json: float32,
 * source_scale NULL; values are those of the codes by QFW_HALF_AWAY. */
typedef struct {
    gold_key key;
    const void *source;
    const uint32_t *source_scale;
    const uint32_t *values;
    const int32_t *codes[GOLD_ROUNDINGS];
    uint32_t range, scale;
    uint16_t zero_point;
    uint8_t n, run, mode, kind, bits, pow2;
    uint8_t saturated[GOLD_ROUNDINGS];
} gold_convert_case;

typedef struct {
    gold_key key;
    uint8_t outer, axis, inner, group, shared;
    uint8_t n, scales, real, rounding, params_bits;
    int32_t qmin, qmax;
    const void *scale; /* float, or double for QFW_F64 */
    const int32_t *zero_point, *codes, *quantize;
    const void *x, *dy, *fake_quantize, *dequantize, *dequantize_backward;
    struct {
        const uint8_t *mask;
        const void *quantize_backward, *fake_quantize_backward;
    } rules[GOLD_RULES]; /* by qfw_in_range */
    struct {
        const void *scale;
        const int32_t *zero_point;
    } params[2]; /* asymmetric, symmetric */
} gold_affine_case;

extern const gold_draws_case gold_draws[];
extern const gold_packing_case gold_packing[];
extern const gold_convert_case gold_requant[], gold_quantize[];
extern const gold_affine_case gold_affine[];
extern const unsigned gold_draws_count, gold_packing_count, gold_requant_count, gold_quantize_count,
    gold_affine_count;

#endif

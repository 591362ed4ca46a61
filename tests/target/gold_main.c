/* The gold cases through the public interface. Zero tolerance: every byte that a call may write is
 * compared, and those behind it must be as they were. */
#include <string.h>

#include "gold.h"
#include "report.h"

enum { ELEMENTS = 40, FILL = 0xA5 };

/* An array of any element type. */
typedef union {
    uint8_t bytes[ELEMENTS * sizeof(double)];
    int8_t i8[ELEMENTS];
    int16_t i16[ELEMENTS];
    int32_t i32[ELEMENTS];
    uint32_t u32[ELEMENTS];
    float f32[ELEMENTS];
    double f64[ELEMENTS];
} array;

static array source, other, out, mask, expected;

static const qfw_kernels *kernels(void)
{
    return qfw_kernels_portable();
}

static qfw_key key_of(gold_key k)
{
    qfw_key key;
    qfw_make_key(k.seed, k.step, k.tensor, &key);
    return key;
}

static void load(array *a, const void *bits, size_t n, size_t size)
{
    memcpy(a->bytes, bits, n * size);
}

static void clear(array *a)
{
    memset(a->bytes, FILL, sizeof a->bytes);
}

/* The first bytes are these, the others have not been written. */
static bool same(const array *a, const void *bytes, size_t size)
{
    for (size_t i = size; i < sizeof a->bytes; i++) {
        if (a->bytes[i] != FILL) {
            return false;
        }
    }
    return memcmp(a->bytes, bytes, size) == 0;
}

/* Codes as integers of `width` bits (8, 16 or 32); returns their bytes. */
static size_t narrow(array *a, const int32_t *codes, size_t n, int32_t width)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t c = codes[i];
        if (width == 8) {
            a->i8[i] = (int8_t)(c > INT8_MAX ? c - 256 : c);
        } else if (width == 16) {
            a->i16[i] = (int16_t)(c > INT16_MAX ? c - 65536 : c);
        } else {
            a->i32[i] = c;
        }
    }
    return n * (size_t)width / 8;
}

/* Codes of `bits` bits in a container, 0 being packed; returns their bytes. */
static size_t contain(array *a, const int32_t *codes, size_t n, int32_t bits, int32_t container)
{
    if (container != 0) {
        return narrow(a, codes, n, container);
    }
    array words;
    narrow(&words, codes, n, 16);
    return qfw_pack(words.i16, 1, n, bits, a->bytes) == QFW_OK ? (n * (size_t)bits + 7) / 8
                                                               : sizeof a->bytes;
}

/* ---- draws.json -------------------------------------------------------------------------------*/

static void check_block(const gold_block *b, const qfw_key *key, unsigned number)
{
    clear(&out);
    if (b->uniform != 0) {
        qfw_uniforms(key, b->first, b->n, out.u32);
    } else {
        qfw_draws(key, (uint32_t)b->first, b->n, out.u32);
    }
    report_check(same(&out, b->words, b->n * sizeof *b->words), number,
                 b->uniform != 0 ? "uniforms" : "draws");
}

static void check_draws(const gold_draws_case *c, unsigned number)
{
    const qfw_key key = key_of(c->key);
    report_check(key.k0 == c->k0 && key.k1 == c->k1, number, "key");
    for (size_t i = 0; i < GOLD_BLOCKS; i++) {
        check_block(&c->blocks[i], &key, number);
    }
}

/* ---- packing.json -----------------------------------------------------------------------------*/

static void check_bit_string(const gold_packing_case *c, const uint8_t *packed, size_t n,
                             int32_t wide, unsigned number)
{
    const size_t size = narrow(&source, c->codes, n, wide != 0 ? 16 : 8);
    clear(&out);
    qfw_status status = qfw_pack(source.bytes, wide, n, c->bits, out.bytes);
    report_check(status == QFW_OK && same(&out, packed, (n * c->bits + 7u) / 8), number, "pack");
    clear(&out);
    status = qfw_unpack(packed, n, c->bits, c->is_signed, wide, out.bytes);
    report_check(status == QFW_OK && same(&out, source.bytes, size), number, "unpack");
}

static void check_packing(const gold_packing_case *c, unsigned number)
{
    const uint8_t *packed = c->packed;
    for (size_t n = 0; n <= c->n; n++) {
        check_bit_string(c, packed, n, 1, number);
        if (c->bits <= 8) {
            check_bit_string(c, packed, n, 0, number);
        }
        packed += (n * c->bits + 7u) / 8;
    }
}

/* ---- requant.json, quantize.json --------------------------------------------------------------*/

/* A tensor in one run. Without elements an axis of 1 keeps its scale. */
static qfw_tensor tensor(qfw_format format, ptrdiff_t n, void *codes, float *scale, uint16_t *zp)
{
    const qfw_layout layout = {1, n > 0 ? n : 1, n > 0 ? 1 : 0, n > 0 ? n : 1, 1, 0};
    const qfw_tensor t = {format, layout, codes, scale, zp};
    return t;
}

static qfw_tensor float_tensor(ptrdiff_t n, float *values)
{
    const qfw_format format = {QFW_FLOAT32, 32, 32, 0};
    return tensor(format, n, values, NULL, NULL);
}

/* The case's numbers, in `source`, their scales in `other`. */
static qfw_tensor source_tensor(const gold_convert_case *c)
{
    load(&source, c->source, c->n, 4);
    if (c->source_scale == NULL) {
        return float_tensor(c->n, source.f32);
    }
    const size_t scales = c->n > c->run ? (c->n + c->run - 1u) / c->run : 1;
    load(&other, c->source_scale, scales, sizeof(float));
    const qfw_format format = {QFW_SYM, scales == 1 ? 32 : 16, 32, 0};
    qfw_tensor t = tensor(format, c->n, source.i32, other.f32, NULL);
    t.layout.group = c->run;
    return t;
}

/* A fixed range's scale is what its end asks for. */
static qfw_status scale_of_range(const gold_convert_case *c, float *scale, uint16_t *zp)
{
    const qfw_format format = {c->kind, c->bits, 32, c->pow2};
    const qfw_encoding how = {QFW_HALF_AWAY, 1, {0, 0}, 0};
    float range;
    int32_t code;
    uint64_t saturated;
    memcpy(&range, &c->range, sizeof range);
    const qfw_tensor src = float_tensor(1, &range), dst = tensor(format, 1, &code, scale, zp);
    return qfw_convert(kernels(), &src, &dst, &how, &saturated);
}

static qfw_status set_scale(const gold_convert_case *c, float *scale, uint16_t *zp)
{
    if (c->mode == GOLD_FIXED) {
        memcpy(scale, &c->scale, sizeof *scale);
        *zp = c->zero_point;
    }
    return c->mode == GOLD_RANGE ? scale_of_range(c, scale, zp) : QFW_OK;
}

static bool values_are(const qfw_tensor *codes, const uint32_t *values, size_t n)
{
    const qfw_encoding how = {QFW_HALF_AWAY, 0, {0, 0}, 0};
    uint64_t saturated;
    clear(&expected);
    const qfw_tensor floats = float_tensor((ptrdiff_t)n, expected.f32);
    return qfw_convert(kernels(), codes, &floats, &how, &saturated) == QFW_OK &&
           same(&expected, values, n * sizeof *values);
}

static void check_encoding(const gold_convert_case *c, int32_t rounding, int32_t container,
                           unsigned number)
{
    static const char *const names[] = {"half away", "half even", "stochastic"};
    const qfw_format format = {c->kind, c->bits, (uint8_t)container, c->pow2};
    const qfw_encoding how = {rounding, c->mode == GOLD_DYNAMIC, key_of(c->key), 0};
    float scale = 0;
    uint16_t zero_point = 0;
    uint64_t saturated = 0;
    uint32_t scale_bits;
    clear(&out);
    const qfw_tensor src = source_tensor(c),
                     dst = tensor(format, c->n, out.bytes, &scale, &zero_point);
    bool ok = set_scale(c, &scale, &zero_point) == QFW_OK &&
              qfw_convert(kernels(), &src, &dst, &how, &saturated) == QFW_OK;
    memcpy(&scale_bits, &scale, sizeof scale_bits);
    const size_t size = contain(&expected, c->codes[rounding], c->n, c->bits, container);
    ok = ok && same(&out, expected.bytes, size) && saturated == c->saturated[rounding] &&
         scale_bits == c->scale && zero_point == c->zero_point;
    report_check(ok, number, names[rounding]);
    if (c->values != NULL && rounding == QFW_HALF_AWAY) {
        report_check(values_are(&dst, c->values, c->n), number, "values");
    }
}

static void check_convert(const gold_convert_case *c, unsigned number)
{
    static const int32_t containers[] = {0, 8, 16, 32};
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        if (containers[i] != 0 && containers[i] < c->bits) {
            continue;
        }
        for (int32_t rounding = 0; rounding < GOLD_ROUNDINGS; rounding++) {
            check_encoding(c, rounding, containers[i], number);
        }
    }
}

/* ---- affine.json ------------------------------------------------------------------------------*/

typedef struct {
    int32_t low, high, width;
} code_type;

/* By qfw_int. */
static const code_type code_types[] = {{INT8_MIN, INT8_MAX, 8},
                                       {0, UINT8_MAX, 8},
                                       {INT16_MIN, INT16_MAX, 16},
                                       {0, UINT16_MAX, 16},
                                       {INT32_MIN, INT32_MAX, 32}};
enum { CODE_TYPES = sizeof code_types / sizeof *code_types };

static bool holds(int type, const gold_affine_case *c)
{
    return c->qmin >= code_types[type].low && c->qmax <= code_types[type].high;
}

static size_t real_size(const gold_affine_case *c)
{
    return c->real == QFW_F64 ? 8 : c->real == QFW_F32 ? 4 : 2;
}

static size_t mask_size(const gold_affine_case *c)
{
    return (c->n + 7u) / 8;
}

static qfw_layout layout_of(const gold_affine_case *c)
{
    const qfw_layout layout = {c->outer, c->axis, c->inner, c->group, c->shared, 0};
    return layout;
}

/* A run into `out` and `mask`, both cleared before. */
static qfw_status run(const gold_affine_case *c, int op, int code, int rule, qfw_affine_data data)
{
    const qfw_affine affine = {layout_of(c), op,      c->real, code,          c->rounding,
                               rule,         c->qmin, c->qmax, key_of(c->key)};
    array scale;
    load(&scale, c->scale, c->scales, c->real == QFW_F64 ? 8 : 4);
    clear(&out);
    clear(&mask);
    data.scale = scale.bytes;
    data.zero_point = c->zero_point;
    data.out = out.bytes;
    return qfw_affine_run(kernels(), &affine, &data);
}

static void check_quantize(const gold_affine_case *c, int code, int rule, unsigned number)
{
    const qfw_affine_data data = {.x = source.bytes, .mask_out = mask.bytes};
    const qfw_status status = run(c, QFW_QUANTIZE, code, rule, data);
    const size_t size = narrow(&expected, c->quantize, c->n, code_types[code].width);
    report_check(status == QFW_OK && same(&out, expected.bytes, size), number, "quantize");
    report_check(same(&mask, c->rules[rule].mask, mask_size(c)), number, "quantize's mask");
}

static void check_fake_quantize(const gold_affine_case *c, int rule, unsigned number)
{
    const qfw_affine_data data = {.x = source.bytes, .mask_out = mask.bytes};
    const qfw_status status = run(c, QFW_FAKE_QUANTIZE, 0, rule, data);
    report_check(status == QFW_OK && same(&out, c->fake_quantize, c->n * real_size(c)), number,
                 "fake quantize");
    report_check(same(&mask, c->rules[rule].mask, mask_size(c)), number, "fake quantize's mask");
}

static void check_dequantize(const gold_affine_case *c, int code, unsigned number)
{
    narrow(&expected, c->codes, c->n, code_types[code].width);
    const qfw_affine_data data = {.x = expected.bytes};
    const qfw_status status = run(c, QFW_DEQUANTIZE, code, QFW_INCLUSIVE, data);
    report_check(status == QFW_OK && same(&out, c->dequantize, c->n * real_size(c)), number,
                 "dequantize");
}

static void check_backward(const gold_affine_case *c, int op, int rule, const void *dx,
                           unsigned number)
{
    const qfw_affine_data by_x = {.x = source.bytes, .dy = other.bytes},
                          by_mask = {.dy = other.bytes, .mask_in = c->rules[rule].mask};
    qfw_status status = run(c, op, 0, rule, by_x);
    report_check(status == QFW_OK && same(&out, dx, c->n * real_size(c)), number, "backward");
    status = run(c, op, 0, rule, by_mask);
    report_check(status == QFW_OK && same(&out, dx, c->n * real_size(c)), number,
                 "backward by the mask");
}

static void check_dequantize_backward(const gold_affine_case *c, unsigned number)
{
    const qfw_affine_data data = {.dy = other.bytes};
    const qfw_status status = run(c, QFW_DEQUANTIZE_BACKWARD, 0, QFW_INCLUSIVE, data);
    report_check(status == QFW_OK && same(&out, c->dequantize_backward, c->n * real_size(c)),
                 number, "dequantize backward");
}

static void check_params(const gold_affine_case *c, int symmetric, unsigned number)
{
    const qfw_layout layout = layout_of(c);
    clear(&out);
    clear(&expected);
    const qfw_status status = qfw_affine_params(kernels(), &layout, c->real, c->params_bits,
                                                symmetric, source.bytes, out.bytes, expected.i32);
    const bool ok =
        status == QFW_OK &&
        same(&out, c->params[symmetric].scale, c->scales * (c->real == QFW_F64 ? 8u : 4u)) &&
        same(&expected, c->params[symmetric].zero_point, c->scales * sizeof(int32_t));
    report_check(ok, number, symmetric != 0 ? "symmetric params" : "asymmetric params");
}

static void check_rule(const gold_affine_case *c, int rule, unsigned number)
{
    for (int code = 0; code < CODE_TYPES; code++) {
        if (holds(code, c)) {
            check_quantize(c, code, rule, number);
        }
    }
    check_fake_quantize(c, rule, number);
    check_backward(c, QFW_QUANTIZE_BACKWARD, rule, c->rules[rule].quantize_backward, number);
    check_backward(c, QFW_FAKE_QUANTIZE_BACKWARD, rule, c->rules[rule].fake_quantize_backward,
                   number);
}

static void check_affine(const gold_affine_case *c, unsigned number)
{
    load(&source, c->x, c->n, real_size(c));
    load(&other, c->dy, c->n, real_size(c));
    for (int rule = 0; rule < GOLD_RULES; rule++) {
        check_rule(c, rule, number);
        check_params(c, rule, number);
    }
    for (int code = 0; code < CODE_TYPES; code++) {
        if (holds(code, c)) {
            check_dequantize(c, code, number);
        }
    }
    check_dequantize_backward(c, number);
}

/* ---- suites -----------------------------------------------------------------------------------*/

#define SUITE(name, check)                                   \
    do {                                                     \
        report_suite(#name);                                 \
        for (unsigned i = 0; i < gold_##name##_count; i++) { \
            check(&gold_##name[i], i);                       \
        }                                                    \
        report_suite_end(gold_##name##_count);               \
    } while (0)

int main(void)
{
    SUITE(draws, check_draws);
    SUITE(packing, check_packing);
    SUITE(requant, check_convert);
    SUITE(quantize, check_convert);
    SUITE(affine, check_affine);
    report_exit();
    return 1;
}

/* The records of a plan as the core reads them: those of qfw.h or, where it serves one plan whose numbers
 * are small, narrow ones by the same names (docs/format.md, section 12). */
#ifndef QFW_ENGINE_NARROW_H
#define QFW_ENGINE_NARROW_H

#include "base/config.h"
#include "base/fixed.h"
#include "include/qfw.h"

#if QFW_NARROW_PLAN

typedef struct {
    uint32_t own_crc, magic;
    uint16_t version, header_bytes;
    uint32_t plan_bytes, crc; /* crc: the wide plan's */
    uint32_t arena_bytes, const_bytes, batch, seed;
    float lr;
    uint32_t micro_batches;
    uint16_t tensors, ops, params; /* params: words */
    uint16_t first[5], count[5];
    uint16_t input, labels, output, loss;
    uint16_t tensor_bytes;
} qfw_narrow_header;

/* Bits fill the last byte from the lowest up, as compilers for little-endian machines have them. stream: of
 * an accumulator, which has none, the offset of absmax. each, of short ones: the group is 1, else the axis. */
typedef struct {
    uint8_t kind, bits, container, pow2, space, role, rows;
    unsigned shared : 1, range : 2, rounding : 2, each : 1;
#if !QFW_SHORT_TENSORS
    uint16_t outer;
#endif
    uint16_t axis, inner;
#if !QFW_SHORT_TENSORS
    uint16_t group;
#endif
    uint16_t codes, scale;
    uint32_t stream;
} qfw_narrow_tensor;

#if QFW_SHORT_TENSORS
#define QFW_OUTER_OF(plan) ((void)(plan), 1u)
#define QFW_GROUP_OF(plan) ((plan)->each != 0 ? 1u : (plan)->axis)
#else
#define QFW_OUTER_OF(plan) ((plan)->outer)
#define QFW_GROUP_OF(plan) ((plan)->group)
#endif

/* param: the first of its words; tensor: 255 for none. */
typedef struct {
    uint8_t kernel, flags;
    uint16_t param;
    uint8_t tensor[QFW_PLACES];
} qfw_op_record;

/* And the operation as others are: of a call. */
typedef struct {
    uint16_t kernel, flags;
    const uint32_t *param;
} qfw_narrow_op;

typedef uint8_t qfw_tensor_id;
enum { QFW_NO_ID = UINT8_MAX };

QFW_STATIC_ASSERT(sizeof(qfw_narrow_header) == 80, narrow_header_is_80_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_narrow_tensor) == (QFW_SHORT_TENSORS ? 20 : 24), narrow_tensor_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_op_record) == (4 + QFW_PLACES + 1) / 2 * 2, narrow_op_is_even);

#define qfw_plan_header qfw_narrow_header
#define qfw_plan_tensor qfw_narrow_tensor
#define qfw_plan_op qfw_narrow_op

/* No range is fixed, no tensor Asym. */
#define QFW_LIMIT(plan) ((void)(plan), 0.0f)
#define QFW_ZERO_POINT_AT(plan) ((void)(plan), 0u)
#define QFW_ABSMAX_AT(plan) ((plan)->stream)

#else

typedef qfw_plan_op qfw_op_record;
typedef uint16_t qfw_tensor_id;
enum { QFW_NO_ID = QFW_NO_TENSOR };

QFW_STATIC_ASSERT(sizeof(qfw_plan_header) == 128, header_is_128_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_plan_tensor) == 52, tensor_is_52_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_plan_op) == 80, op_is_80_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_plan_window) == 40, window_is_40_bytes);

#define QFW_OUTER_OF(plan) ((plan)->outer)
#define QFW_GROUP_OF(plan) ((plan)->group)
#define QFW_LIMIT(plan) ((plan)->limit)
#define QFW_ZERO_POINT_AT(plan) ((plan)->zero_point)
#define QFW_ABSMAX_AT(plan) ((plan)->absmax)

#endif

/* The tensors behind a header, and the operations behind those. */
static inline const qfw_plan_tensor *qfw_tensors_of(const qfw_plan_header *h)
{
    return (const void *)(h + 1);
}

#if QFW_NARROW_PLAN
static inline const uint32_t *qfw_params_of(const qfw_plan_header *h)
{
    return (const void *)(qfw_tensors_of(h) + h->tensors);
}

static inline const qfw_op_record *qfw_records_of(const qfw_plan_header *h)
{
    return (const void *)(qfw_params_of(h) + h->params);
}
#else
static inline const qfw_op_record *qfw_records_of(const qfw_plan_header *h)
{
    return (const void *)(qfw_tensors_of(h) + h->tensors);
}
#endif

#endif

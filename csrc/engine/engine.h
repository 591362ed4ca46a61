/* Plan bytes at work: operands bound to memory, operations called on them. */
#ifndef QFW_ENGINE_ENGINE_H
#define QFW_ENGINE_ENGINE_H

#include "base/fixed.h"
#include "include/qfw.h"
#include "kernels/kernels.h"

QFW_STATIC_ASSERT(sizeof(qfw_plan_header) == 128, header_is_128_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_plan_tensor) == 64, tensor_is_64_bytes);
QFW_STATIC_ASSERT(sizeof(qfw_plan_op) == 80, op_is_80_bytes);

/* Enough for any network of this size of machine, and few enough to check pairs. */
enum { QFW_MAX_TENSORS = 4096, QFW_MAX_OPS = 4096, QFW_OP_COUNT = 13, QFW_MAX_ELEMENTS = 1 << 30 };

/* A tensor of the plan over the rows of a step. Pointers are NULL while a plan is checked. */
typedef struct {
    const qfw_plan_tensor *plan; /* NULL: not there */
    qfw_tensor t;
    int64_t n;      /* elements */
    int64_t row;    /* elements of a row; n without rows */
    int64_t scales; /* 0 for Float32 */
    uint32_t *absmax;
    qfw_counter *counter; /* NULL: nothing is counted */
} qfw_operand;

/* An operation with its operands. */
typedef struct {
    const qfw_kernels *kernels;
    const qfw_plan_op *op;
    qfw_operand at[QFW_OP_TENSORS];
    uint32_t rows, batch, seed;
    qfw_progress progress;
} qfw_call;

typedef qfw_status qfw_op_fn(const qfw_call *call);

/* What must hold of operands beyond their formats; the words say what does not, NULL: all does. */
typedef const char *qfw_rule_fn(const qfw_call *call);

struct qfw_ops {
    qfw_op_fn *run[QFW_OP_COUNT];
};

#define QFW_OP(number, name, p0, p1, p2, p3, p4, p5, p6, p7) \
    extern qfw_op_fn qfw_op_##name;                          \
    extern qfw_rule_fn qfw_rule_##name;
#include "kernels/kernels.def"

/* The rule of operation `kernel`, NULL if there is no such operation. */
qfw_rule_fn *qfw_rule_of(uint32_t kernel);

/* Magic, version, sizes and CRC: that these bytes are a plan, whole and unchanged. */
qfw_status qfw_check_bytes(const void *plan, size_t bytes);

/* Sizes of a tensor over `rows` rows; its pointers stay NULL. QFW_E_SIZE if there are too many. */
qfw_status qfw_measure(const qfw_plan_tensor *plan, uint32_t rows, qfw_operand *operand);

/* Bytes of its codes. */
uint64_t qfw_codes_bytes(const qfw_operand *operand);

/* The format class of a tensor: one of QFW_AS_..., 0 for none. */
uint32_t qfw_class_of(const qfw_plan_tensor *plan);

/* The generator's key for this tensor in this step. */
static inline qfw_key qfw_key_of(const qfw_call *call, const qfw_operand *operand)
{
    qfw_key key;
    qfw_make_key(call->seed, call->progress.step, operand->plan->stream, &key);
    return key;
}

static inline bool qfw_has(const qfw_call *call, int place)
{
    return call->at[place].plan != NULL;
}

/* Whether each row has scales of its own. */
static inline bool qfw_by_rows(const qfw_operand *x)
{
    return x->plan->kind != QFW_FLOAT32 && x->plan->rows == QFW_ROWS_OUTER && x->plan->shared == 0;
}

static inline float qfw_param_f32(const qfw_plan_op *op, int i)
{
    return qfw_from_bits_f32(op->param[i]);
}

/* ---- engine/encode.c ---- */

/* Encodes src into dst at its plan's range and rounding; dst's codes[0] is element `first` of its
 * tensor. */
qfw_status qfw_encode_part(const qfw_call *call, const qfw_operand *src, const qfw_operand *dst,
                           uint64_t first);

/* Rows first .. first + rows of `whole`, a matrix of rows of `row` elements, as a tensor. */
qfw_tensor qfw_rows_of(const qfw_operand *whole, int64_t row, int64_t first, int64_t rows);

/* Whether a part of `rows` rows can be encoded by itself. */
bool qfw_has_rows_of(const qfw_operand *whole, int64_t row, int64_t rows);

/* Zeroes an error (floats or accumulators) where the wire's code is not > 0, or not inside. */
void qfw_apply_mask(const qfw_operand *error, const qfw_operand *wire, bool inside);

/* ---- engine/product.c ---- */

/* gemm in chunks of the sum, brought back by one rounded shift. */
void qfw_gemm_chunks(const qfw_kernels *kernels, const qfw_gemm *gemm, uint32_t chunk,
                     uint32_t shift, int32_t *out);

/* What is wrong with chunk and shift for sums of k products of a and b (NULL: of a alone). */
const char *qfw_headroom_fault(const qfw_operand *a, const qfw_operand *b, int64_t k, bool bias,
                               uint32_t chunk, uint32_t shift);

/* ---- engine/update.c ---- */

/* What is wrong with the coefficients of an update, the state or the scratch. */
const char *qfw_update_fault(const qfw_call *call, const qfw_operand *param,
                             const qfw_operand *state, const qfw_operand *flags);

/* Moves elements first .. first + n - 1 of the parameter (and state) by the gradient g, whose
 * element 0 belongs to `first`; `last`: the tensor ends here, scales may change. */
qfw_status qfw_move_range(const qfw_call *call, const qfw_operand *param, const qfw_operand *state,
                          const qfw_tensor *g, int64_t first, int64_t n, uint8_t *flags, bool last);

#endif

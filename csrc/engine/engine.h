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
enum { QFW_MAX_TENSORS = 4096, QFW_MAX_OPS = 4096, QFW_OP_COUNT = 38, QFW_MAX_ELEMENTS = 1 << 30 };

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
    uint32_t rows, batch, seed; /* seed: this micro-batch's */
    uint32_t step_rows, micro_batches;
    qfw_progress progress;
    bool infer; /* nothing is learnt from what is seen */
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

/* QFW_E_SCALE or QFW_E_ZERO_POINT if one of its scales or zero points is none. */
qfw_status qfw_check_scales(const qfw_operand *operand);

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

/* Whether an operation adds to the gradient at place 0: in a step's micro-batches after the first.
 */
static inline bool qfw_adds(const qfw_call *call)
{
    return call->progress.micro != 0 && call->at[0].plan->role == QFW_GRADIENT;
}

/* Whether it ever does. */
static inline bool qfw_may_add(const qfw_call *call)
{
    return call->micro_batches > 1 && call->at[0].plan->role == QFW_GRADIENT;
}

/* Whether each row has scales of its own. */
static inline bool qfw_by_rows(const qfw_operand *x)
{
    return x->plan->kind != QFW_FLOAT32 && x->plan->rows == QFW_ROWS_OUTER && x->plan->shared == 0;
}

/* The rounding of the parameter that an update moves. */
static inline uint32_t qfw_rounding_of(const qfw_plan_op *op)
{
    return op->flags >> 3 & 3u;
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

/* The scale of a fixed range, and zero points of 0. */
void qfw_fix_scales(const qfw_operand *dst);

/* Rows first .. first + rows of `whole`, a matrix of rows of `row` elements, as a tensor. */
qfw_tensor qfw_rows_of(const qfw_operand *whole, int64_t row, int64_t first, int64_t rows);

/* Whether a part of `rows` rows can be encoded by itself. */
bool qfw_has_rows_of(const qfw_operand *whole, int64_t row, int64_t rows);

/* Whether the same elements share a scale, whatever the rows of a step. */
bool qfw_same_sharing(const qfw_plan_tensor *a, const qfw_plan_tensor *b);

/* The absmax of each scale of an accumulator, anew; nothing for what is none. */
void qfw_find_absmax(const qfw_operand *x);

/* Multiplies an error (floats or accumulators) by `slope`, 0 or normal, where the wire's code is not
 * > 0, or not inside. */
void qfw_apply_mask(const qfw_operand *error, const qfw_operand *wire, bool inside, float slope);

/* ---- engine/loss.c ---- */

/* A loss is the mean over the rows of its micro-batch: the error's share in the step is rows /
 * step_rows, for accumulators a factor of the scale. */
void qfw_take_share(const qfw_call *call, const qfw_operand *error);

/* ---- engine/accumulate.c ---- */

/* Whether adding to this gradient needs a float for each of its scales. */
static inline bool qfw_joins(const qfw_operand *gradient)
{
    return gradient->plan->kind != QFW_FLOAT32 && gradient->plan->range == QFW_DYNAMIC;
}

/* Adds accumulators of one scale, as many as `part` has elements, to what stands in `part`, whose
 * codes[0] is element `first` of its gradient. joint: a float for each scale of part where
 * qfw_joins. The accumulators are overwritten. */
qfw_status qfw_add_part(const qfw_call *call, const qfw_operand *acc, const qfw_operand *part,
                        uint64_t first, float *joint);

/* ---- engine/product.c ---- */

/* What is wrong with accumulators, rows x columns, that have a scale for each row, each column. */
const char *qfw_acc_fault(const qfw_operand *acc, int64_t rows, int64_t columns, bool by_row,
                          bool by_column);

/* Whether a matrix of rows x columns has a scale for each row. */
bool qfw_has_row_scales(const qfw_operand *x, int64_t rows, int64_t columns);

/* Whether Sym codes that the caller may have written are those of their format. */
bool qfw_codes_in_range(const qfw_operand *x);

/* Seeds and shifts of n columns whose sigmas stand at `sigma`, which the shifts then lift. */
void qfw_seed_columns(const qfw_operand *bias, float *sigma, int64_t n, int32_t *seed,
                      uint8_t *shift);

/* A sum as an int32: half away, by a shift that makes it fit. */
static inline int32_t qfw_brought_back(int64_t sum, uint32_t shift)
{
    const int64_t half = shift != 0 ? INT64_C(1) << (shift - 1) : 0;
    const int64_t size = ((sum < 0 ? -sum : sum) + half) >> shift;
    return (int32_t)(sum < 0 ? -size : size);
}

/* gemm in chunks of the sum, brought back by one rounded shift. */
void qfw_gemm_chunks(const qfw_kernels *kernels, const qfw_gemm *gemm, uint32_t chunk,
                     uint32_t shift, int32_t *out);

/* What is wrong with chunk and shift for sums of k products of a and b (NULL: of a alone). */
const char *qfw_headroom_fault(const qfw_operand *a, const qfw_operand *b, int64_t k, bool bias,
                               uint32_t chunk, uint32_t shift);

/* ---- engine/hindsight.c ---- */

/* Whether a tensor can be a gain. */
bool qfw_is_gain(const qfw_operand *x);

/* Every scale of dst: the smallest that reaches s_in * gain. QFW_E_SCALE without a gain. */
qfw_status qfw_hindsight_scales(const qfw_operand *dst, const qfw_operand *gain, float s_in);

/* The largest of accumulators, by their absmax. */
qfw_num qfw_largest_sum(const qfw_operand *sums);

/* The next gain is at least what the largest value asks for; none in inference. */
void qfw_hindsight_ask(const qfw_call *call, const qfw_operand *gain, qfw_num most, float s_in);

/* ---- engine/update.c ---- */

/* Of every operation that moves a parameter: param[12] is what lr is multiplied by, 0 for 1. */
enum { QFW_LR_PARAM = 12 };

/* Whether the params whose bits are set are floats, each 0 or positive and normal. */
bool qfw_are_factors(const qfw_plan_op *op, uint32_t params);

/* A place for the factor of all gradients, held to 0 .. 1: one number, or not there, which is 1. */
bool qfw_is_clip(const qfw_operand *x);
float qfw_clip_of(const qfw_operand *x);

/* The learning rate of this operation. */
float qfw_rate_of(const qfw_call *call);

/* What is wrong with the coefficients of an update, the state or the scratch. */
const char *qfw_update_fault(const qfw_call *call, const qfw_operand *param,
                             const qfw_operand *state, const qfw_operand *flags);

/* Moves elements first .. first + n - 1 of the parameter (and state) by clip times the gradient g,
 * whose element 0 belongs to `first`; `last`: the tensor ends here, scales may change. */
qfw_status qfw_move_range(const qfw_call *call, const qfw_operand *param, const qfw_operand *state,
                          const qfw_tensor *g, float clip, int64_t first, int64_t n, uint8_t *flags,
                          bool last);

/* ---- engine/adamw.c ---- */

/* What a step of AdamW moves; `flags` has a byte for each scale of the three. */
typedef struct {
    const qfw_operand *param, *average, *square, *flags;
} qfw_moments;

/* As qfw_update_fault and qfw_move_range, with two moments for the state. */
const char *qfw_adamw_fault(const qfw_call *call, const qfw_moments *of);
void qfw_adamw_range(const qfw_call *call, const qfw_moments *of, const qfw_tensor *g, float clip,
                     int64_t first, int64_t n, bool last);

#endif

/* Plan bytes at work: operands bound to memory, operations called on them. */
#ifndef QFW_ENGINE_ENGINE_H
#define QFW_ENGINE_ENGINE_H

#include "base/fixed.h"
#include "base/layout.h"
#include "base/random.h"
#include "engine/narrow.h"
#include "include/qfw.h"
#include "kernels/kernels.h"

/* The bytes of a qfw_plan_window, whose sizes are below 2^31. */
typedef struct {
    int32_t in_h, in_w, out_h, out_w;
    uint16_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    uint16_t groups, reserved[3];
} qfw_window;

QFW_STATIC_ASSERT(sizeof(qfw_window) == 40, as_in_the_plan);

/* Enough for any network of this size of machine, and few enough to check pairs. */
enum { QFW_MAX_TENSORS = 4096, QFW_MAX_OPS = 4096, QFW_OP_COUNT = 66 };

/* 32 bytes an element are still a size, so that few products of sizes need care. */
enum { QFW_MAX_ELEMENTS = sizeof(ptrdiff_t) > 4 ? 1 << 30 : 1 << 26 };

/* A tensor of the plan over the rows of a step. Pointers are NULL while a plan is checked. */
typedef struct {
    const qfw_plan_tensor *plan; /* NULL: not there */
    qfw_tensor t;
    ptrdiff_t n;      /* elements */
    ptrdiff_t row;    /* elements of a row; n without rows */
    ptrdiff_t scales; /* 0 for Float32 */
    uint32_t *absmax;
#if QFW_HAS_COUNTERS
    qfw_counter *counter; /* NULL: nothing is counted */
#endif
} qfw_operand;

#if QFW_HAS_COUNTERS
#define QFW_COUNTER(x) ((x)->counter)
#define QFW_SET_COUNTER(x, of) ((x)->counter = (of))
#else
#define QFW_COUNTER(x) ((void)(x), (qfw_counter *)NULL)
#define QFW_SET_COUNTER(x, of) ((void)(x), (void)(of))
#endif

/* An operation with its operands. */
typedef struct {
    const qfw_kernels *kernels;
    const qfw_plan_op *op;
#if QFW_NARROW_PLAN
    qfw_plan_op own; /* what op points to */
#endif
    const qfw_window *window; /* NULL: none */
    qfw_operand at[QFW_PLACES];
    int32_t rows, batch, step_rows, micro_batches;
    uint32_t seed; /* this micro-batch's */
    qfw_progress progress;
    bool infer; /* nothing is learnt from what is seen */
#if !QFW_DIRECT
    ptrdiff_t first; /* rows of the step before those of this call: it may be a part */
    bool summed;     /* a gradient's sums stand in its tile, which has room for all */
#endif
} qfw_call;

#if QFW_DIRECT
#define QFW_ROWS_BEFORE(call) 0
#define QFW_IS_SUMMED(call) false
#else
#define QFW_ROWS_BEFORE(call) ((call)->first)
#define QFW_IS_SUMMED(call) ((call)->summed)
#endif

typedef qfw_status qfw_op_fn(const qfw_call *call);

/* What must hold of operands beyond their formats; the words say what does not, NULL: all does. */
typedef const char *qfw_rule_fn(const qfw_call *call);

/* The operations that a net can run: QFW_OP_LINE(name) for each. Firmware lists those of its plan,
 * and the linker drops the others. */
typedef struct {
    qfw_op_fn *run;
    uint8_t kernel;
    uint8_t reads; /* bit k: place k is read */
} qfw_op_line;

struct qfw_ops {
    const qfw_op_line *lines;
    size_t count;
};

#define QFW_OP_LINE(name) {qfw_op_##name, QFW_NUMBER_##name, QFW_READS_##name}

#define QFW_READS(place, k) (((place) & QFW_IS_READ) != 0 ? 1 << (k) : 0)
#define QFW_OP(number, name, p0, p1, p2, p3, p4, p5, p6, p7)                            \
    extern qfw_op_fn qfw_op_##name;                                                     \
    extern qfw_rule_fn qfw_rule_##name;                                                 \
    enum {                                                                              \
        QFW_NUMBER_##name = (number),                                                   \
        QFW_READS_##name = QFW_READS(p0, 0) | QFW_READS(p1, 1) | QFW_READS(p2, 2) |     \
            QFW_READS(p3, 3) | QFW_READS(p4, 4) | QFW_READS(p5, 5) | QFW_READS(p6, 6) | \
            QFW_READS(p7, 7)                                                            \
    };
#include "kernels/kernels.def"

/* The rule of operation `kernel`, NULL if there is no such operation. */
qfw_rule_fn *qfw_rule_of(uint32_t kernel);

/* The window of an operation, whose number plus 1 is its param[QFW_WINDOW_PARAM]; NULL if that is 0
 * or no window. */
enum { QFW_WINDOW_PARAM = 13 };
const qfw_window *qfw_window_of(const qfw_plan_header *header, const qfw_plan_op *op);

/* Magic, version, sizes and CRC: that these bytes are a plan, whole and unchanged. */
qfw_status qfw_check_bytes(const void *plan, size_t bytes);

/* Sizes of a tensor over `rows` rows; its pointers stay NULL. QFW_E_SIZE if there are too many. */
QFW_COLD qfw_status qfw_measure(const qfw_plan_tensor *plan, uint32_t rows, qfw_operand *operand);

/* An operand that is not there. */
static inline void qfw_leave_out(qfw_operand *x)
{
    x->plan = NULL;
    x->t.codes = NULL;
    x->n = x->row = x->scales = 0;
}

/* QFW_E_SCALE or QFW_E_ZERO_POINT if one of its scales or zero points is none. */
qfw_status qfw_check_scales(const qfw_operand *operand);

/* Bytes of its codes. */
uint64_t qfw_codes_bytes(const qfw_operand *operand);

/* The format class of a tensor: one of QFW_AS_..., 0 for none. */
uint32_t qfw_class_of(const qfw_plan_tensor *plan);

/* The generator's key for this tensor in this step. Made in place on the desktop: what waits for two words
 * in memory waits long. */
static inline qfw_key qfw_key_of(const qfw_call *call, const qfw_operand *operand)
{
    qfw_key key;
    if (!QFW_DIRECT) {
        return qfw_key_for(call->seed, call->progress.step, operand->plan->stream);
    }
    qfw_make_key(call->seed, call->progress.step, operand->plan->stream, &key);
    return key;
}

/* Rows of the call. */
static inline int32_t qfw_rows_in(const qfw_call *call)
{
    return QFW_HAS_BATCH ? call->rows : 1;
}

static inline bool qfw_has_window(const qfw_call *call)
{
    return QFW_HAS_WINDOWS && call->window != NULL;
}

static inline bool qfw_has(const qfw_call *call, int place)
{
    return place < QFW_PLACES && call->at[place].plan != NULL;
}

/* Whether an operation adds to the gradient at place 0: in a step's micro-batches after the first.
 */
static inline bool qfw_adds(const qfw_call *call)
{
    return QFW_HAS_MICRO && call->progress.micro != 0 && call->at[0].plan->role == QFW_GRADIENT;
}

/* Whether it ever does. */
static inline bool qfw_may_add(const qfw_call *call)
{
    return QFW_HAS_MICRO && call->micro_batches > 1 && call->at[0].plan->role == QFW_GRADIENT;
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

/* A parameter that is a size. */
static inline ptrdiff_t qfw_param_size(const qfw_plan_op *op, int i)
{
    const uint64_t size = op->param[i], most = PTRDIFF_MAX;
    return (ptrdiff_t)(size < most ? size : most);
}

/* Matrix rows in a row of the step, 0 standing for 1. */
static inline ptrdiff_t qfw_positions_of(const qfw_plan_op *op, int i)
{
    return op->param[i] != 0 ? qfw_param_size(op, i) : 1;
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

/* At `scale`, those of a fixed range, and zero points of 0. */
void qfw_fix_scales(const qfw_operand *dst, float *scale);

/* Rows first .. first + rows of `whole`, a matrix of rows of `row` elements, as a tensor. */
qfw_tensor qfw_rows_of(const qfw_operand *whole, ptrdiff_t row, ptrdiff_t first, ptrdiff_t rows);

/* Whether a part of `rows` rows can be encoded by itself. */
bool qfw_has_rows_of(const qfw_operand *whole, ptrdiff_t row, ptrdiff_t rows);

/* Whether the same elements share a scale, whatever the rows of a step. */
bool qfw_same_sharing(const qfw_plan_tensor *a, const qfw_plan_tensor *b);

/* Whether only the slots and the rounding differ: then scales carry over, and so do codes. */
bool qfw_same_codes(const qfw_operand *a, const qfw_operand *b);

/* ---- engine/pointwise.c ---- */

/* The absmax of each scale of an accumulator, anew; nothing for what is none. */
void qfw_find_absmax(const qfw_kernels *kernels, const qfw_operand *x);

/* Where a wire's code lets an error through: above 0 and, unless top is 0, below that; or inside its
 * range. Elsewhere the error is multiplied by slope, 0 or normal. */
typedef struct {
    bool inside;
    float slope, top;
} qfw_gate;

/* Errors are floats or accumulators. */
void qfw_apply_mask(const qfw_kernels *kernels, const qfw_operand *error, const qfw_operand *wire,
                    const qfw_gate *gate);

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

/* ---- engine/outer.c ---- */

/* Whether an outer product of x, rows of `row` elements, can be encoded into this gradient a row at
 * a time: int8 to int8, each row at a scale of its own that is found. */
bool qfw_takes_outer(const qfw_operand *x, const qfw_operand *grad, ptrdiff_t row);

/* Encodes e x^T, whose scale is sigma; e has a code for each row, x one for each column. */
void qfw_encode_outer(const qfw_call *call, const qfw_operand *e, const qfw_operand *x, float sigma,
                      const qfw_operand *grad);

/* ---- engine/gradient.c ---- */

#if !QFW_DIRECT
/* Sums of rows first .. first + n - 1 of the gradient's matrix: integers go to the beginning of the tile
 * at place 3, place `patches` having room for patches of an image; floats where they belong. */
void qfw_gradient_sums(const qfw_call *call, int patches, ptrdiff_t first, ptrdiff_t n);
#endif

/* ---- engine/product.c ---- */

/* What is wrong with accumulators, rows x columns, that have a scale for each row, each column. */
const char *qfw_acc_fault(const qfw_operand *acc, ptrdiff_t rows, ptrdiff_t columns, bool by_row,
                          bool by_column);

/* Whether a matrix of rows x columns has a scale for each row. */
bool qfw_has_row_scales(const qfw_operand *x, ptrdiff_t rows, ptrdiff_t columns);

/* Whether Sym codes that the caller may have written are those of their format. */
bool qfw_codes_in_range(const qfw_operand *x);

/* Seeds and shifts of n columns whose sigmas stand at `sigma`, which the shifts then lift. */
void qfw_seed_columns(const qfw_kernels *kernels, const qfw_operand *bias, float *sigma,
                      ptrdiff_t n, int32_t *seed, uint8_t *shift);

/* A sum as an int32: half away, by a shift that makes it fit. */
static inline int32_t qfw_brought_back(int64_t sum, uint32_t shift)
{
    const int64_t half = shift != 0 ? INT64_C(1) << (shift - 1) : 0;
    const int64_t size = ((sum < 0 ? -sum : sum) + half) >> shift;
    return (int32_t)(sum < 0 ? -size : size);
}

/* gemm in chunks of the sum, brought back by one rounded shift. */
void qfw_gemm_chunks(const qfw_kernels *kernels, const qfw_gemm *gemm, uint32_t chunk,
                     uint32_t shift, int32_t *out, size_t out_row);

/* Sums over `terms` lines of `out` products e * x, of the columns first .. first + n - 1, brought back
 * by one rounded shift. */
void qfw_line_products(const qfw_operand *e, const qfw_operand *x, ptrdiff_t out, ptrdiff_t terms,
                       ptrdiff_t first, ptrdiff_t n, uint32_t shift, int32_t *sum);

/* What is wrong with chunk and shift for sums of k products of codes of a_bits bits and b (NULL: of
 * the codes alone). */
const char *qfw_headroom_fault(int32_t a_bits, const qfw_operand *b, ptrdiff_t k, bool bias,
                               uint32_t chunk, uint32_t shift);

/* ---- engine/join.c ---- */

/* What is wrong with two tensors of which codes go from one to the other as they are: formats that
 * differ, in slots without whole bytes, or with several scales. */
const char *qfw_alike_fault(const qfw_operand *a, const qfw_operand *b);

/* ---- engine/hindsight.c ---- */

/* Whether a tensor can be a gain. */
bool qfw_is_gain(const qfw_operand *x);

/* At `scale`, every scale of dst: the smallest that reaches s_in * gain. QFW_E_SCALE without a gain. */
qfw_status qfw_hindsight_scales(const qfw_operand *dst, float *scale, const qfw_operand *gain,
                                float s_in);

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
                          const qfw_tensor *g, float clip, ptrdiff_t first, ptrdiff_t n,
                          uint8_t *flags, bool last);

/* ---- engine/adamw.c ---- */

/* What a step of AdamW moves; `flags` has a byte for each scale of the three. */
typedef struct {
    const qfw_operand *param, *average, *square, *flags;
} qfw_moments;

/* As qfw_update_fault and qfw_move_range, with two moments for the state. */
const char *qfw_adamw_fault(const qfw_call *call, const qfw_moments *of);
void qfw_adamw_range(const qfw_call *call, const qfw_moments *of, const qfw_tensor *g, float clip,
                     ptrdiff_t first, ptrdiff_t n, bool last);

#endif

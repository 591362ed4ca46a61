/* Trusts no byte of a plan: docs/format.md, "What is checked". */
#include "engine/check.h"

/* ---- the header ---- */

static bool sections_fit(const qfw_plan_header *h)
{
    uint32_t at = 0;
    for (int s = QFW_FORWARD; s <= QFW_UPDATE; s++) {
        if (h->first[s] != at || h->count[s] > h->ops - at) {
            return false;
        }
        at += h->count[s];
    }
    /* Inference is the forward with its output, or operations of its own after all others. */
    const uint32_t shared = h->count[QFW_FORWARD] + h->count[QFW_OUTPUT];
    if (h->first[QFW_INFER] == 0 && h->count[QFW_INFER] == shared && shared > 0) {
        return at == h->ops;
    }
    return h->first[QFW_INFER] == at && h->count[QFW_INFER] == h->ops - at && at < h->ops;
}

static qfw_status check_header(const qfw_plan_view *v)
{
    const qfw_plan_header *h = v->header;
    if (!sections_fit(h)) {
        return qfw_refuse(v, -1, -1, "sections");
    }
    if (h->batch < 1 || h->batch > 1u << 24) {
        return qfw_refuse(v, -1, -1, "batch");
    }
    const uint32_t lr = qfw_bits_f32(h->lr);
    if (lr > QFW_F32_MAX || (lr != 0 && lr < QFW_F32_MIN_NORMAL)) {
        return qfw_refuse(v, -1, -1, "lr");
    }
    const uint16_t ids[4] = {h->input, h->labels, h->output, h->loss};
    for (int i = 0; i < 4; i++) {
        if (ids[i] >= h->tensors && (ids[i] != QFW_NO_TENSOR || i == 0 || i == 2)) {
            return qfw_refuse(v, -1, -1, "input, labels, output, loss");
        }
    }
    if (h->micro_batches > 1u << 24 || (uint64_t)h->batch * h->micro_batches > 1u << 24) {
        return qfw_refuse(v, -1, -1, "micro_batches");
    }
    for (int i = 0; i < 7; i++) {
        if (h->reserved[i] != 0) {
            return qfw_refuse(v, -1, -1, "reserved");
        }
    }
    const bool aligned = h->arena_bytes % QFW_ALIGN == 0 && h->const_bytes % QFW_ALIGN == 0;
    if (!aligned || h->arena_bytes < QFW_NET_BYTES || h->arena_bytes > INT32_MAX ||
        h->const_bytes > INT32_MAX) {
        return qfw_refuse(v, -1, -1, "arena_bytes, const_bytes");
    }
    return QFW_OK;
}

/* ---- windows ---- */

/* What a window meets along an axis, from its first tap at its first position to its last. */
static uint64_t reach_of(uint32_t out, uint32_t stride, uint32_t kernel, uint32_t dilation)
{
    return (uint64_t)(out - 1) * stride + (uint64_t)(kernel - 1) * dilation + 1;
}

static bool is_window(const qfw_plan_window *w)
{
    const uint64_t in = (uint64_t)w->in_h * w->in_w, out = (uint64_t)w->out_h * w->out_w;
    const uint64_t taps = (uint64_t)w->kernel_h * w->kernel_w, most = QFW_MAX_ELEMENTS;
    const bool some = in != 0 && out != 0 && taps != 0 && w->stride_h != 0 && w->stride_w != 0 &&
                      w->dilation_h != 0 && w->dilation_w != 0 && w->groups != 0;
    return some && in <= most && out <= most && taps <= most &&
           reach_of(w->out_h, w->stride_h, w->kernel_h, w->dilation_h) <= most &&
           reach_of(w->out_w, w->stride_w, w->kernel_w, w->dilation_w) <= most &&
           (w->reserved[0] | w->reserved[1] | w->reserved[2]) == 0;
}

static qfw_status check_windows(const qfw_plan_view *v)
{
    const qfw_plan_window *windows = (const void *)(v->ops + v->header->ops);
    for (uint32_t i = 0; i < v->header->windows; i++) {
        if (!is_window(&windows[i])) {
            return qfw_refuse(v, -1, -1, "windows");
        }
    }
    return QFW_OK;
}

/* ---- operations ---- */

/* The flags and the parameters that an operation knows; all others are 0. */
typedef struct {
    uint16_t flags, params; /* bit i: param[i] */
} op_fields;

static const op_fields known[QFW_OP_COUNT] = {
    [1] = {0, 0x001},      /* convert */
    [2] = {0, 0x003},      /* widen */
    [3] = {7, 0x200F},     /* product_s32 */
    [4] = {1, 0x2009},     /* product_f32 */
    [5] = {0, 0x003},      /* relu */
    [6] = {0, 0x007},      /* mask */
    [9] = {0x24, 0x2E00},  /* gradient_s32 */
    [10] = {0x20, 0x2800}, /* gradient_f32 */
    [11] = {0x19, 0x11FF}, /* update */
    [12] = {0x3D, 0x3FFF}, /* gradient_update_s32 */
    [13] = {1, 0x01B},     /* normalize_s32 */
    [14] = {1, 0x01A},     /* normalize_f32 */
    [15] = {0, 0x01F},     /* normalize_back_s32 */
    [16] = {0, 0x01A},     /* normalize_back_f32 */
    [17] = {0, 0x008},     /* columns_s32 */
    [22] = {0, 0x001},     /* softmax_s16 */
    [23] = {0, 0x001},     /* softmax_f32 */
    [24] = {0, 0x001},     /* softmax_back_s32 */
    [25] = {0, 0x001},     /* softmax_back_f32 */
    [26] = {1, 0x007},     /* dropout */
    [27] = {0, 0x007},     /* weighted_cross_entropy_s16 */
    [28] = {0, 0x007},     /* weighted_cross_entropy_f32 */
    [31] = {0, 0x001},     /* clip_factor */
    [32] = {0x18, 0x10FF}, /* adamw */
    [33] = {0x3C, 0x3EFF}, /* gradient_adamw_s32 */
    [46] = {0, 0x001},     /* join_s32 */
    [47] = {0, 0x001},     /* join_f32 */
    [48] = {0, 0x003},     /* transpose */
    [49] = {0, 0x003},     /* part */
    [50] = {0, 0x2000},    /* max_pool */
    [51] = {0, 0x2000},    /* max_pool_back */
    [52] = {3, 0x2003},    /* avg_pool_s32 */
    [53] = {3, 0x2001},    /* avg_pool_f32 */
    [54] = {3, 0x2003},    /* avg_pool_back_s32 */
    [55] = {3, 0x2001},    /* avg_pool_back_f32 */
    [57] = {3, 0x06B},     /* batch_norm_s32 */
    [58] = {3, 0x06A},     /* batch_norm_f32 */
    [59] = {0, 0x00F},     /* batch_norm_back_s32 */
    [60] = {0, 0x00A},     /* batch_norm_back_f32 */
    [61] = {0, 0x002},     /* fold_norm */
    [62] = {1, 0x008},     /* fold_s32 */
    [63] = {1, 0x008},     /* fold_f32 */
    [64] = {5, 0x201F},    /* product_pool_s32 */
    [65] = {2, 0x201F},    /* product_fold_s32 */
};

static bool has_unknown_fields(const qfw_plan_op *op)
{
    const op_fields *f = &known[op->kernel];
    uint32_t others = op->flags & ~(uint32_t)f->flags;
    for (int i = 0; i < QFW_OP_PARAMS; i++) {
        others |= (f->params >> i & 1u) == 0 ? op->param[i] : 0;
    }
    return others != 0;
}

static bool writes(uint16_t place)
{
    return (place & QFW_IS_WRITTEN) != 0;
}

/* Binds the operands of operation i by size, and checks each against its place. */
static qfw_status check_places(const qfw_plan_view *v, uint32_t i, qfw_call *call,
                               uint16_t places[QFW_OP_TENSORS])
{
    const qfw_plan_op *op = &v->ops[i];
    memset(call, 0, sizeof *call);
    call->op = op;
    call->rows = call->step_rows = call->batch = (int32_t)v->header->batch;
    call->micro_batches = (int32_t)v->header->micro_batches;
    if (qfw_op_name(op->kernel, places) == NULL) {
        return qfw_refuse(v, (int32_t)i, -1, "kernel");
    }
    if (has_unknown_fields(op)) {
        return qfw_refuse(v, (int32_t)i, -1, "flags, param");
    }
    const bool windowed = (known[op->kernel].params >> QFW_WINDOW_PARAM & 1) != 0;
    call->window = windowed ? qfw_window_of(v->header, op) : NULL;
    if (windowed && call->window == NULL && op->param[QFW_WINDOW_PARAM] != 0) {
        return qfw_refuse(v, (int32_t)i, -1, "window");
    }
    if (op->kernel == QFW_NUMBER_product_pool_s32 &&
        (call->window == NULL || op->param[4] == 0 || op->param[4] > v->header->windows)) {
        return qfw_refuse(v, (int32_t)i, -1, "window");
    }
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        const uint16_t id = op->tensor[k];
        if (id == QFW_NO_TENSOR) {
            if (places[k] != 0 && (places[k] & QFW_MAY_LACK) == 0) {
                return qfw_refuse(v, (int32_t)i, -1, "an operand is missing");
            }
            continue;
        }
        if (places[k] == 0 || id >= v->header->tensors) {
            return qfw_refuse(v, (int32_t)i, -1, "an operand too many");
        }
        const qfw_plan_tensor *p = &v->tensors[id];
        if ((places[k] & qfw_class_of(p)) == 0) {
            return qfw_refuse(v, (int32_t)i, id, "the operation does not take this format");
        }
        const bool input = p->space == QFW_CONST || (p->space == QFW_IO && p->codes != 2);
        const bool output = p->space == QFW_IO && p->codes == 2;
        if ((writes(places[k]) && input) || ((places[k] & QFW_IS_READ) != 0 && output)) {
            return qfw_refuse(v, (int32_t)i, id, "space");
        }
        QFW_TRY(qfw_measure(p, v->header->batch, &call->at[k]));
    }
    return QFW_OK;
}

/* Operations whose result may be their source. */
static bool in_place(uint32_t kernel)
{
    enum { RELU = 5, DROPOUT = 26, FOLD_S32 = 62, FOLD_F32 = 63 };
    return kernel == RELU || kernel == DROPOUT || kernel == FOLD_S32 || kernel == FOLD_F32;
}

/* Whether the result of a pool lies where its image does, and may: without padding and with no more
 * positions than pixels, each is written when all that is read later lies behind it. Codes may lie
 * where the sums do that they are made of: code i is written when sum i has been read. */
static bool takes_over(const qfw_call *call)
{
    enum { CONVERT = 1, MAX_POOL = 50 };
    const qfw_window *w = call->window;
    const qfw_plan_tensor *y = call->at[0].plan, *x = call->at[1].plan;
    const bool pool = call->op->kernel == MAX_POOL && w != NULL && (w->pad_h | w->pad_w) == 0 &&
                      w->out_h <= w->in_h && w->out_w <= w->in_w && y->container == x->container;
    const bool codes = call->op->kernel == CONVERT && x->bits == 32 && y->kind == QFW_SYM &&
                       call->at[0].scales == 1 && (y->container == 8 || y->container == 16);
    return (pool || codes) && y->codes == x->codes && qfw_over_codes(&call->at[0], &call->at[1]);
}

/* What an operation writes must not touch what else it uses. */
static qfw_status check_apart(const qfw_plan_view *v, uint32_t i, const qfw_call *call,
                              const uint16_t places[QFW_OP_TENSORS])
{
    for (int w = 0; w < QFW_OP_TENSORS; w++) {
        for (int k = 0; k < QFW_OP_TENSORS; k++) {
            if (w == k || !qfw_has(call, w) || !qfw_has(call, k) || !writes(places[w])) {
                continue;
            }
            const bool same = call->op->tensor[w] == call->op->tensor[k];
            if (w == 0 && k == 1 && !same && takes_over(call)) {
                continue;
            }
            if (same ? in_place(call->op->kernel) : !qfw_overlap(&call->at[w], &call->at[k])) {
                continue;
            }
            return qfw_refuse(v, (int32_t)i, call->op->tensor[w], "overlaps another operand");
        }
    }
    return QFW_OK;
}

/* Where the chain of operations that `i` can rely on begins. */
static uint32_t chain_begin(const qfw_plan_header *h, uint32_t i)
{
    if (i >= h->first[QFW_UPDATE]) {
        const bool update = i < h->first[QFW_UPDATE] + h->count[QFW_UPDATE];
        return update ? h->first[QFW_UPDATE] : h->first[QFW_INFER];
    }
    return 0;
}

/* Whether what operation `by` leaves at a place is there for operation i: not if it is scratch, and
 * not if backward would need the output section, which a step leaves out. */
static bool is_left(const qfw_plan_view *v, uint32_t by, int place, uint32_t i)
{
    const qfw_plan_header *h = v->header;
    const bool output = by >= h->first[QFW_OUTPUT] && by < h->first[QFW_BACKWARD];
    const uint8_t kind = v->tensors[v->ops[by].tensor[place]].kind;
    const bool result = place == 0 || kind == QFW_FLOAT32 || kind == QFW_PICK; /* a loss, picks */
    return result && !(output && i >= h->first[QFW_BACKWARD]);
}

/* Looks back from operation i for what last wrote tensor `id`: it must be that very tensor, and
 * nothing that overlaps it may have come in between. */
static bool is_fresh(const qfw_plan_view *v, uint32_t i, uint16_t id)
{
    const qfw_plan_tensor *p = &v->tensors[id];
    qfw_operand x, y;
    if (qfw_lasts(p) || p->space == QFW_IO) {
        return true;
    }
    if (qfw_measure(p, v->header->batch, &x) != QFW_OK) {
        return false;
    }
    const uint32_t begin = chain_begin(v->header, i);
    for (uint32_t next = i; next > begin; next--) {
        const uint32_t by = next - 1;
        const qfw_plan_op *op = &v->ops[by];
        uint16_t places[QFW_OP_TENSORS];
        (void)qfw_op_name(op->kernel, places);
        for (int k = 0; k < QFW_OP_TENSORS; k++) {
            if (op->tensor[k] == QFW_NO_TENSOR || !writes(places[k])) {
                continue;
            }
            if (op->tensor[k] == id) {
                return is_left(v, by, k, i);
            }
            if (qfw_measure(&v->tensors[op->tensor[k]], v->header->batch, &y) != QFW_OK ||
                qfw_overlap(&x, &y)) {
                return false;
            }
        }
    }
    return false;
}

/* Whether operation i moves a parameter before a step's last micro-batch. */
static bool moves_early(const qfw_plan_view *v, uint32_t i)
{
    enum { UPDATE = 11, GRADIENT_UPDATE = 12, ADAMW = 32, GRADIENT_ADAMW = 33 };
    const uint32_t kernel = v->ops[i].kernel;
    const bool moves = kernel == UPDATE || kernel == GRADIENT_UPDATE || kernel == ADAMW ||
                       kernel == GRADIENT_ADAMW;
    return moves && v->header->micro_batches > 1 && i < v->header->first[QFW_UPDATE];
}

static qfw_status check_op(const qfw_plan_view *v, uint32_t i)
{
    qfw_call call;
    uint16_t places[QFW_OP_TENSORS];
    QFW_TRY(check_places(v, i, &call, places));
    QFW_TRY(check_apart(v, i, &call, places));
    const char *broken = moves_early(v, i) ? "micro_batches" : qfw_rule_of(call.op->kernel)(&call);
    if (broken != NULL) {
        return qfw_refuse(v, (int32_t)i, call.op->tensor[0], broken);
    }
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        const bool reads = qfw_has(&call, k) && (places[k] & QFW_IS_READ) != 0;
        if (reads && !is_fresh(v, i, call.op->tensor[k])) {
            return qfw_refuse(v, (int32_t)i, call.op->tensor[k], "is read before it is written");
        }
    }
    return QFW_OK;
}

/* ---- the whole ---- */

/* The input and output are the caller's buffers 0 and 2; labels or targets buffer 1; the loss one
 * float. */
static qfw_status check_ends(const qfw_plan_view *v)
{
    const qfw_plan_header *h = v->header;
    const uint16_t ids[3] = {h->input, h->labels, h->output};
    for (uint32_t i = 0; i < 3; i++) {
        const qfw_plan_tensor *p = ids[i] == QFW_NO_TENSOR ? NULL : &v->tensors[ids[i]];
        const bool fits = p == NULL || p->kind == QFW_FLOAT32 || (i == 1 && p->kind == QFW_INDEX);
        if (!fits || (p != NULL && (p->space != QFW_IO || p->codes != i))) {
            return qfw_refuse(v, -1, ids[i], "input, labels, output");
        }
    }
    for (uint32_t i = 0; i < h->tensors; i++) { /* no other tensor has a say on these buffers */
        const qfw_plan_tensor *p = &v->tensors[i];
        if (p->space == QFW_IO && ids[p->codes] != i) {
            return qfw_refuse(v, -1, (int32_t)i, "io");
        }
    }
    if (h->loss != QFW_NO_TENSOR) {
        const qfw_plan_tensor *p = &v->tensors[h->loss];
        qfw_operand x;
        if (p->space != QFW_ARENA || p->kind != QFW_FLOAT32 ||
            qfw_measure(p, h->batch, &x) != QFW_OK || x.n != 1) {
            return qfw_refuse(v, -1, h->loss, "loss");
        }
    }
    return QFW_OK;
}

qfw_status qfw_check(const void *plan, size_t bytes, qfw_fault *fault)
{
    if (fault == NULL) {
        return QFW_E_NULL;
    }
    fault->op = fault->tensor = -1;
    fault->field = "";
    QFW_TRY(qfw_check_bytes(plan, bytes));
    qfw_plan_view v = {plan, NULL, NULL, fault};
    v.tensors = (const void *)(v.header + 1);
    v.ops = (const void *)(v.tensors + v.header->tensors);
    QFW_TRY(check_header(&v));
    QFW_TRY(check_windows(&v));
    QFW_TRY(qfw_check_tensors(&v));
    QFW_TRY(check_ends(&v));
    for (uint32_t i = 0; i < v.header->ops; i++) {
        QFW_TRY(check_op(&v, i));
    }
    return QFW_OK;
}

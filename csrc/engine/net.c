/* A plan is walked. */
#include "engine/net.h"
#include "base/random.h"
#include "base/round.h"
#include "engine/measure.h"
#include "kernels/codes.h"

/* ---- walk ---- */

/* What operands are bound to. */
typedef struct {
    const qfw_plan_tensor *tensors;
    uint8_t *arena, *constants;
    qfw_counter *counters;
    const qfw_io *io;
} memory;

static memory memory_of(const qfw_net *net, const qfw_io *io)
{
    const void *arena = net, *constants = net->image.constants;
    const memory of = {net->tensors, (uint8_t *)(uintptr_t)arena, (uint8_t *)(uintptr_t)constants,
                       net->counters, io};
    return of;
}

QFW_INLINE qfw_status bind(const memory *of, uint32_t id, uint32_t rows, qfw_operand *x)
{
    const qfw_plan_tensor *p = of->tensors + id;
    QFW_TRY(qfw_measured(p, rows, x));
    QFW_SET_COUNTER(x, of->counters == NULL ? NULL : of->counters + id);
    const bool sums = p->kind == QFW_SYM && p->bits == 32;
    if (p->space == QFW_IO) {
        x->t.scale = NULL;
        x->t.zero_point = NULL;
        x->absmax = NULL;
        const void *in = p->codes == 0 ? of->io->x : of->io->y;
        x->t.codes = p->codes == 2 ? of->io->out : (void *)(uintptr_t)in;
        return x->t.codes == NULL || (uintptr_t)x->t.codes % 4 != 0 ? QFW_E_NULL : QFW_OK;
    }
    uint8_t *base = p->space == QFW_ARENA ? of->arena : of->constants;
    x->t.codes = base + p->codes;
    x->t.scale = (float *)(void *)(base + p->scale);
    x->t.zero_point =
        qfw_is_asym(p->kind) ? (uint16_t *)(void *)(base + QFW_ZERO_POINT_AT(p)) : NULL;
    /* In a small core none but those of sums is looked at. */
    const uintptr_t absmax = (uintptr_t)base + QFW_ABSMAX_AT(p);
    x->absmax = QFW_IS_SMALL || sums ? (uint32_t *)absmax : NULL;
    return QFW_OK;
}

/* What a walk is over: rows, and which micro-batch of the step they are. */
typedef struct {
    uint32_t rows, step_rows, micro;
    bool infer; /* nothing is learnt from it */
} extent;

/* From place `kernel` down, where a list of all has it or a few before, and round to its end. */
static const qfw_op_line *line_of(const qfw_ops *ops, uint16_t kernel)
{
    const qfw_op_line *end = ops->lines + ops->count;
    for (const qfw_op_line *line = ops->lines; QFW_IS_SMALL && line < end; line++) {
        if (line->kernel == kernel) {
            return line;
        }
    }
    if (QFW_IS_SMALL) { /* from the first on */
        return NULL;
    }
    size_t at = kernel < ops->count ? kernel : ops->count;
    for (size_t i = 0; i < ops->count; i++) {
        at = (at > 0 ? at : ops->count) - 1;
        if (ops->lines[at].kernel == kernel) {
            return &ops->lines[at];
        }
    }
    return NULL;
}

/* What is the same for every operation of a walk. */
static void set_out(const qfw_net *net, const extent *over, qfw_call *call)
{
    const qfw_plan_header *h = net->header;
    call->kernels = net->image.kernels;
    call->window = NULL;
    if (!QFW_IS_SMALL) { /* else there is one, and nobody asks */
        call->rows = (int32_t)over->rows;
        call->step_rows = (int32_t)over->step_rows;
        call->batch = (int32_t)h->batch;
        call->micro_batches = (int32_t)micro_batches(h);
    }
    call->progress = net->progress;
    call->seed = h->seed; /* the first micro-batch's */
#if !QFW_DIRECT
    call->first = 0;
    call->summed = false;
#endif
}

/* Operands at `count` places; bit k of `reads`: place k is read. Apart from a walk, so that what it takes on
 * the stack is free again. */
QFW_NOINLINE QFW_SMALL static qfw_status bind_places(const qfw_net *net, const qfw_io *io,
                                                     uint32_t rows, const qfw_tensor_id *id,
                                                     size_t count, uint32_t reads, qfw_operand *x)
{
    const memory of = memory_of(net, io);
    for (const qfw_tensor_id *end = id + count; id < end; id++, x++, reads >>= 1) {
        if (*id == QFW_NO_ID) {
            qfw_leave_out(x);
            continue;
        }
        QFW_TRY(bind(&of, *id, rows, x));
        if (QFW_ANY_PLAN && (reads & 1) != 0) {
            QFW_TRY(qfw_check_scales(x));
        }
    }
    return QFW_OK;
}

QFW_INLINE_ALONE qfw_status run_op(const qfw_net *net, const qfw_io *io, const extent *over,
                                   uint32_t i, qfw_call *call)
{
    const qfw_plan_header *h = net->header;
    const qfw_op_record *op = &net->ops[i];
    set_op(net, i, call);
    if (QFW_HAS_MICRO) { /* An update belongs to the step, not to its last micro-batch. */
        call->progress.micro = i < h->first[QFW_UPDATE] ? over->micro : 0;
        call->seed = qfw_micro_seed(h->seed, call->progress.micro);
    }
    if (!QFW_IS_SMALL || QFW_HAS_HINDSIGHT) { /* else nothing asks */
        call->infer = over->infer || (h->first[QFW_INFER] != 0 && i >= h->first[QFW_INFER]);
    }
    if (QFW_HAS_WINDOWS) {
        call->window = qfw_window_of(h, call->op);
    }
    const qfw_op_line *line = line_of(net->image.ops, op->kernel);
    if (line == NULL) {
        return QFW_E_PLAN;
    }
    const uint32_t rows = QFW_HAS_BATCH ? over->rows : 1;
    QFW_TRY(bind_places(net, io, rows, op->tensor, QFW_PLACES, line->reads, call->at));
    return line->run(call);
}

/* What an operation of a plan that was checked wrote are scales. So a core of one plan looks at those that
 * last once, after it was opened or went on: then the caller may have written them. */
QFW_COLD static qfw_status look_at_scales(qfw_net *net)
{
    const qfw_io none = {NULL, NULL, NULL, 0};
    for (uint32_t i = 0; i < net->header->tensors; i++) {
        const qfw_tensor_id id = (qfw_tensor_id)i;
        qfw_operand x;
        if (net->tensors[i].role <= QFW_STATE && net->tensors[i].space != QFW_IO) {
            QFW_TRY(bind_places(net, &none, 1, &id, 1, 0, &x));
            QFW_TRY(qfw_check_scales(&x));
        }
    }
    net->has_scales = 1;
    return QFW_OK;
}

/* Whether operations may begin at `first` now. */
static bool may_begin(const qfw_net *net, uint32_t first, uint32_t rows)
{
    const qfw_plan_header *h = net->header;
    if (first == h->first[QFW_FORWARD] || first == h->first[QFW_INFER]) {
        return true;
    }
    if (first == h->first[QFW_UPDATE] && net->has_gradients != 0) {
        return true;
    }
    const bool skips_output = first == h->first[QFW_BACKWARD] && net->next == h->first[QFW_OUTPUT];
    return (net->next == first || skips_output) && (!QFW_HAS_BATCH || rows == net->rows);
}

/* After operations first .. end - 1: what a section that ended there means for the step. */
static void ran(qfw_net *net, uint32_t first, uint32_t end)
{
    const qfw_plan_header *h = net->header;
    if (first < h->first[QFW_UPDATE] && end >= h->first[QFW_UPDATE]) {
        net->has_gradients = 1;
        net->progress.micro = (net->progress.micro + 1) % micro_batches(h);
    }
    /* The step ends with the update's last operation or, where it has none, with its own walk. */
    const uint32_t last = h->first[QFW_UPDATE] + h->count[QFW_UPDATE];
    const bool own = first == last && end == last && net->has_gradients != 0;
    if (h->count[QFW_UPDATE] != 0 ? first < last && end >= last : own) {
        end_step(net);
    }
}

QFW_SMALL static qfw_status walk(qfw_net *net, const qfw_io *io, const extent *over, uint32_t first,
                                 uint32_t count, uint32_t *done)
{
    const qfw_plan_header *h = net->header;
    if (over->rows < 1 || over->rows > (QFW_HAS_BATCH ? h->batch : 1)) {
        return QFW_E_ROWS;
    }
    if (first > h->ops || count > h->ops - first) {
        return QFW_E_SIZE;
    }
    if (!may_begin(net, first, over->rows)) {
        return QFW_E_ORDER;
    }
    net->next = NOWHERE; /* a failure leaves it so */
    if (!QFW_ANY_PLAN && net->has_scales == 0) {
        QFW_TRY(look_at_scales(net));
    }
    qfw_call call;
    set_out(net, over, &call);
    uint32_t i = first;
    qfw_status status = QFW_OK;
    for (; i < first + count && status == QFW_OK; i++) {
        status = run_op(net, io, over, i, &call);
    }
    *done = i - first - (status != QFW_OK ? 1 : 0);
    QFW_TRY(status);
    net->next = first + count;
    net->rows = over->rows;
    ran(net, first, first + count);
    return QFW_OK;
}

/* The next micro-batch of the step. */
QFW_INLINE_ALONE qfw_status walk_next(qfw_net *net, const qfw_io *io, uint32_t rows, uint32_t first,
                                      uint32_t count, uint32_t *done)
{
    const uint64_t k = micro_batches(net->header);
    const uint64_t step_rows = io->step_rows == 0 ? rows * k : io->step_rows;
    const uint32_t batch = QFW_HAS_BATCH ? net->header->batch : 1;
    if (step_rows < rows || step_rows > batch * k) {
        return QFW_E_ROWS;
    }
    const uint32_t micro = QFW_HAS_MICRO ? net->progress.micro : 0;
    const extent over = {rows, (uint32_t)step_rows, micro, false};
    return walk(net, io, &over, first, count, done);
}

qfw_status qfw_walk(qfw_net *net, const qfw_io *io, uint32_t rows, uint32_t first, uint32_t count,
                    uint32_t *done)
{
    if (net == NULL || io == NULL || done == NULL) {
        return QFW_E_NULL;
    }
    *done = 0;
    return walk_next(net, io, rows, first, count, done);
}

qfw_status qfw_run_section(qfw_net *net, qfw_section section, const qfw_io *io, uint32_t rows)
{
    uint32_t done = 0;
    if (net == NULL || io == NULL) {
        return QFW_E_NULL;
    }
    if ((uint32_t)section >= QFW_INFER) {
        return QFW_E_KIND;
    }
    const qfw_plan_header *h = net->header;
    return walk_next(net, io, rows, h->first[section], h->count[section], &done);
}

/* Forward and backward of a micro-batch, and its loss. */
static qfw_status learn(qfw_net *net, const qfw_io *io, uint32_t rows, float *loss)
{
    QFW_TRY(qfw_run_section(net, QFW_FORWARD, io, rows));
    if (net->header->loss == QFW_NO_TENSOR) {
        return QFW_E_ORDER;
    }
    QFW_TRY(qfw_run_section(net, QFW_BACKWARD, io, rows));
    QFW_COPY_FEW(loss, (const uint8_t *)net + net->tensors[net->header->loss].codes, sizeof *loss);
    return QFW_OK;
}

/* `rows` rows further on in a buffer of the caller's. */
static const void *after(const qfw_net *net, uint16_t id, const void *buffer, uint32_t rows)
{
    qfw_operand x;
    if (!QFW_HAS_MICRO || buffer == NULL || id == QFW_NO_TENSOR ||
        qfw_measure(&net->tensors[id], 1, &x) != QFW_OK) {
        return buffer;
    }
    return (const uint8_t *)buffer + rows * qfw_codes_bytes(&x);
}

qfw_status qfw_step(qfw_net *net, const void *x, const void *y, uint32_t rows, float *loss)
{
    if (net == NULL || loss == NULL) {
        return QFW_E_NULL;
    }
    const qfw_plan_header *h = net->header;
    const uint32_t batch = QFW_HAS_BATCH ? h->batch : 1;
    if (rows < 1 || rows > (uint64_t)batch * micro_batches(h)) {
        return QFW_E_ROWS;
    }
    net->progress.micro = 0;
    if (!QFW_HAS_MICRO) {
        const qfw_io io = {x, y, NULL, rows};
        QFW_TRY(learn(net, &io, rows, loss));
        return qfw_run_section(net, QFW_UPDATE, &io, rows);
    }
    float sum = 0.0f;
    uint32_t n = rows < h->batch ? rows : h->batch;
    for (uint32_t at = 0; at < rows; at += n) {
        n = rows - at < h->batch ? rows - at : h->batch;
        const qfw_io io = {after(net, h->input, x, at), after(net, h->labels, y, at), NULL, rows};
        QFW_TRY(learn(net, &io, n, loss));
        sum += *loss * (float)n; /* n is exact: at most 2^24 */
    }
    if (QFW_HAS_MICRO && rows > h->batch) {
        *loss = qfw_div_f32(sum, (float)rows);
    }
    const qfw_io none = {NULL, NULL, NULL, rows};
    return qfw_run_section(net, QFW_UPDATE, &none, n);
}

/* Elements of a row of a tensor of the caller's; that they are a size is looked at when it is bound. */
static size_t row_of(const qfw_net *net, uint16_t id)
{
    const qfw_plan_tensor *p = &net->tensors[id];
    return (size_t)QFW_OUTER_OF(p) * p->axis * p->inner;
}

qfw_status qfw_infer(qfw_net *net, const void *x, uint32_t rows, float *out)
{
    if (net == NULL || x == NULL || out == NULL) {
        return QFW_E_NULL;
    }
    const qfw_plan_header *h = net->header;
    const size_t in = row_of(net, h->input), to = row_of(net, h->output);
    const extent alone = {1, 1, 0, true};
    qfw_status status = QFW_OK;
    for (uint32_t i = 0; i < rows && status == QFW_OK; i++) {
        const qfw_io io = {(const float *)x + i * in, NULL, out + i * to, 1};
        uint32_t done = 0;
        status = walk(net, &io, &alone, h->first[QFW_INFER], h->count[QFW_INFER], &done);
    }
    net->next = NOWHERE; /* wires of a forward are gone */
    return status;
}

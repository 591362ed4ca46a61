/* A step whose operands were found once: of a net that stays where it is they lie at the same places at
 * every step of as many rows. They are what a walk with other operations sees, which write down what
 * they are called with and do nothing. */
#include "host/bound.h"
#include "base/random.h"
#include "engine/net.h"

enum { ROOM = 64 };

typedef struct {
    qfw_op_fn *run;
    qfw_call call;
} bound_op;

struct qfw_bound {
    qfw_kernels table; /* first: the kernels that a call has while it is written down */
    const qfw_kernels *kernels;
    const qfw_plan_header *header;
    const qfw_plan_op *first;
    qfw_op_line lines[QFW_OP_COUNT];
    qfw_op_fn *run[QFW_OP_COUNT]; /* by number */
    qfw_net *net;
    uint32_t rows;
    bound_op *ops;
    void ***x, ***y; /* where the caller's buffers stand in the calls */
    size_t x_count, y_count;
    const qfw_operand **read; /* tensors that last, and are read before the step writes them */
    size_t read_count;
};

/* Where things lie, from the beginning on. */
typedef struct {
    size_t ops, x, y, read, end;
} places;

static size_t rounded(size_t bytes)
{
    return (bytes + ROOM - 1) / ROOM * ROOM;
}

static places places_of(const qfw_plan_header *h)
{
    const size_t pointers = rounded((size_t)h->ops * QFW_PLACES * sizeof(void *));
    places p = {rounded(sizeof(qfw_bound)), 0, 0, 0, 0};
    p.x = p.ops + rounded(h->ops * sizeof(bound_op));
    p.y = p.x + pointers;
    p.read = p.y + pointers;
    p.end = p.read + pointers;
    return p;
}

static qfw_status write_down(const qfw_call *call)
{
    qfw_bound *bound = (qfw_bound *)(uintptr_t)call->kernels;
    bound_op *op = &bound->ops[call->op - bound->first];
    op->run = bound->run[call->op->kernel];
    op->call = *call;
    op->call.kernels = bound->kernels;
    return QFW_OK;
}

/* What is written down of operation `op`; `state` has a byte for each tensor, not 0 if its scales need
 * no other look in this step. */
static void note(qfw_bound *bound, bound_op *op, uint8_t *state)
{
    uint16_t flags[QFW_OP_TENSORS];
    (void)qfw_op_name(op->call.op->kernel, flags);
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        qfw_operand *at = &op->call.at[k];
        if (!qfw_has(&op->call, k)) {
            continue;
        }
        const uint16_t id = op->call.op->tensor[k];
        if (at->plan->space == QFW_IO) {
            void ***list = at->plan->codes == 0 ? bound->x : bound->y;
            size_t *count = at->plan->codes == 0 ? &bound->x_count : &bound->y_count;
            list[(*count)++] = &at->t.codes;
        }
        if ((flags[k] & QFW_IS_READ) != 0 && at->plan->role <= QFW_STATE && state[id] == 0) {
            bound->read[bound->read_count++] = at;
        }
        state[id] = 1;
    }
}

static void prepare(qfw_bound *bound, const qfw_net *net, uint8_t *base)
{
    const places p = places_of(net->header);
    const qfw_ops *all = net->image.ops;
    bound->table = *net->image.kernels;
    bound->kernels = net->image.kernels;
    bound->header = net->header;
    bound->first = net->ops;
    bound->ops = (void *)(base + p.ops);
    bound->x = (void *)(base + p.x);
    bound->y = (void *)(base + p.y);
    bound->read = (void *)(base + p.read);
    for (size_t i = 0; i < all->count; i++) {
        const qfw_op_line line = {write_down, all->lines[i].kernel, 0};
        bound->lines[i] = line;
        bound->run[line.kernel] = all->lines[i].run;
    }
}

qfw_status qfw_host_bind(void *memory, size_t *bytes, qfw_net *net, uint32_t rows)
{
    if (bytes == NULL || net == NULL) {
        return QFW_E_NULL;
    }
    const size_t end = places_of(net->header).end;
    if (memory == NULL) {
        *bytes = end;
        return QFW_OK;
    }
    if (*bytes < end || (uintptr_t)memory % ROOM != 0) {
        return QFW_E_ARENA;
    }
    if (micro_batches(net->header) != 1 || rows > net->header->batch) {
        return QFW_E_ROWS;
    }
    qfw_bound *made = memory;
    uint8_t state[QFW_MAX_TENSORS] = {0};
    float loss;
    memset(memory, 0, end);
    prepare(made, net, memory);
    const qfw_net before = *net;
    const qfw_ops writing = {made->lines, before.image.ops->count};
    net->image.kernels = &made->table;
    net->image.ops = &writing;
    net->counters = NULL;
    const qfw_status status = qfw_step(net, memory, memory, rows, &loss);
    *net = before;
    QFW_TRY(status);
    for (uint32_t i = 0; i < made->header->ops; i++) {
        if (made->ops[i].run != NULL) {
            note(made, &made->ops[i], state);
        }
    }
    made->net = net;
    made->rows = rows;
    return QFW_OK;
}

bool qfw_bound_has(const qfw_bound *bound, const qfw_net *net, uint32_t rows)
{
    return bound->net == net && bound->rows == rows && net->counters == NULL;
}

static qfw_status run(const qfw_bound *bound, const qfw_net *net, qfw_section section)
{
    const uint32_t first = bound->header->first[section];
    for (uint32_t i = first; i < first + bound->header->count[section]; i++) {
        bound_op *op = &bound->ops[i];
        op->call.progress = net->progress;
        QFW_TRY(op->run(&op->call));
    }
    return QFW_OK;
}

static qfw_status feed(void ***list, size_t count, const void *buffer)
{
    for (size_t i = 0; i < count; i++) {
        *list[i] = (void *)(uintptr_t)buffer;
    }
    return count > 0 && (buffer == NULL || (uintptr_t)buffer % 4 != 0) ? QFW_E_NULL : QFW_OK;
}

qfw_status qfw_bound_step(const qfw_bound *bound, qfw_net *net, const void *x, const void *y,
                          float *loss)
{
    const qfw_plan_header *h = bound->header;
    const qfw_io io = {x, y, NULL, bound->rows};
    net->next = NOWHERE; /* a failure leaves it so */
    net->progress.micro = 0;
    QFW_TRY(feed(bound->x, bound->x_count, x));
    QFW_TRY(feed(bound->y, bound->y_count, y));
    for (size_t i = 0; i < bound->read_count; i++) {
        QFW_TRY(qfw_check_scales(bound->read[i]));
    }
    QFW_TRY(run(bound, net, QFW_FORWARD));
    QFW_TRY(run(bound, net, QFW_BACKWARD));
    memcpy(loss, (const uint8_t *)net + net->tensors[h->loss].codes, sizeof *loss);
    net->has_gradients = 1;
    net->rows = bound->rows;
    net->next = h->first[QFW_UPDATE];
    if (h->count[QFW_UPDATE] == 0) {
        return qfw_run_section(net, QFW_UPDATE, &io, bound->rows);
    }
    net->next = NOWHERE;
    QFW_TRY(run(bound, net, QFW_UPDATE));
    net->next = h->first[QFW_UPDATE] + h->count[QFW_UPDATE];
    end_step(net);
    return QFW_OK;
}

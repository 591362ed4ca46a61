/* Operations in parts: some rows of the step each, or some rows of a gradient. A part is a call of the
 * same operation on fewer rows, so that its bits are those of the whole:
 *
 *   - a row's results do not depend on other rows, once the scales that rows share are known; where an
 *     operation finds such a scale by looking at the rows themselves, it is not split;
 *   - stochastic rounding knows an element by its index, which counts the rows before (qfw_call.first);
 *   - the absmax of all rows is the largest of the parts';
 *   - a sum is made by one thread, in its order.
 *
 * Each part writes shared scales and absmaxes to results of its own, and each thread has scratch of its
 * own. Rows that a part writes stay in an arena of its own, where the next operation's part finds them:
 * cores that share no cache would pass them to and fro. An operation that is not split has them brought
 * together first. What is too little to be worth it is done by the caller alone. */
#include "host/split.h"

enum { ROOM = 64 }; /* results and scratch begin at multiples of a cache line */

/* ---- operands ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + ROOM - 1) / ROOM * ROOM;
}

static ptrdiff_t element_bits(const qfw_plan_tensor *p)
{
    const bool slots = p->kind == QFW_SYM || p->kind == QFW_ASYM;
    return p->kind == QFW_BYTES           ? 8
           : slots && p->container != 0   ? p->container
           : slots || p->kind == QFW_PICK ? p->bits
                                          : 32;
}

bool qfw_has_parts(const qfw_operand *x)
{
    const qfw_plan_tensor *p = x->plan;
    if (!qfw_has_rows(x)) {
        return true;
    }
    const bool outermost = p->rows == QFW_ROWS_OUTER || p->outer == 1;
    const bool scales = p->rows == QFW_ROWS_OUTER || x->scales <= 1;
    return outermost && scales && x->row * element_bits(p) % 8 == 0;
}

static ptrdiff_t row_bits(const qfw_operand *x)
{
    return x->row * element_bits(x->plan);
}

/* The codes of a tensor in the arena of a part, which is the net's own for the first. */
static uint8_t *own_codes_of(const qfw_host_pool *pool, uint32_t part, const qfw_operand *x)
{
    return part == 0 ? x->t.codes : pool->arenas + (part - 1) * pool->arena_bytes + x->plan->codes;
}

void qfw_take_rows(const qfw_job *j, uint32_t part, int k, qfw_operand *x)
{
    const qfw_operand whole = *x;
    const ptrdiff_t first = qfw_first_of(j, part), rows = qfw_first_of(j, part + 1) - first;
    if (!qfw_has_rows(x)) {
        return;
    }
    const ptrdiff_t scales = qfw_by_rows(x) ? first * (whole.scales / j->units) : 0;
    (void)qfw_measure(whole.plan, (uint32_t)rows, x); /* fewer rows than have been measured */
    x->t.codes = j->own[k] ? own_codes_of(j->pool, part, &whole)
                           : (uint8_t *)whole.t.codes + first * row_bits(&whole) / 8;
    x->t.scale = whole.t.scale != NULL ? whole.t.scale + scales : NULL;
    x->t.zero_point = whole.t.zero_point != NULL ? whole.t.zero_point + scales : NULL;
    x->absmax = whole.absmax != NULL ? whole.absmax + scales : NULL;
}

static uint32_t parts_of(const qfw_host_pool *pool, ptrdiff_t units)
{
    const ptrdiff_t most = (ptrdiff_t)QFW_THREAD_PARTS * pool->threads;
    return (uint32_t)(units < most ? units : most);
}

void qfw_bring_together(qfw_host_pool *pool, uint16_t tensor, const qfw_operand *x, ptrdiff_t rows)
{
    const ptrdiff_t parts = parts_of(pool, rows);
    if (pool->apart[tensor] != QFW_APART || !qfw_has_rows(x)) {
        return;
    }
    for (ptrdiff_t part = 1; part < parts; part++) {
        const ptrdiff_t first = rows * part / parts, end = rows * (part + 1) / parts;
        memcpy((uint8_t *)x->t.codes + first * row_bits(x) / 8,
               own_codes_of(pool, (uint32_t)part, x), (size_t)((end - first) * row_bits(x) / 8));
    }
    pool->apart[tensor] = QFW_BOTH;
}

/* ---- results and scratch ---- */

/* Memory from *at on. */
static void *taken(uint8_t **at, size_t bytes)
{
    void *found = *at;
    *at += rounded(bytes);
    return found;
}

static size_t results_of(const qfw_operand *x)
{
    const size_t n = (size_t)x->scales;
    return rounded(n * sizeof(float)) + rounded(n * sizeof(uint16_t)) +
           rounded(n * sizeof(uint32_t));
}

/* Scales of the part's own, with zero points and absmax where there are any: as they stand now, or
 * still to be found. */
static void own_scales(qfw_operand *x, bool found, uint8_t **at)
{
    const size_t n = (size_t)x->scales;
    float *scale = taken(at, n * sizeof *scale);
    uint16_t *zero = taken(at, n * sizeof *zero);
    uint32_t *absmax = taken(at, n * sizeof *absmax);
    if (found) {
        memcpy(scale, x->t.scale, n * sizeof *scale);
    }
    if (found && x->t.zero_point != NULL) {
        memcpy(zero, x->t.zero_point, n * sizeof *zero);
    }
    if (found && x->absmax != NULL) {
        memcpy(absmax, x->absmax, n * sizeof *absmax);
    }
    x->t.scale = scale;
    x->t.zero_point = x->t.zero_point != NULL ? zero : NULL;
    x->absmax = x->absmax != NULL ? absmax : NULL;
}

static void own_codes(qfw_operand *x, uint8_t **at)
{
    x->t.codes = taken(at, (size_t)qfw_codes_bytes(x));
    if (x->scales > 0) {
        own_scales(x, false, at);
    }
}

/* The scales that a part left, in the order in which own_scales took them. */
static void gather(const qfw_operand *whole, uint8_t **at, bool first)
{
    const size_t n = (size_t)whole->scales;
    const float *scale = taken(at, n * sizeof *scale);
    const uint16_t *zero = taken(at, n * sizeof *zero);
    const uint32_t *absmax = taken(at, n * sizeof *absmax);
    if (first) {
        memcpy(whole->t.scale, scale, n * sizeof *scale);
        if (whole->t.zero_point != NULL) {
            memcpy(whole->t.zero_point, zero, n * sizeof *zero);
        }
    }
    for (size_t i = 0; whole->absmax != NULL && i < n; i++) {
        const uint32_t known = first ? 0 : whole->absmax[i];
        whole->absmax[i] = absmax[i] > known ? absmax[i] : known;
    }
}

qfw_needs qfw_split_needs(const qfw_plan_header *header, const qfw_plan_op *op)
{
    const qfw_plan_tensor *tensors = (const void *)(header + 1);
    uint16_t places[QFW_OP_TENSORS];
    qfw_needs needs = {0, 0};
    if (qfw_op_name(op->kernel, places) == NULL) {
        return needs;
    }
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        qfw_operand x;
        if (op->tensor[k] >= header->tensors || !qfw_is_written(places, k) ||
            qfw_measure(&tensors[op->tensor[k]], header->batch, &x) != QFW_OK) {
            continue;
        }
        if (qfw_is_scratch(&x, k)) {
            needs.scratch += rounded((size_t)qfw_codes_bytes(&x)) + results_of(&x);
        } else if (qfw_shares_scales(&x)) {
            needs.results += results_of(&x);
        }
    }
    if (qfw_patches_place(op->kernel) != 0 &&
        (qfw_window_of(header, op) != NULL || op->tensor[2] == QFW_NO_TENSOR)) {
        needs.results += needs.scratch; /* sums of some rows, which are scratch of the whole */
    }
    return needs;
}

/* ---- what can be split ---- */

static bool overlap(const qfw_operand *a, const qfw_operand *b)
{
    const uint8_t *p = a->t.codes, *q = b->t.codes;
    return p < q + qfw_codes_bytes(b) && q < p + qfw_codes_bytes(a);
}

/* Whether an arena has the tensor's codes. */
static bool is_in_arena(const qfw_operand *x)
{
    return qfw_has_rows(x) && x->plan->space == QFW_ARENA;
}

/* Which rows parts have of their own: what they write, and what others like them wrote. */
static void find_own(qfw_job *j)
{
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        if (qfw_has(j->call, k) && is_in_arena(&j->call->at[k])) {
            const bool read = (j->places[k] & QFW_IS_READ) != 0;
            j->own[k] = !read || j->pool->apart[j->call->op->tensor[k]] != QFW_TOGETHER;
        }
    }
}

/* Whether no part writes what another reads. What a part has of its own may lie over one another as in
 * the whole; else tensors are apart, or row lies on row. */
static bool are_apart(const qfw_job *j)
{
    const qfw_call *call = j->call;
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        for (int i = 0; i < QFW_OP_TENSORS; i++) {
            const qfw_operand *to = &call->at[k], *from = &call->at[i];
            if (i == k || !qfw_has(call, k) || !qfw_has(call, i) || !qfw_is_written(j->places, k) ||
                (j->own[k] && j->own[i]) || !overlap(to, from)) {
                continue;
            }
            if (to->t.codes != from->t.codes || row_bits(to) != row_bits(from)) {
                return false;
            }
        }
    }
    return true;
}

/* Nothing is counted, and the pool has room. */
static bool fits(const qfw_job *j)
{
    size_t scratch = 0, results = 0;
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        const qfw_operand *x = &j->call->at[k];
        if (!qfw_has(j->call, k)) {
            continue;
        }
        if (QFW_COUNTER(x) != NULL) {
            return false;
        }
        if (qfw_is_written(j->places, k) && qfw_is_scratch(x, k)) {
            scratch += rounded((size_t)qfw_codes_bytes(x)) + results_of(x);
        } else if (qfw_is_written(j->places, k) && qfw_shares_scales(x)) {
            results += results_of(x);
        }
    }
    return scratch <= j->pool->scratch_bytes && results <= j->pool->result_bytes;
}

qfw_job qfw_job_of(const qfw_call *call, qfw_op_fn *run, ptrdiff_t units)
{
    qfw_host_pool *pool = qfw_pool_of(call);
    qfw_job j = {pool, call, run, units, parts_of(pool, units), {0}, {false}};
    (void)qfw_op_name(call->op->kernel, j.places);
    return j;
}

/* ---- parts ---- */

qfw_call qfw_own_call(const qfw_job *j, uint32_t part, uint32_t thread)
{
    qfw_call own = *j->call;
    uint8_t *results = j->pool->results + part * j->pool->result_bytes;
    const size_t others = thread > 0 ? thread - 1 : 0; /* the caller's is the plan's */
    uint8_t *scratch = j->pool->scratch + others * j->pool->scratch_bytes;
    own.kernels = j->pool->kernels;
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        qfw_operand *x = &own.at[k];
        if (!qfw_has(&own, k) || !qfw_is_written(j->places, k)) {
            continue;
        }
        if (qfw_is_scratch(x, k) && thread > 0) {
            own_codes(x, &scratch);
        } else if (qfw_shares_scales(x)) {
            const bool same = qfw_has(&own, 1) && x->t.scale == own.at[1].t.scale;
            own_scales(x, same || (j->places[k] & QFW_IS_READ) != 0, &results);
        }
    }
    return own;
}

ptrdiff_t qfw_first_of(const qfw_job *j, uint32_t part)
{
    return j->units * (ptrdiff_t)part / (ptrdiff_t)j->parts;
}

/* The same tensor may stand at two places, so what is written counts last. */
static void note_written(const qfw_call *call, const uint16_t *places, const bool *own)
{
    qfw_host_pool *pool = qfw_pool_of(call);
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        if (qfw_has(call, k) && qfw_is_written(places, k) && is_in_arena(&call->at[k])) {
            pool->apart[call->op->tensor[k]] = own != NULL && own[k] ? QFW_APART : QFW_TOGETHER;
        }
    }
}

static void bring_all_together(const qfw_call *call, const uint16_t *places)
{
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        if (qfw_has(call, k) && (places[k] & QFW_IS_READ) != 0 && is_in_arena(&call->at[k])) {
            qfw_bring_together(qfw_pool_of(call), call->op->tensor[k], &call->at[k], call->rows);
        }
    }
}

qfw_status qfw_alone(const qfw_call *call)
{
    uint16_t places[QFW_OP_TENSORS];
    (void)qfw_op_name(call->op->kernel, places);
    bring_all_together(call, places);
    note_written(call, places, NULL);
    return qfw_pool_of(call)->whole[call->op->kernel](call);
}

static void gather_all(const qfw_job *j)
{
    for (uint32_t part = 0; part < j->parts; part++) {
        uint8_t *results = j->pool->results + part * j->pool->result_bytes;
        for (int k = 0; k < QFW_OP_TENSORS; k++) {
            const qfw_operand *x = &j->call->at[k];
            if (qfw_has(j->call, k) && qfw_is_written(j->places, k) && qfw_shares_scales(x)) {
                gather(x, &results, part == 0);
            }
        }
    }
}

void qfw_note_written(const qfw_job *j)
{
    note_written(j->call, j->places, j->own);
}

qfw_status qfw_end_rows(const qfw_job *j)
{
    gather_all(j);
    qfw_note_written(j);
    return QFW_OK;
}

qfw_status qfw_split(qfw_job *j, qfw_part_fn *part, qfw_end_fn *end, bool together)
{
    if (together) {
        bring_all_together(j->call, j->places);
    } else {
        find_own(j);
    }
    if (!are_apart(j) || !fits(j) || !qfw_crew_enter(j->pool->crew)) {
        return qfw_alone(j->call);
    }
    j->pool->splits++;
    qfw_status status = qfw_crew_run(j->pool->crew, j->parts, part, j);
    status = status == QFW_OK ? end(j) : status;
    qfw_crew_leave(j->pool->crew);
    return status;
}

/* ---- the list ---- */

static qfw_status run_pooled(const qfw_call *call)
{
    qfw_op_fn *split = qfw_pool_of(call)->split[call->op->kernel];
    return split != NULL ? split(call) : qfw_alone(call);
}

void qfw_split_ops(qfw_host_pool *pool)
{
    for (size_t i = 0; i < pool->ops.count; i++) {
        pool->whole[pool->lines[i].kernel] = pool->lines[i].run;
        pool->lines[i].run = run_pooled;
    }
    for (size_t i = 0; i < qfw_row_split_count; i++) {
        pool->split[qfw_row_splits[i].kernel] = qfw_row_splits[i].run;
    }
    for (size_t i = 0; i < qfw_gradient_split_count; i++) {
        pool->split[qfw_gradient_splits[i].kernel] = qfw_gradient_splits[i].run;
    }
}

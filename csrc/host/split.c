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
 * own. What is too little to be worth it is done by the caller alone. */
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

void qfw_take_rows(qfw_operand *x, ptrdiff_t all, ptrdiff_t first, ptrdiff_t rows)
{
    const qfw_operand whole = *x;
    if (!qfw_has_rows(x)) {
        return;
    }
    const ptrdiff_t scales = qfw_by_rows(x) ? first * (whole.scales / all) : 0;
    (void)qfw_measure(whole.plan, (uint32_t)rows, x); /* fewer rows than have been measured */
    x->t.codes = (uint8_t *)whole.t.codes + first * whole.row * element_bits(whole.plan) / 8;
    x->t.scale = whole.t.scale != NULL ? whole.t.scale + scales : NULL;
    x->t.zero_point = whole.t.zero_point != NULL ? whole.t.zero_point + scales : NULL;
    x->absmax = whole.absmax != NULL ? whole.absmax + scales : NULL;
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

/* Whether place 0 lies over place 1. */
static bool lies_over(const qfw_plan_tensor *tensors, const uint16_t *at,
                      const qfw_plan_header *header)
{
    qfw_operand x[2];
    for (int k = 0; k < 2; k++) {
        if (at[k] >= header->tensors || tensors[at[k]].space != QFW_ARENA ||
            qfw_measure(&tensors[at[k]], header->batch, &x[k]) != QFW_OK) {
            return false;
        }
    }
    const uint64_t a = x[0].plan->codes, b = x[1].plan->codes;
    return a < b + qfw_codes_bytes(&x[1]) && b < a + qfw_codes_bytes(&x[0]);
}

qfw_needs qfw_split_needs(const qfw_plan_header *header, const qfw_plan_op *op)
{
    const qfw_plan_tensor *tensors = (const void *)(header + 1);
    uint16_t places[QFW_OP_TENSORS];
    qfw_needs needs = {0, 0, 0};
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
        if (k == 0 && lies_over(tensors, op->tensor, header)) {
            needs.aside = rounded((size_t)qfw_codes_bytes(&x));
        }
    }
    if (qfw_window_of(header, op) != NULL && qfw_patches_place(op->kernel) != 0) {
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

static ptrdiff_t row_bits(const qfw_operand *x)
{
    return x->row * element_bits(x->plan);
}

/* Whether no part writes what another reads: tensors are apart, or row lies on row; or codes lie over
 * what they are made of (place 1), and then they are made aside. */
static bool are_apart(qfw_job *j)
{
    const qfw_call *call = j->call;
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        for (int i = 0; i < QFW_OP_TENSORS; i++) {
            const qfw_operand *to = &call->at[k], *from = &call->at[i];
            if (i == k || !qfw_has(call, k) || !qfw_has(call, i) || !qfw_is_written(j->places, k) ||
                !overlap(to, from) ||
                (to->t.codes == from->t.codes && row_bits(to) == row_bits(from))) {
                continue;
            }
            if (k != 0 || i != 1 || qfw_codes_bytes(to) > j->pool->aside_bytes) {
                return false;
            }
            j->aside = true;
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
    /* The table is a pool's first member, and these lines come with it. */
    qfw_host_pool *pool = (qfw_host_pool *)(uintptr_t)call->kernels;
    const ptrdiff_t most = (ptrdiff_t)QFW_THREAD_PARTS * pool->threads;
    qfw_job j = {pool, call, run, units, (uint32_t)(units < most ? units : most), {0}, false};
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

void *qfw_aside_of(const qfw_job *j, uint32_t part)
{
    return j->pool->aside + qfw_first_of(j, part) * row_bits(&j->call->at[0]) / 8;
}

/* Codes that were made aside go where they belong. */
static qfw_status move_part(const void *of, uint32_t part, uint32_t thread)
{
    const qfw_job *j = of;
    const qfw_operand *to = &j->call->at[0];
    const ptrdiff_t first = qfw_first_of(j, part), rows = qfw_first_of(j, part + 1) - first;
    (void)thread;
    memcpy((uint8_t *)to->t.codes + first * row_bits(to) / 8, qfw_aside_of(j, part),
           (size_t)(rows * row_bits(to) / 8));
    return QFW_OK;
}

/* Scales come last: they may lie among what was moved. */
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

qfw_status qfw_end_rows(const qfw_job *j)
{
    if (j->aside) {
        (void)qfw_crew_run(j->pool->crew, j->parts, move_part, j);
    }
    gather_all(j);
    return QFW_OK;
}

qfw_status qfw_split(qfw_job *j, qfw_part_fn *part, qfw_end_fn *end)
{
    if (!are_apart(j) || !fits(j) || !qfw_crew_enter(j->pool->crew)) {
        return j->run(j->call);
    }
    j->pool->splits++;
    qfw_status status = qfw_crew_run(j->pool->crew, j->parts, part, j);
    status = status == QFW_OK ? end(j) : status;
    qfw_crew_leave(j->pool->crew);
    return status;
}

/* ---- the list ---- */

static void put_lines(qfw_op_line *lines, size_t count, const qfw_op_line *others, size_t n)
{
    for (size_t i = 0; i < count * n; i++) {
        qfw_op_line *line = &lines[i / n];
        *line = line->kernel == others[i % n].kernel ? others[i % n] : *line;
    }
}

void qfw_split_lines(qfw_op_line *lines, size_t count)
{
    put_lines(lines, count, qfw_row_splits, qfw_row_split_count);
    put_lines(lines, count, qfw_gradient_splits, qfw_gradient_split_count);
}

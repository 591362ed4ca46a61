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
#include "host/threads.h"
#include "engine/pool.h"

/* Work, in elements or eight products, below which one thread is as fast. */
enum { LEAST = 8192, PRODUCTS = 16 };

enum { ROOM = 64 }; /* results and scratch begin at multiples of a cache line */

typedef struct {
    qfw_host_pool *pool;
    const qfw_call *call;
    qfw_op_fn *run;
    ptrdiff_t units; /* rows of the step, or of the gradient */
    uint32_t parts;
    uint16_t places[QFW_OP_TENSORS];
    bool in_place; /* codes are made at the beginning of what they are made of, then moved */
} job;

/* ---- operands ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + ROOM - 1) / ROOM * ROOM;
}

static ptrdiff_t element_bits(const qfw_plan_tensor *p)
{
    const bool slots = p->kind == QFW_SYM || p->kind == QFW_ASYM;
    return p->kind == QFW_BYTES                         ? 8
           : slots && p->container != 0                 ? p->container
           : slots || p->kind == QFW_PICK               ? p->bits
                                                        : 32;
}

static bool has_rows(const qfw_operand *x)
{
    return x->plan->rows != QFW_NO_ROWS;
}

static bool is_written(const uint16_t *places, int k)
{
    return (places[k] & QFW_IS_WRITTEN) != 0;
}

/* Memory of an operation's own. */
static bool is_scratch(const qfw_operand *x)
{
    return !has_rows(x) && x->plan->role == QFW_SCRATCH;
}

/* Whether its scales serve rows of several parts. */
static bool shares_scales(const qfw_operand *x)
{
    return has_rows(x) && x->scales > 0 && !qfw_by_rows(x);
}

/* Whether some of its rows, from any on, are a tensor too. */
static bool has_parts(const qfw_operand *x)
{
    const qfw_plan_tensor *p = x->plan;
    if (!has_rows(x)) {
        return true;
    }
    const bool outermost = p->rows == QFW_ROWS_OUTER || p->outer == 1;
    const bool scales = p->rows == QFW_ROWS_OUTER || x->scales <= 1;
    return outermost && scales && x->row * element_bits(p) % 8 == 0;
}

/* Rows first .. first + rows - 1 of x, a tensor over `all` rows. */
static void take_rows(qfw_operand *x, ptrdiff_t all, ptrdiff_t first, ptrdiff_t rows)
{
    const qfw_operand whole = *x;
    if (!has_rows(x)) {
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
    return rounded(n * sizeof(float)) + rounded(n * sizeof(uint16_t)) + rounded(n * sizeof(uint32_t));
}

/* Scales of the part's own, as they stand now; zero points and absmax where there are any. */
static void own_scales(qfw_operand *x, uint8_t **at)
{
    const size_t n = (size_t)x->scales;
    float *scale = taken(at, n * sizeof *scale);
    uint16_t *zero = taken(at, n * sizeof *zero);
    uint32_t *absmax = taken(at, n * sizeof *absmax);
    memcpy(scale, x->t.scale, n * sizeof *scale);
    x->t.scale = scale;
    if (x->t.zero_point != NULL) {
        memcpy(zero, x->t.zero_point, n * sizeof *zero);
        x->t.zero_point = zero;
    }
    if (x->absmax != NULL) {
        memcpy(absmax, x->absmax, n * sizeof *absmax);
        x->absmax = absmax;
    }
}

static void own_codes(qfw_operand *x, uint8_t **at)
{
    x->t.codes = taken(at, (size_t)qfw_codes_bytes(x));
    if (x->scales > 0) {
        own_scales(x, at);
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

void qfw_split_needs(const qfw_plan_header *header, const qfw_plan_op *op, size_t *scratch,
                     size_t *results)
{
    const qfw_plan_tensor *tensors = (const void *)(header + 1);
    uint16_t places[QFW_OP_TENSORS];
    *scratch = *results = 0;
    if (qfw_op_name(op->kernel, places) == NULL) {
        return;
    }
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        qfw_operand x;
        if (op->tensor[k] >= header->tensors || !is_written(places, k) ||
            qfw_measure(&tensors[op->tensor[k]], header->batch, &x) != QFW_OK) {
            continue;
        }
        if (is_scratch(&x)) {
            *scratch += rounded((size_t)qfw_codes_bytes(&x)) + results_of(&x);
        } else if (shares_scales(&x)) {
            *results += results_of(&x);
        }
    }
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
 * what they are made of (place 1), which in_place then is about. */
static bool are_apart(job *j)
{
    const qfw_call *call = j->call;
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        for (int i = 0; i < QFW_OP_TENSORS; i++) {
            const qfw_operand *to = &call->at[k], *from = &call->at[i];
            if (i == k || !qfw_has(call, k) || !qfw_has(call, i) || !is_written(j->places, k) ||
                !overlap(to, from) ||
                (to->t.codes == from->t.codes && row_bits(to) == row_bits(from))) {
                continue;
            }
            const bool before = (uintptr_t)to->t.codes <= (uintptr_t)from->t.codes;
            if (k != 0 || i != 1 || !before || row_bits(to) > row_bits(from)) {
                return false;
            }
            j->in_place = true;
        }
    }
    return true;
}

/* Nothing is counted, and the pool has room. */
static bool fits(const job *j)
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
        if (is_written(j->places, k) && is_scratch(x)) {
            scratch += rounded((size_t)qfw_codes_bytes(x)) + results_of(x);
        } else if (is_written(j->places, k) && shares_scales(x)) {
            results += results_of(x);
        }
    }
    return scratch <= j->pool->scratch_bytes && results <= j->pool->result_bytes;
}

static job job_of(const qfw_call *call, qfw_op_fn *run, ptrdiff_t units)
{
    /* The table is a pool's first member, and these lines come with it. */
    qfw_host_pool *pool = (qfw_host_pool *)(uintptr_t)call->kernels;
    const ptrdiff_t most = (ptrdiff_t)QFW_THREAD_PARTS * pool->threads;
    job j = {pool, call, run, units, (uint32_t)(units < most ? units : most), {0}, false};
    (void)qfw_op_name(call->op->kernel, j.places);
    return j;
}

/* ---- parts ---- */

/* The call as this thread makes it for this part, its rows still being all. */
static qfw_call own_call(const job *j, uint32_t part, uint32_t thread)
{
    qfw_call own = *j->call;
    uint8_t *results = j->pool->results + part * j->pool->result_bytes;
    const size_t others = thread > 0 ? thread - 1 : 0; /* the caller's is the plan's */
    uint8_t *scratch = j->pool->scratch + others * j->pool->scratch_bytes;
    own.kernels = j->pool->kernels;
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        qfw_operand *x = &own.at[k];
        if (!qfw_has(&own, k) || !is_written(j->places, k)) {
            continue;
        }
        if (is_scratch(x) && thread > 0) {
            own_codes(x, &scratch);
        } else if (shares_scales(x)) {
            own_scales(x, &results);
        }
    }
    return own;
}

static ptrdiff_t first_of(const job *j, uint32_t part)
{
    return j->units * (ptrdiff_t)part / (ptrdiff_t)j->parts;
}

static qfw_status run_rows(const void *of, uint32_t part, uint32_t thread)
{
    const job *j = of;
    const ptrdiff_t first = first_of(j, part), rows = first_of(j, part + 1) - first;
    qfw_call own = own_call(j, part, thread);
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        if (qfw_has(&own, k)) {
            take_rows(&own.at[k], j->units, first, rows);
        }
    }
    /* The range of a row of its own is not that of all. */
    if (qfw_has(&own, 1) && qfw_by_rows(&own.at[0]) && shares_scales(&own.at[1])) {
        own.at[1].absmax = NULL;
    }
    own.at[0].t.codes = j->in_place ? own.at[1].t.codes : own.at[0].t.codes;
    own.rows = (int32_t)rows;
    own.first = first;
    return j->run(&own);
}

/* What parts left apart comes together, in their order: codes that were made in place lie before what
 * has not been moved yet. */
static void gather_all(const job *j)
{
    const qfw_operand *to = &j->call->at[0], *from = &j->call->at[1];
    for (uint32_t part = 0; part < j->parts; part++) {
        uint8_t *results = j->pool->results + part * j->pool->result_bytes;
        const ptrdiff_t first = first_of(j, part), rows = first_of(j, part + 1) - first;
        if (j->in_place) {
            memmove((uint8_t *)to->t.codes + first * row_bits(to) / 8,
                    (const uint8_t *)from->t.codes + first * row_bits(from) / 8,
                    (size_t)(rows * row_bits(to) / 8));
        }
        for (int k = 0; k < QFW_OP_TENSORS; k++) {
            const qfw_operand *x = &j->call->at[k];
            if (qfw_has(j->call, k) && is_written(j->places, k) && shares_scales(x)) {
                gather(x, &results, part == 0);
            }
        }
    }
}

static qfw_status run_all(job *j, qfw_part_fn *part)
{
    if (!are_apart(j) || !fits(j) || !qfw_crew_enter(j->pool->crew)) {
        return j->run(j->call);
    }
    const qfw_status status = qfw_crew_run(j->pool->crew, j->parts, part, j);
    if (status == QFW_OK) {
        gather_all(j);
    }
    qfw_crew_leave(j->pool->crew);
    return status;
}

/* ---- rows of the step ---- */

static qfw_status by_rows(const qfw_call *call, qfw_op_fn *run, bool may, ptrdiff_t work)
{
    bool rows = call->rows > 1 && may && work >= LEAST;
    for (int k = 0; rows && k < QFW_OP_TENSORS; k++) {
        rows = !qfw_has(call, k) || has_parts(&call->at[k]);
    }
    job j = job_of(call, run, call->rows);
    return rows ? run_all(&j, run_rows) : run(call);
}

/* Elements of the larger of two places. */
static ptrdiff_t elements(const qfw_call *call)
{
    return call->at[0].n > call->at[1].n ? call->at[0].n : call->at[1].n;
}

/* Products of a product. */
static ptrdiff_t products(const qfw_call *call)
{
    const qfw_operand *b = &call->at[2];
    const ptrdiff_t positions = qfw_positions_of(call->op, 3);
    return qfw_times(qfw_times(call->rows, positions), b->n) / PRODUCTS;
}

/* Not where a range is watched. */
static qfw_status split_product_s32(const qfw_call *call)
{
    return by_rows(call, qfw_op_product_s32, !qfw_has(call, 7), products(call));
}

static qfw_status split_product_f32(const qfw_call *call)
{
    return by_rows(call, qfw_op_product_f32, true, products(call));
}

/* Where scales are known, or each row has its own. */
static bool has_known_scales(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const bool sums = src->absmax != NULL && dst->plan->kind == QFW_SYM && dst->scales == 1;
    return dst->plan->kind == QFW_FLOAT32 || qfw_by_rows(dst) || qfw_same_codes(src, dst) ||
           dst->plan->range == QFW_FIXED || sums;
}

static qfw_status split_convert(const qfw_call *call)
{
    return by_rows(call, qfw_op_convert, !qfw_has(call, 3) && has_known_scales(call),
                   elements(call));
}

/* A scale of 1 may be that of zeros alone, which only all rows tell. */
static qfw_status split_widen(const qfw_call *call)
{
    const qfw_operand *src = &call->at[1], *by = &call->at[2];
    const bool one = src->scales == 1 && shares_scales(src) && src->t.scale[0] != 1.0f;
    const bool may = one && (!qfw_has(call, 2) || !has_rows(by));
    return by_rows(call, qfw_op_widen, may, elements(call));
}

#define BY_ELEMENTS(name)                                                    \
    static qfw_status split_##name(const qfw_call *call)                     \
    {                                                                        \
        return by_rows(call, qfw_op_##name, true, elements(call));           \
    }

BY_ELEMENTS(relu)
BY_ELEMENTS(mask)
BY_ELEMENTS(max_pool)
BY_ELEMENTS(max_pool_back)
BY_ELEMENTS(avg_pool_s32)
BY_ELEMENTS(avg_pool_f32)
BY_ELEMENTS(avg_pool_back_s32)
BY_ELEMENTS(avg_pool_back_f32)

/* ---- rows of a gradient ---- */

static qfw_status run_gradient_s32(const void *of, uint32_t part, uint32_t thread)
{
    const job *j = of;
    const qfw_call own = own_call(j, part, thread);
    return qfw_gradient_s32_rows(&own, first_of(j, part), first_of(j, part + 1));
}

static qfw_status run_gradient_f32(const void *of, uint32_t part, uint32_t thread)
{
    const job *j = of;
    const qfw_call own = own_call(j, part, thread);
    return qfw_gradient_f32_rows(&own, first_of(j, part), first_of(j, part + 1));
}

static qfw_status by_outputs(const qfw_call *call, qfw_op_fn *run, qfw_part_fn *part)
{
    enum { POSITIONS = 11 };
    const qfw_operand *grad = &call->at[0], *e = &call->at[1];
    const ptrdiff_t terms = qfw_times(call->rows, qfw_positions_of(call->op, POSITIONS));
    const ptrdiff_t out = e->n / terms, in = grad->n / out;
    job j = job_of(call, run, out);
    const bool may = out > 1 && terms > 1 && qfw_has_rows_of(grad, in, 1) &&
                     qfw_times(terms, grad->n) / PRODUCTS >= LEAST;
    return may ? run_all(&j, part) : run(call);
}

static qfw_status split_gradient_s32(const qfw_call *call)
{
    return by_outputs(call, qfw_op_gradient_s32, run_gradient_s32);
}

static qfw_status split_gradient_f32(const qfw_call *call)
{
    return by_outputs(call, qfw_op_gradient_f32, run_gradient_f32);
}

/* ---- the list ---- */

#define LINE(name) {split_##name, QFW_NUMBER_##name, QFW_READS_##name}

static const qfw_op_line splits[] = {
    LINE(product_s32),       LINE(product_f32),       LINE(convert),       LINE(widen),
    LINE(relu),              LINE(mask),              LINE(max_pool),      LINE(max_pool_back),
    LINE(avg_pool_s32),      LINE(avg_pool_f32),      LINE(gradient_s32),  LINE(gradient_f32),
    LINE(avg_pool_back_s32), LINE(avg_pool_back_f32),
};

void qfw_split_lines(qfw_op_line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < sizeof splits / sizeof splits[0]; k++) {
            lines[i] = lines[i].kernel == splits[k].kernel ? splits[k] : lines[i];
        }
    }
}

/* Gradients in parts. Integers of a window: sums over some rows of the step each, which then are added,
 * exactly and in any order. Others: some rows of the gradient each, so that floats keep the order of
 * their sums. What follows the sums is done by the caller. */
#include "engine/patches.h"
#include "host/split.h"

enum { CHUNK = 9, SHIFT = 10, POSITIONS = 11 }; /* parameters of a gradient */
enum { TILE = 3 };                              /* the place of its sums */
enum { NARROW = 16 }; /* rows of a gradient that are worth to gather an image's patches for */

typedef struct {
    ptrdiff_t out, in, terms;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const ptrdiff_t terms = qfw_times(call->rows, qfw_positions_of(call->op, POSITIONS));
    const ptrdiff_t out = call->at[1].n / terms;
    const sizes s = {out, call->at[0].n / out, terms};
    return s;
}

int qfw_patches_place(uint32_t kernel)
{
    return kernel == QFW_NUMBER_gradient_s32          ? 5
           : kernel == QFW_NUMBER_gradient_update_s32 ? 6
           : kernel == QFW_NUMBER_gradient_adamw_s32  ? 7
                                                      : 0;
}

/* ---- parts ---- */

static int32_t *sums_of(const qfw_job *j, uint32_t part)
{
    return (int32_t *)(void *)(j->pool->results + part * j->pool->result_bytes);
}

static qfw_status sum_terms(const void *of, uint32_t part, uint32_t thread)
{
    const qfw_job *j = of;
    const ptrdiff_t first = qfw_first_of(j, part), rows = qfw_first_of(j, part + 1) - first;
    qfw_call own = qfw_own_call(j, part, thread);
    qfw_take_rows(j, part, 1, &own.at[1]);
    if (qfw_has(&own, 2)) {
        qfw_take_rows(j, part, 2, &own.at[2]);
    }
    own.rows = (int32_t)rows;
    own.at[TILE].t.codes = sums_of(j, part);
    qfw_gradient_sums(&own, qfw_patches_place(own.op->kernel), 0, sizes_of(j->call).out);
    return QFW_OK;
}

static qfw_status sum_outputs(const void *of, uint32_t part, uint32_t thread)
{
    const qfw_job *j = of;
    const ptrdiff_t first = qfw_first_of(j, part), n = qfw_first_of(j, part + 1) - first;
    qfw_call own = qfw_own_call(j, part, thread);
    const qfw_operand *tile = &j->call->at[TILE];
    if (tile->plan != NULL) {
        own.at[TILE].t.codes = (int32_t *)tile->t.codes + first * sizes_of(j->call).in;
    }
    qfw_gradient_sums(&own, qfw_patches_place(own.op->kernel), first, n);
    return QFW_OK;
}

/* ---- the end ---- */

/* The operation itself, but for its sums. */
static qfw_status end_sums(const qfw_job *j)
{
    qfw_call call = *j->call;
    call.summed = true;
    return j->run(&call);
}

static qfw_status add_terms(const qfw_job *j)
{
    int32_t *sums = j->call->at[TILE].t.codes;
    const ptrdiff_t n = j->call->at[0].n;
    memcpy(sums, sums_of(j, 0), (size_t)n * sizeof *sums);
    for (uint32_t part = 1; part < j->parts; part++) {
        const int32_t *more = sums_of(j, part);
        for (ptrdiff_t i = 0; i < n; i++) {
            sums[i] += more[i]; /* no sum of some terms leaves int32 */
        }
    }
    return end_sums(j);
}

static qfw_status end_floats(const qfw_job *j)
{
    (void)j;
    return QFW_OK;
}

/* ---- operations ---- */

/* Enough products; a bias has sums alone. */
static bool is_long(const qfw_call *call, const sizes *s)
{
    const ptrdiff_t products = qfw_times(s->terms, call->at[0].n) / QFW_SPLIT_PRODUCTS;
    return s->terms > 1 && qfw_is_worth(call, qfw_has(call, 2) ? products : call->at[1].n);
}

static bool is_wide(const qfw_job *j, const sizes *s)
{
    return s->out >= (j->call->window == NULL ? 1 : NARROW) * (ptrdiff_t)j->parts;
}

static qfw_status split_sums(const qfw_call *call, qfw_op_fn *run)
{
    const sizes s = sizes_of(call);
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[TILE];
    if (!is_long(call, &s) || tile->n != call->at[0].n) {
        return qfw_alone(call);
    }
    const bool bias = !qfw_has(call, 2);
    const bool whole = call->op->param[SHIFT] == 0 && call->op->param[CHUNK] >= (uint64_t)s.terms;
    if ((call->window != NULL || bias) && whole && call->rows > 1 && qfw_has_parts(e) &&
        !qfw_by_rows(e) && (bias || (qfw_has_parts(x) && !qfw_by_rows(x)))) {
        qfw_job j = qfw_job_of(call, run, call->rows);
        const bool room = (size_t)tile->n * sizeof(int32_t) <= j.pool->result_bytes;
        return room ? qfw_split(&j, sum_terms, add_terms, false) : qfw_alone(call);
    }
    qfw_job j = qfw_job_of(call, run, s.out);
    return !bias && is_wide(&j, &s) ? qfw_split(&j, sum_outputs, end_sums, true) : qfw_alone(call);
}

static qfw_status split_gradient_s32(const qfw_call *call)
{
    return split_sums(call, qfw_op_gradient_s32);
}

static qfw_status split_gradient_update_s32(const qfw_call *call)
{
    return split_sums(call, qfw_op_gradient_update_s32);
}

static qfw_status split_gradient_adamw_s32(const qfw_call *call)
{
    return split_sums(call, qfw_op_gradient_adamw_s32);
}

/* Not where they are added to others. */
static qfw_status split_gradient_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    qfw_job j = qfw_job_of(call, qfw_op_gradient_f32, s.out);
    const bool may = qfw_has(call, 2) && is_long(call, &s) && is_wide(&j, &s) && !qfw_adds(call);
    return may ? qfw_split(&j, sum_outputs, end_floats, true) : qfw_alone(call);
}

#define LINE(name) {split_##name, QFW_NUMBER_##name, QFW_READS_##name}

const qfw_op_line qfw_gradient_splits[] = {
    LINE(gradient_s32),
    LINE(gradient_update_s32),
    LINE(gradient_adamw_s32),
    LINE(gradient_f32),
};

const size_t qfw_gradient_split_count = sizeof qfw_gradient_splits / sizeof qfw_gradient_splits[0];

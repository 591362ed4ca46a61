/* Operations that are split by rows of the step, and when. */
#include "host/split.h"

static qfw_status run_rows(const void *of, uint32_t part, uint32_t thread)
{
    const qfw_job *j = of;
    const ptrdiff_t first = qfw_first_of(j, part), rows = qfw_first_of(j, part + 1) - first;
    qfw_call own = qfw_own_call(j, part, thread);
    for (int k = 0; k < QFW_OP_TENSORS; k++) {
        if (qfw_has(&own, k)) {
            qfw_take_rows(j, part, k, &own.at[k]);
        }
    }
    /* The range of a row of its own is not that of all. */
    if (qfw_has(&own, 1) && qfw_by_rows(&own.at[0]) && qfw_shares_scales(&own.at[1])) {
        own.at[1].absmax = NULL;
    }
    own.rows = (int32_t)rows;
    own.first = first;
    return j->run(&own);
}

static qfw_status by_rows(const qfw_call *call, qfw_op_fn *run, bool may, ptrdiff_t work)
{
    bool rows = call->rows > 1 && may && qfw_is_worth(call, work);
    for (int k = 0; rows && k < QFW_OP_TENSORS; k++) {
        rows = !qfw_has(call, k) || qfw_has_parts(&call->at[k]);
    }
    qfw_job j = qfw_job_of(call, run, call->rows);
    return rows ? qfw_split(&j, run_rows, qfw_end_rows, false) : qfw_alone(call);
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
    return qfw_times(qfw_times(call->rows, positions), b->n) / QFW_SPLIT_PRODUCTS;
}

/* Not where a range is watched, nor where it is that of all rows. */
static qfw_status split_product_s32(const qfw_call *call)
{
    const bool ranged = call->at[0].plan->bits != 32 && call->at[0].plan->range == QFW_DYNAMIC;
    return by_rows(call, qfw_op_product_s32, !ranged && !qfw_has(call, 7), products(call));
}

static qfw_status split_product_f32(const qfw_call *call)
{
    return by_rows(call, qfw_op_product_f32, true, products(call));
}

/* Where scales are known, or each row has its own. */
static bool has_known_scales(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const bool sums =
        src->absmax != NULL && !qfw_by_rows(src) && dst->plan->kind == QFW_SYM && dst->scales == 1;
    return dst->plan->kind == QFW_FLOAT32 || qfw_by_rows(dst) || qfw_same_codes(src, dst) ||
           dst->plan->range == QFW_FIXED || sums;
}

/* Floats of the caller to bytes of one scale, which is that of the largest. */
static bool has_one_range(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    return src->plan->kind == QFW_FLOAT32 && src->plan->space == QFW_IO &&
           dst->plan->kind == QFW_SYM && dst->plan->range == QFW_DYNAMIC &&
           (dst->plan->container == 8 || (dst->plan->container == 0 && dst->plan->bits == 8)) &&
           dst->plan->rows == QFW_ROWS_AXIS && dst->scales == 1;
}

static int32_t *largest_at(const qfw_job *j, uint32_t part)
{
    return (int32_t *)(void *)(j->pool->results + part * j->pool->result_bytes);
}

static qfw_status find_largest(const void *of, uint32_t part, uint32_t thread)
{
    const qfw_job *j = of;
    const qfw_operand *src = &j->call->at[1];
    const ptrdiff_t first = qfw_first_of(j, part), rows = qfw_first_of(j, part + 1) - first;
    int32_t hi = 0, lo = 0;
    (void)thread;
    j->pool->kernels->extent_f32((const float *)src->t.codes + first * src->row,
                                 (size_t)(rows * src->row), &hi, &lo);
    *largest_at(j, part) = hi > lo ? hi : lo;
    return QFW_OK;
}

static qfw_row_encoding encoding_of(const qfw_job *j, bool dynamic, const qfw_key *key)
{
    const qfw_plan_tensor *p = j->call->at[0].plan;
    const qfw_row_encoding how = {(1u << (p->bits - 1)) - 1, dynamic, p->pow2 != 0,
                                  (qfw_rounding)p->rounding, key,     0};
    return how;
}

static qfw_status encode_floats(const void *of, uint32_t part, uint32_t thread)
{
    const qfw_job *j = of;
    qfw_operand dst = j->call->at[0];
    const qfw_operand *src = &j->call->at[1];
    const ptrdiff_t first = qfw_first_of(j, part) * src->row;
    const size_t n = (size_t)(qfw_first_of(j, part + 1) * src->row - first);
    const qfw_key key = qfw_key_of(j->call, &dst);
    qfw_row_encoding how = encoding_of(j, false, &key);
    uint64_t saturated = 0;
    (void)thread;
    how.first = (uint64_t)first;
    qfw_take_rows(j, part, 0, &dst);
    return j->pool->kernels->quantize_s8((const float *)src->t.codes + first, n, n, &how,
                                         dst.t.scale, dst.t.codes, &saturated);
}

/* The scale of the largest alone is that of all. */
static qfw_status end_floats(const qfw_job *j)
{
    const qfw_key none = {0, 0};
    const qfw_row_encoding how = encoding_of(j, true, &none);
    int32_t most = 0;
    for (uint32_t part = 0; part < j->parts; part++) {
        most = *largest_at(j, part) > most ? *largest_at(j, part) : most;
    }
    const float largest = qfw_from_bits_f32((uint32_t)most);
    float scale;
    int8_t code;
    uint64_t saturated = 0;
    QFW_TRY(j->pool->kernels->quantize_s8(&largest, 1, 1, &how, &scale, &code, &saturated));
    j->call->at[0].t.scale[0] = scale;
    QFW_TRY(qfw_crew_run(j->pool->crew, j->parts, encode_floats, j));
    qfw_note_written(j);
    return QFW_OK;
}

static qfw_status split_convert(const qfw_call *call)
{
    const ptrdiff_t work = elements(call);
    if (!qfw_has(call, 3) && has_one_range(call) && call->rows > 1 && qfw_is_worth(call, work)) {
        qfw_job j = qfw_job_of(call, qfw_op_convert, call->rows);
        return qfw_split(&j, find_largest, end_floats, false);
    }
    return by_rows(call, qfw_op_convert, !qfw_has(call, 3) && has_known_scales(call), work);
}

/* A scale of 1 may be that of zeros alone, which only all rows tell. */
static qfw_status split_widen(const qfw_call *call)
{
    const qfw_operand *src = &call->at[1], *by = &call->at[2];
    const bool one = src->scales == 1 && qfw_shares_scales(src) && src->t.scale[0] != 1.0f;
    const bool may = one && (!qfw_has(call, 2) || !qfw_has_rows(by));
    return by_rows(call, qfw_op_widen, may, elements(call));
}

#define BY_ELEMENTS(name)                                          \
    static qfw_status split_##name(const qfw_call *call)           \
    {                                                              \
        return by_rows(call, qfw_op_##name, true, elements(call)); \
    }

BY_ELEMENTS(relu)
BY_ELEMENTS(mask)
BY_ELEMENTS(max_pool)
BY_ELEMENTS(max_pool_back)
BY_ELEMENTS(avg_pool_s32)
BY_ELEMENTS(avg_pool_f32)
BY_ELEMENTS(avg_pool_back_s32)
BY_ELEMENTS(avg_pool_back_f32)

#define LINE(name) {split_##name, QFW_NUMBER_##name, QFW_READS_##name}

const qfw_op_line qfw_row_splits[] = {
    LINE(product_s32),  LINE(product_f32),  LINE(convert),           LINE(widen),
    LINE(relu),         LINE(mask),         LINE(max_pool),          LINE(max_pool_back),
    LINE(avg_pool_s32), LINE(avg_pool_f32), LINE(avg_pool_back_s32), LINE(avg_pool_back_f32),
};

const size_t qfw_row_split_count = sizeof qfw_row_splits / sizeof qfw_row_splits[0];

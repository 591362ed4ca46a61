/* Operations in parts: what splits share. */
#ifndef QFW_HOST_SPLIT_H
#define QFW_HOST_SPLIT_H

#include "host/threads.h"

/* Products that take as long as an element. */
enum { QFW_SPLIT_PRODUCTS = 16 };

typedef struct {
    qfw_host_pool *pool;
    const qfw_call *call;
    qfw_op_fn *run;
    ptrdiff_t units; /* rows of the step, or of a gradient */
    uint32_t parts;
    uint16_t places[QFW_OP_TENSORS];
    bool own[QFW_OP_TENSORS]; /* a part has its rows in an arena of its own */
} qfw_job;

static inline bool qfw_has_rows(const qfw_operand *x)
{
    return x->plan->rows != QFW_NO_ROWS;
}

static inline bool qfw_is_written(const uint16_t *places, int k)
{
    return (places[k] & QFW_IS_WRITTEN) != 0;
}

/* Memory of an operation's own; what stands at place 0 is its result. */
static inline bool qfw_is_scratch(const qfw_operand *x, int place)
{
    return place != 0 && !qfw_has_rows(x) && x->plan->role == QFW_SCRATCH;
}

/* Whether its scales serve rows of several parts. */
static inline bool qfw_shares_scales(const qfw_operand *x)
{
    return qfw_has_rows(x) && x->scales > 0 && !qfw_by_rows(x);
}

/* Whether some of its rows, from any on, are a tensor too. */
bool qfw_has_parts(const qfw_operand *x);

/* The rows of a part, of what stands at place k. */
void qfw_take_rows(const qfw_job *job, uint32_t part, int k, qfw_operand *x);

/* The whole operation, by the caller. */
qfw_status qfw_alone(const qfw_call *call);

/* A job of `units` units, of a call that has a pool's kernels. */
qfw_job qfw_job_of(const qfw_call *call, qfw_op_fn *run, ptrdiff_t units);

/* The table is a pool's first member, and pooled operations come with it. */
static inline qfw_host_pool *qfw_pool_of(const qfw_call *call)
{
    return (qfw_host_pool *)(uintptr_t)call->kernels;
}

/* Whether so much work is worth a split. */
static inline bool qfw_is_worth(const qfw_call *call, ptrdiff_t work)
{
    return work >= qfw_pool_of(call)->least;
}

/* The first unit of a part. */
ptrdiff_t qfw_first_of(const qfw_job *job, uint32_t part);

/* The call as a thread makes it for a part, its rows still being all. */
qfw_call qfw_own_call(const qfw_job *job, uint32_t part, uint32_t thread);

/* What is left to do after the parts. */
typedef qfw_status qfw_end_fn(const qfw_job *job);

/* Remembers where the rows are that parts wrote. */
void qfw_note_written(const qfw_job *job);

/* That, after putting together the scales that they left. */
qfw_status qfw_end_rows(const qfw_job *job);

/* Does all parts and the end; or, where that cannot be, the whole operation. together: parts need all
 * rows of what they read. */
qfw_status qfw_split(qfw_job *job, qfw_part_fn *part, qfw_end_fn *end, bool together);

/* Where an operation that makes a gradient in integers has room for patches; 0: it is none. */
int qfw_patches_place(uint32_t kernel);

/* Operations by rows of the step, and gradients. */
extern const qfw_op_line qfw_row_splits[];
extern const size_t qfw_row_split_count;
extern const qfw_op_line qfw_gradient_splits[];
extern const size_t qfw_gradient_split_count;

#endif

/* A plan at work, for what opens it and what walks it. */
#ifndef QFW_ENGINE_NET_H
#define QFW_ENGINE_NET_H

#include "engine/engine.h"

/* Lies at the start of the arena. */
struct qfw_net {
    qfw_image image;
    const qfw_plan_header *header;
    const qfw_plan_tensor *tensors;
    const qfw_op_record *ops;
    qfw_progress progress;
    uint32_t next; /* the operation that may follow; NOWHERE: only a section's first */
    uint32_t rows; /* of the forward that ran */
    uint32_t has_gradients;
    uint32_t has_scales;   /* of a core of one plan: those that last were looked at */
    qfw_counter *counters; /* one for each tensor, the caller's; NULL: off */
};

QFW_STATIC_ASSERT(sizeof(qfw_net) <= QFW_NET_BYTES, net_fits_its_place);

#define NOWHERE UINT32_MAX

/* Operation i, as operations have it. Their words end where their records begin. */
#if QFW_NARROW_PLAN
static inline void set_op(const qfw_net *net, uint32_t i, qfw_call *call)
{
    const qfw_op_record *of = &net->ops[i];
    call->own.kernel = of->kernel;
    call->own.flags = of->flags;
    call->own.param = (const uint32_t *)(const void *)net->ops - net->header->params + of->param;
    call->op = &call->own;
}
#else
static inline void set_op(const qfw_net *net, uint32_t i, qfw_call *call)
{
    call->op = &net->ops[i];
}
#endif

/* Micro-batches of a step. */
static inline uint32_t micro_batches(const qfw_plan_header *h)
{
    return QFW_HAS_MICRO && h->micro_batches > 1 ? h->micro_batches : 1;
}

/* After the last operation of a step. */
static inline void end_step(qfw_net *net)
{
    net->progress.step = qfw_add32(net->progress.step, 1);
    net->progress.updates += net->progress.updates != UINT32_MAX ? 1 : 0;
    net->progress.micro = 0;
}

#endif

/* A plan under examination. */
#ifndef QFW_ENGINE_CHECK_H
#define QFW_ENGINE_CHECK_H

#include "engine/engine.h"

typedef struct {
    const qfw_plan_header *header;
    const qfw_plan_tensor *tensors;
    const qfw_plan_op *ops;
    qfw_fault *fault;
} qfw_plan_view;

/* Notes what is wrong and where (-1: nowhere); QFW_E_PLAN. */
qfw_status qfw_refuse(const qfw_plan_view *v, int32_t op, int32_t tensor, const char *field);

/* Parameters, gradients and state last. */
bool qfw_lasts(const qfw_plan_tensor *p);

/* Whether two measured tensors share a byte. */
bool qfw_overlap(const qfw_operand *a, const qfw_operand *b);

/* Whether both lie in the arena, and a shares no byte with b but those of b's codes. */
bool qfw_over_codes(const qfw_operand *a, const qfw_operand *b);

/* Every field of every tensor; what lasts shares no byte with anything. */
qfw_status qfw_check_tensors(const qfw_plan_view *v);

#endif

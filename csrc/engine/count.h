/* Run-time counters: docs/numerics.md section 27. An operand without a counter is not counted. */
#ifndef QFW_ENGINE_COUNT_H
#define QFW_ENGINE_COUNT_H

#include "engine/engine.h"

static inline bool qfw_is_counted(const qfw_operand *x)
{
    return QFW_HAS_COUNTERS && QFW_COUNTER(x) != NULL;
}

/* dst was encoded, whole or in part, and the clamp changed `saturated` of its codes. */
void qfw_see_encoded(const qfw_operand *dst, uint64_t saturated);

static inline void qfw_count_encoded(const qfw_operand *dst, uint64_t saturated)
{
    if (qfw_is_counted(dst)) {
        qfw_see_encoded(dst, saturated);
    }
}

/* A tile of the integer update, as update_s32 is about to get it; state NULL: none. Where there is
 * a counter, every operand has one. */
void qfw_see_codes(const qfw_operand *param, const qfw_operand *state, const int32_t *m,
                   const int32_t *v, const int32_t *g, size_t n, const qfw_move *move,
                   const qfw_move *state_move, const uint32_t *u, const uint32_t *u_v);

static inline void qfw_count_codes(const qfw_operand *param, const qfw_operand *state,
                                   const int32_t *m, const int32_t *v, const int32_t *g, size_t n,
                                   const qfw_move *move, const qfw_move *state_move,
                                   const uint32_t *u, const uint32_t *u_v)
{
    if (qfw_is_counted(param)) {
        qfw_see_codes(param, state, m, v, g, n, move, state_move, u, u_v);
    }
}

/* A tile of the float32 update of x, whose codes are m: value[i] was rounded to steps[i]. */
void qfw_see_floats(const qfw_call *call, const qfw_operand *x, ptrdiff_t scale, const int32_t *m,
                    const float *value, const int32_t *steps, size_t n, const qfw_code_rule *rule);

static inline void qfw_count_floats(const qfw_call *call, const qfw_operand *x, ptrdiff_t scale,
                                    const int32_t *m, const float *value, const int32_t *steps,
                                    size_t n, const qfw_code_rule *rule)
{
    if (qfw_is_counted(x)) {
        qfw_see_floats(call, x, scale, m, value, steps, n, rule);
    }
}

/* After a step: scale number `scale` was `before`. */
void qfw_see_scale(const qfw_operand *x, ptrdiff_t scale, float before);

static inline void qfw_count_scale(const qfw_operand *x, ptrdiff_t scale, float before)
{
    if (qfw_is_counted(x)) {
        qfw_see_scale(x, scale, before);
    }
}

#endif

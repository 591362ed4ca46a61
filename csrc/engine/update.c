/* The optimizer's step: docs/numerics.md section 17.
 *
 * update: parameter, gradient, state, flags (a byte for each scale of the parameter and the state),
 * the factor of all gradients
 * param[0..8], float32: momentum, kappa, weight decay, and the factors of the integer step: v, g, w
 * of the parameter; w of the state; g, w of the parameter in the first update.
 * param[12], float32: what lr is multiplied by, 0 standing for 1.
 * flags: 1 nesterov; 8 * the parameter's rounding. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/count.h"
#include "engine/moves.h"
#include "kernels/codes.h"

enum {
    MOMENTUM = QFW_MOMENTUM,
    KAPPA,
    DECAY,
    STEP_V,
    STEP_G,
    STEP_W,
    STATE_W,
    STEP_G1,
    STEP_W1,
    FACTORS
};

bool qfw_are_factors(const qfw_plan_op *op, uint32_t params)
{
    for (int i = 0; i < QFW_OP_PARAMS; i++) {
        const uint32_t bits = (params >> i & 1u) != 0 ? op->param[i] : 0;
        if (bits > QFW_F32_MAX || (bits != 0 && bits < QFW_F32_MIN_NORMAL)) {
            return false;
        }
    }
    return true;
}

bool qfw_is_clip(const qfw_operand *x)
{
    return x->plan == NULL || (x->n == 1 && x->plan->rows == QFW_NO_ROWS);
}

float qfw_clip_of(const qfw_operand *x)
{
    const float k = x->plan == NULL ? 1.0f : *(const float *)x->t.codes;
    return k < 1.0f ? qfw_normal_f32(k) : 1.0f;
}

float qfw_rate_of(const qfw_call *call)
{
    const float lr = call->progress.lr, ratio = qfw_param_f32(call->op, QFW_LR_PARAM);
    return qfw_bits_f32(ratio) == 0 ? lr : qfw_coef_mul(lr, ratio);
}

const char *qfw_update_fault(const qfw_call *call, const qfw_operand *param,
                             const qfw_operand *state, const qfw_operand *flags)
{
    if (!qfw_are_factors(call->op, ((1u << FACTORS) - 1) | 1u << QFW_LR_PARAM)) {
        return "coefficients";
    }
    if (qfw_rounding_of(call->op) > QFW_STOCHASTIC) {
        return "rounding";
    }
    const ptrdiff_t scales = param->scales + (state->plan != NULL ? state->scales : 0);
    if (param->plan->role != QFW_PARAMETER ||
        (state->plan != NULL && (state->n != param->n || state->plan->role != QFW_STATE))) {
        return "the state does not fit the parameter";
    }
    return scales > 0 && (flags->plan == NULL || flags->n < scales) ? "scratch" : NULL;
}

const char *qfw_rule_update(const qfw_call *call)
{
    if (call->at[0].n != call->at[1].n || call->at[1].plan->rows != QFW_NO_ROWS) {
        return "the sizes differ";
    }
    if (!qfw_is_clip(&call->at[4])) {
        return "the factor is not one number";
    }
    return qfw_update_fault(call, &call->at[0], &call->at[2], &call->at[3]);
}

/* ---- factors ---- */

/* factor * clip, which hardly ever is another. */
static float clipped(float factor, float clip)
{
    return qfw_bits_f32(clip) == QFW_F32_ONE ? factor : qfw_coef_mul(factor, clip);
}

/* lr times a factor; that of a plan that was checked is 0 or normal, and a factor often is 1. */
static float of_rate(float lr, float factor)
{
    const bool one = !QFW_ANY_PLAN && qfw_bits_f32(factor) == QFW_F32_ONE;
    return one ? lr : qfw_coef_mul(lr, factor);
}

qfw_factors qfw_factors_of(const qfw_call *call, float clip)
{
    const bool first = call->progress.updates == 0;
    const float lr = qfw_rate_of(call);
    const float kappa = first ? 1.0f : qfw_param_f32(call->op, KAPPA);
    const bool both = QFW_HAS_STATE || QFW_HAS_FLOAT_STEP; /* steps of more than the parameter */
    const bool by_w =
        QFW_HAS_ANY_MOVE; /* such as move rows only do not step by the parameter itself */
    const float step_g = of_rate(lr, qfw_param_f32(call->op, first ? STEP_G1 : STEP_G));
    const qfw_factors f = {
        both ? qfw_coef_mul(lr, qfw_param_f32(call->op, STEP_V)) : 0.0f,
        clipped(step_g, clip),
        by_w ? qfw_coef_mul(lr, qfw_param_f32(call->op, first ? STEP_W1 : STEP_W)) : 0.0f,
        qfw_param_f32(call->op, MOMENTUM),
        both ? clipped(kappa, clip) : 0.0f,
        qfw_param_f32(call->op, first ? DECAY : STATE_W),
        lr,
        kappa,
        clip,
    };
    return f;
}

static bool is_wide(const qfw_format *f)
{
    return f->bits == 32 || (qfw_is_asym(f->kind) && f->bits == 16);
}

/* ---- a range of a tensor ---- */

qfw_status qfw_move_range(const qfw_call *call, const qfw_operand *param, const qfw_operand *state,
                          const qfw_tensor *g, float clip, ptrdiff_t first, ptrdiff_t n,
                          uint8_t *flags, bool last)
{
    const bool has_state = QFW_HAS_STATE && state->plan != NULL;
    qfw_job j;
    memset(&j, 0, sizeof j);
    j.call = call;
    j.param = param;
    j.state = has_state ? state : NULL;
    j.g = g;
    j.first = first;
    j.f = qfw_factors_of(call, clip);
    j.rounding = (qfw_rounding)qfw_rounding_of(call->op);
    j.state_rounding = has_state ? (qfw_rounding)state->plan->rounding : QFW_HALF_AWAY;
    j.key = qfw_key_of(call, param);
    j.flags = flags;
    j.drawn = -1;
    const ptrdiff_t scales = param->scales + (has_state ? state->scales : 0);
    if (first == 0 && scales > 0) {
        memset(flags, 0, (size_t)scales);
    }
    qfw_start_scales(param, g, first, n, j.f.step_g, QFW_AS_GRADIENT);
    bool integers = param->plan->kind != QFW_FLOAT32 && g->format.kind != QFW_FLOAT32;
    j.wide = is_wide(&g->format);
    j.long_w = is_wide(&param->t.format);
    if (has_state) {
        j.state_key = qfw_key_of(call, state);
        qfw_start_scales(state, g, first, n, j.f.state_g, QFW_AS_GRADIENT);
        integers = integers && state->plan->kind != QFW_FLOAT32;
        j.long_v = is_wide(&state->t.format);
    }
    const bool counted = qfw_is_counted(param);
    j.bytes = !counted && qfw_is_bytes(&param->t.format) && qfw_is_bytes(&g->format) &&
              (!has_state || qfw_is_bytes(&state->t.format));
    j.plain = !counted && param->plan->kind == QFW_SYM && g->format.kind == QFW_SYM &&
              (!has_state || state->plan->kind == QFW_SYM);
    if (QFW_HAS_FLOAT_STEP && !integers) {
        qfw_move_floats(&j, first, first + n);
    } else if (QFW_DIRECT) {
        qfw_move_few(&j, first, first + n);
    } else {
        qfw_move_codes(&j, first, first + n);
    }
    if (last && param->scales > 0) {
        qfw_settle_scales(call, param, flags);
    }
    if (last && has_state && state->scales > 0) {
        qfw_settle_scales(call, state, flags + param->scales);
    }
    return QFW_OK;
}

qfw_status qfw_op_update(const qfw_call *call)
{
    return qfw_move_range(call, &call->at[0], &call->at[2], &call->at[1].t,
                          qfw_clip_of(&call->at[4]), 0, call->at[0].n, call->at[3].t.codes, true);
}

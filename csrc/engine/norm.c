#include "engine/norm.h"

uint64_t qfw_norm_most(const qfw_operand *x)
{
    return (UINT64_C(1) << (x->plan->bits - 1)) - 1;
}

bool qfw_norm_fits(const qfw_operand *x, uint64_t n)
{
    return n <= INT32_MAX && n * qfw_norm_most(x) <= INT32_MAX;
}

/* The smallest r with r^2 >= n. */
static uint64_t ceil_sqrt(uint64_t n)
{
    const uint64_t r = qfw_isqrt(n);
    return r * r < n ? r + 1 : r;
}

uint64_t qfw_norm_reach(uint64_t n, uint32_t frac)
{
    return (ceil_sqrt(n - 1) << frac) + 1;
}

const char *qfw_norm_eps_fault(const qfw_call *call, int param)
{
    const uint32_t eps = call->op->param[param];
    return eps <= QFW_F32_MAX && (eps == 0 || eps >= QFW_F32_MIN_NORMAL) ? NULL : "eps";
}

const char *qfw_norm_back_fault(const qfw_operand *g, const qfw_operand *x, uint64_t n,
                                uint32_t frac, uint32_t down)
{
    if (!qfw_norm_fits(g, n) || !qfw_norm_fits(x, n) || frac < 6 || frac > 16 || down > 31 ||
        qfw_norm_reach(n, frac) > UINT64_C(1) << 25) {
        return "headroom";
    }
    const uint64_t most = 128 * n * ceil_sqrt(n) * qfw_norm_most(g); /* < 2^38 * 2^16 */
    return most <= UINT64_C(1) << (30 + down) ? NULL : "headroom";
}

float qfw_norm_back_scale(float s_g, float s_x, qfw_root root, int32_t down)
{
    const float scale = qfw_scale_mul(qfw_scale_quot(s_g, s_x), (float)(int32_t)root.rho);
    return qfw_scale_lift(scale, down - 6 + root.exp);
}

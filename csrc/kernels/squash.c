/* Sigmoid and tanh: docs/numerics.md section 34. */
#include "base/elementary.h"
#include "base/round.h"
#include "kernels/kernels.h"

enum { ONE = 1 << 30 };

/* e = 2^30 e^-|x|, of tanh e^-2|x|, is at most 2^30, so 2^30 <= r <= 2^31: r / 2^31 is 1 / (1 + e),
 * and tanh is 2 / (1 + e) - 1. */
void qfw_squash_s32_scalar(const int32_t *m, const qfw_log2_scale *s, size_t n, qfw_squash kind,
                           int32_t *y)
{
    for (size_t i = 0; i < n; i++) {
        const qfw_log2_scale at = {s[i].mu, s[i].shift + (kind == QFW_TANH ? 1 : 0)};
        const uint32_t e = qfw_exp2_q30(qfw_distance(qfw_abs32(m[i]), &at));
        const uint32_t r = (uint32_t)((UINT64_C(1) << 61) / (ONE + e));
        if (kind == QFW_SIGMOID) {
            const int32_t p = (int32_t)((r + 1) >> 1);
            y[i] = m[i] < 0 ? ONE - p : p;
        } else {
            const int32_t p = (int32_t)(r - ONE);
            y[i] = m[i] < 0 ? -p : p;
        }
    }
}

/* Where e^-x is infinite or e^x below FLT_MIN the quotient is 0. */
static float sigmoid_of(float x)
{
    return qfw_div_f32(1.0f, 1.0f + qfw_exp_f32(-x));
}

/* Near 0 x + x^3 p(x^2), p a minimax polynomial: e^-2x is too close to 1 there. */
static float tanh_of(float x)
{
    const float size = x < 0.0f ? -x : x;
    if (size < 0.625f) {
        const float z = x * x;
        float p = -0x1.75e1ccp-8f;
        p = p * z + 0x1.52269cp-6f;
        p = p * z - 0x1.b83c5ap-5f;
        p = p * z + 0x1.110726p-3f;
        p = p * z - 0x1.555532p-2f;
        return (x * z) * p + x;
    }
    const float e = qfw_exp_f32(-2.0f * size);
    const float y = qfw_div_f32(1.0f - e, 1.0f + e);
    return x < 0.0f ? -y : y;
}

void qfw_squash_f32_scalar(const float *x, size_t n, qfw_squash kind, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kind == QFW_SIGMOID ? sigmoid_of(x[i]) : tanh_of(x[i]);
    }
}

/* Trains and asks the net of model_image.c. Ends with 0 if all went well. */
#include "model_image.h"

/* Where samples come from: here a ramp for each class stands for a sensor. x has MODEL_INPUTS
 * floats, y what model_image.h says. */
static void sample(uint32_t number, float *x, void *y)
{
    static const float ramp[8] = {0.0f, 0.125f, 0.25f, 0.375f, 0.5f, 0.625f, 0.75f, 0.875f};
    const uint32_t kind = number % 2;
    for (uint32_t i = 0; i < MODEL_INPUTS; i++) {
        x[i] = ramp[(i + kind * 3) % 8];
    }
    for (int i = 0; i < MODEL_LABELS; i++) {
        ((int32_t *)y)[i] = (int32_t)(MODEL_LABELS == 1 ? kind : 0);
    }
}

#define ALIGNED __attribute__((aligned(QFW_ALIGN)))

static ALIGNED uint8_t arena[MODEL_ARENA_BYTES];
static float x[MODEL_INPUTS], out[MODEL_OUTPUTS];
static int32_t y[MODEL_LABELS];

int main(void)
{
    qfw_net *net;
    qfw_status status = qfw_open(arena, sizeof arena, &model_image, &net);
    if (status != QFW_OK) {
        return (int)status;
    }
    union {
        float value;
        uint32_t bits; /* those of floats from 0 on are in their order */
    } loss = {0.0f};
    uint32_t first = 0;
    for (uint32_t i = 0; i < 20; i++) {
        sample(i, x, y);
        status = qfw_step(net, x, y, 1, &loss.value);
        if (status != QFW_OK) {
            return (int)status;
        }
        first = i == 0 ? loss.bits : first;
    }
    status = qfw_infer(net, x, 1, out);
    return status != QFW_OK ? (int)status : loss.bits <= first ? 0 : 100;
}

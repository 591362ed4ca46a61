/* Asks the net of model_image.c. Ends with 0 if all went well. */
#include "model_image.h"

/* Where samples come from: here a ramp stands for a sensor. x has MODEL_INPUTS floats. */
static void sample(uint32_t number, float *x)
{
    for (int i = 0; i < MODEL_INPUTS; i++) {
        x[i] = (float)((i + (int)number) % 16) / 16.0f;
    }
}

#define ALIGNED __attribute__((aligned(QFW_ALIGN)))

static ALIGNED uint8_t arena[MODEL_ARENA_BYTES];
static float x[MODEL_INPUTS], out[MODEL_OUTPUTS];

int main(void)
{
    qfw_net *net;
    qfw_status status = qfw_open(arena, sizeof arena, &model_image, &net);
    for (uint32_t i = 0; i < 20 && status == QFW_OK; i++) {
        sample(i, x);
        status = qfw_infer(net, x, 1, out);
    }
    return (int)status;
}

#include "harness.h"

#define ALIGNED __attribute__((aligned(QFW_ALIGN)))
enum { LABELS = MODEL_LABELS > 0 ? MODEL_LABELS : 1 };

ALIGNED uint8_t mcu_arena[MODEL_ARENA_BYTES];
ALIGNED uint8_t mcu_x[4 * MODEL_INPUTS * MODEL_ROWS];
ALIGNED uint8_t mcu_y[4 * LABELS * MODEL_ROWS];
float mcu_out[MODEL_OUTPUTS * MODEL_ROWS], mcu_loss;
uint32_t mcu_command[MCU_WORDS];
qfw_progress mcu_progress;
static qfw_net *net;

static qfw_status with_progress(qfw_status status)
{
    const qfw_status told = qfw_get_progress(net, &mcu_progress);
    return status != QFW_OK ? status : told;
}

/* And a walk over nothing: what the first does once is no step's. */
qfw_status mcu_open(void)
{
    const qfw_io none = {NULL, NULL, NULL, 0};
    uint32_t done;
    qfw_status status = qfw_open(mcu_arena, sizeof mcu_arena, &model_image, &net);
    status = status != QFW_OK ? status : qfw_walk(net, &none, 1, 0, 0, &done);
    return status != QFW_OK ? status : with_progress(status);
}

qfw_status mcu_step(uint32_t rows)
{
    return with_progress(qfw_step(net, mcu_x, mcu_y, rows, &mcu_loss));
}

qfw_status mcu_walk(void)
{
    const uint32_t *walk = mcu_command, at = walk[MCU_AT];
    const qfw_io io = {mcu_x + 4 * MODEL_INPUTS * at, mcu_y + 4 * MODEL_LABELS * at, mcu_out,
                       walk[MCU_STEP_ROWS]};
    uint32_t done;
    return with_progress(
        qfw_walk(net, &io, walk[MCU_ROWS], walk[MCU_FIRST], walk[MCU_COUNT], &done));
}

qfw_status mcu_infer(void)
{
    return qfw_infer(net, mcu_x, 1, mcu_out);
}

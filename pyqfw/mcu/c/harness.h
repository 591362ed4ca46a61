/* What an emulator drives: the net of model_image.c, with the caller's buffers beside it. */
#ifndef QFW_CROSS_HARNESS_H
#define QFW_CROSS_HARNESS_H

#include "model_image.h"

extern uint8_t mcu_arena[MODEL_ARENA_BYTES], mcu_x[], mcu_y[];
extern float mcu_out[MODEL_OUTPUTS * MODEL_ROWS], mcu_loss;
extern qfw_progress mcu_progress; /* after mcu_open, mcu_step and mcu_walk */

qfw_status mcu_open(void);
qfw_status mcu_step(uint32_t rows);

/* The operations that mcu_command says: first .. first + count - 1, over `rows` rows at row `at` of a
 * step of step_rows. */
qfw_status mcu_walk(void);
enum { MCU_AT, MCU_ROWS, MCU_STEP_ROWS, MCU_FIRST, MCU_COUNT, MCU_WORDS };
extern uint32_t mcu_command[MCU_WORDS];

/* One row. */
qfw_status mcu_infer(void);

#endif

/* The cases of steps.json as step.py writes them. Floats are bit patterns; bytes are aligned as the
 * core wants them. */
#ifndef STEP_H
#define STEP_H

#include <stddef.h>
#include <stdint.h>

enum { STEP_STEPS = 3, STEP_OUTPUTS = 8 };

typedef struct {
    const void *x, *y;
    uint32_t rows;
} step_data;

typedef struct {
    const char *name;
    const void *plan, *constants, *state; /* the image; state: where the session stood */
    uint32_t plan_bytes, const_bytes, state_bytes, arena_bytes;
    uint32_t steps_before;
    const void *targets[STEP_STEPS];               /* of each step; NULL: labels */
    uint32_t losses[STEP_STEPS], crcs[STEP_STEPS]; /* crcs: of what lasts, after each step */
    uint32_t outputs[STEP_OUTPUTS];
} step_case;

extern const step_case step_cases[];
extern const unsigned step_cases_count;

/* The same for every case. */
extern const step_data step_steps[STEP_STEPS], step_asked;

/* Larger than any case needs. */
extern uint8_t step_arena[];
extern const size_t step_arena_bytes;

#endif

/* Choosing among elements: the definitions. */
#include "kernels/select.h"

void qfw_lines_max_s32_scalar(const qfw_lines *lines, int32_t tap, int32_t *best, int32_t *pick)
{
    select_max_s32(lines, tap, best, pick);
}

void qfw_lines_max_f32_scalar(const qfw_lines *lines, int32_t tap, float *best, int32_t *pick)
{
    select_max_f32(lines, tap, best, pick);
}

void qfw_lines_place_s32_scalar(const qfw_lines *lines, const int32_t *pick, int32_t tap, void *out)
{
    select_place_s32(lines, pick, tap, out);
}

void qfw_lines_place_f32_scalar(const qfw_lines *lines, const int32_t *pick, int32_t tap,
                                float *out)
{
    select_place_f32(lines, pick, tap, out);
}

/* Loops that choose among elements. select.c is the definition; select_<isa>.c are the same lines
 * for a larger instruction set. */
#ifndef QFW_KERNELS_SELECT_H
#define QFW_KERNELS_SELECT_H

#include "kernels/kernels.h"

/* ---- the largest: the widths are constants at each call ---- */

static inline int32_t select_at(const void *x, int32_t width, size_t i)
{
    return width == 8    ? ((const int8_t *)x)[i]
           : width == 16 ? ((const int16_t *)x)[i]
                         : ((const int32_t *)x)[i];
}

/* b where `takes` is all ones, a where it is 0: nothing to guess for a branch. */
static inline int32_t select_of(int32_t a, int32_t b, int32_t takes)
{
    return a ^ ((a ^ b) & takes);
}

static inline void select_max_of(const qfw_lines *l, int32_t width, int32_t tap,
                                 int32_t *restrict best, int32_t *restrict pick)
{
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            const int32_t v = select_at(l->x, width, i * l->x_row + j);
            const size_t at = i * l->y_row + j;
            const int32_t takes = -(int32_t)((v > best[at]) | (pick[at] < 0));
            best[at] = select_of(best[at], v, takes);
            pick[at] = select_of(pick[at], tap, takes);
        }
    }
}

static inline void select_max_s32(const qfw_lines *l, int32_t tap, int32_t *best, int32_t *pick)
{
    if (l->x_width == 8) {
        select_max_of(l, 8, tap, best, pick);
    } else if (l->x_width == 16) {
        select_max_of(l, 16, tap, best, pick);
    } else {
        select_max_of(l, 32, tap, best, pick);
    }
}

/* A NaN is larger than anything. */
static inline void select_max_f32(const qfw_lines *l, int32_t tap, float *restrict best,
                                  int32_t *restrict pick)
{
    const float *x = l->x;
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            const float v = x[i * l->x_row + j];
            const size_t at = i * l->y_row + j;
            const int32_t takes = -(int32_t)((v > best[at]) | (v != v) | (pick[at] < 0));
            const uint32_t a = qfw_bits_f32(best[at]), b = qfw_bits_f32(v);
            best[at] = qfw_from_bits_f32(a ^ ((a ^ b) & (uint32_t)takes));
            pick[at] = select_of(pick[at], tap, takes);
        }
    }
}

/* ---- and the way back ---- */

static inline void select_place_s32(const qfw_lines *l, const int32_t *restrict pick, int32_t tap,
                                    void *restrict out)
{
    const int32_t *x = l->x;
    for (size_t i = 0; i < l->count; i++) {
        const int32_t *x_i = x + i * l->x_row, *pick_i = pick + i * l->x_row;
        if (l->y_width == 8) {
            int8_t *to = (int8_t *)out + i * l->y_row;
            for (size_t j = 0; j < l->n; j++) {
                to[j] = (int8_t)(pick_i[j] == tap ? x_i[j] : 0);
            }
        } else if (l->y_width == 16) {
            int16_t *to = (int16_t *)out + i * l->y_row;
            for (size_t j = 0; j < l->n; j++) {
                to[j] = (int16_t)(pick_i[j] == tap ? x_i[j] : 0);
            }
        } else {
            int32_t *to = (int32_t *)out + i * l->y_row;
            for (size_t j = 0; j < l->n; j++) {
                to[j] += pick_i[j] == tap ? x_i[j] : 0;
            }
        }
    }
}

/* Adding +0 changes no sum that began at +0. */
static inline void select_place_f32(const qfw_lines *l, const int32_t *restrict pick, int32_t tap,
                                    float *restrict out)
{
    const float *x = l->x;
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            const size_t at = i * l->x_row + j;
            out[i * l->y_row + j] += pick[at] == tap ? x[at] : 0.0f;
        }
    }
}

#endif

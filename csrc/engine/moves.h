/* The step of a range of elements: what the integer and the float32 one share. */
#ifndef QFW_ENGINE_MOVES_H
#define QFW_ENGINE_MOVES_H

#include "engine/lasting.h"
#include "engine/moves_rows.h"
#include "kernels/codes.h"

/* Of the operation: numbers of parameters, and a flag. */
enum { QFW_MOMENTUM = 0, QFW_DECAY = 2, QFW_NESTEROV = 1 };

/* Of a state, where there are any. */
enum { QFW_STATE_TILE = QFW_HAS_STATE ? QFW_TILE : 1 };

/* Plain int8. */
static inline bool qfw_is_bytes(const qfw_format *f)
{
    return f->kind == QFW_SYM && qfw_slot(f) == 8;
}

/* Where a walk over the elements of a tensor is: the scale, and how long it still holds. */
typedef struct {
    const qfw_layout *layout; /* NULL: there are no scales */
    const float *of;
    ptrdiff_t scales, run; /* how many, and qfw_even_run */
    ptrdiff_t scale, left;
} qfw_cursor;

/* Of the parameter, the gradient and the state, at the stretch that comes next. */
typedef struct {
    qfw_cursor w, g, v;
} qfw_cursors;

typedef struct {
    const qfw_call *call;
    const qfw_operand *param, *state; /* state NULL: none */
    const qfw_tensor *g;
    ptrdiff_t first;     /* the element that g begins with */
    bool wide;           /* g has codes of more than 16 bits */
    bool long_w, long_v; /* the parameter, the state has: Asym(16), minus its zero point */
    bool bytes;          /* all codes are plain int8, and are not counted */
    bool plain;          /* all are Sym, and are not counted */
    qfw_factors f;
    qfw_rounding rounding, state_rounding;
    qfw_key key, state_key;
    uint8_t *flags;
    qfw_cursors *at;
    ptrdiff_t drawn; /* the element that u and u_v begin with; -1: none yet */
    uint32_t u[QFW_TILE], u_v[QFW_STATE_TILE];
} qfw_job;

/* Elements that have one scale in each tensor, and the scales' numbers. */
typedef struct {
    ptrdiff_t at, n, param, g, state;
} qfw_stretch;

/* Begins a walk over the elements from first on; then, stretch by stretch, the one that begins with
 * element i, where the last one ended, and ends before `end`. */
void qfw_begin_stretches(qfw_job *j, ptrdiff_t first, qfw_cursors *at);
qfw_stretch qfw_next_stretch(qfw_job *j, ptrdiff_t i, ptrdiff_t end);

/* Words for the tile that element i lies in; returns i's place in them. */
size_t qfw_draw_words(qfw_job *j, ptrdiff_t i);

/* Any codes of a stretch, a tile at a time; returns what update_s32 does. */
uint32_t qfw_move_tiles(qfw_job *j, const qfw_stretch *s, const qfw_move *move,
                        const qfw_move *state_move);

/* Marks the scales where a value left its codes: events as update_s32 returns them. */
void qfw_flag(const qfw_job *j, const qfw_stretch *s, uint32_t events);

/* The integer and the float32 step of elements first .. end - 1. */
void qfw_move_codes(qfw_job *j, ptrdiff_t first, ptrdiff_t end);
void qfw_move_few(qfw_job *j, ptrdiff_t first, ptrdiff_t end);
void qfw_move_floats(qfw_job *j, ptrdiff_t first, ptrdiff_t end);

/* The integer step of all n elements, where some tensor has a scale for each and no other has several;
 * false: it is no such step. */
bool qfw_move_singles(const qfw_job *j, ptrdiff_t n);

#endif

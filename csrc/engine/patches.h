/* An image [rows][in_h][in_w][channels] as a matrix: row i is what a window meets at position i of
 * its result, [kernel_h][kernel_w][channels of a group], zeros where it reaches beyond the image. */
#ifndef QFW_ENGINE_PATCHES_H
#define QFW_ENGINE_PATCHES_H

#include "engine/engine.h"

typedef struct {
    const qfw_window *window;
    const uint8_t *image;
    ptrdiff_t channels;
    ptrdiff_t bytes; /* of an element: 1, 2 or 4 */
    uint8_t *scratch;
    ptrdiff_t scratch_bytes;
    ptrdiff_t line; /* the image's line that scratch has a padded copy of; -1: none */
} qfw_patches;

/* Rows of a matrix that lie `row` elements apart, and columns that lie `col` apart. */
typedef struct {
    const void *x;
    size_t row, col;
    ptrdiff_t n;
} qfw_stretch;

static inline ptrdiff_t qfw_taps(const qfw_window *w)
{
    return (ptrdiff_t)w->kernel_h * w->kernel_w;
}

static inline ptrdiff_t qfw_in_positions(const qfw_window *w)
{
    return (ptrdiff_t)w->in_h * w->in_w;
}

static inline ptrdiff_t qfw_out_positions(const qfw_window *w)
{
    return (ptrdiff_t)w->out_h * w->out_w;
}

/* The least scratch, in bytes: one row, or nothing where all rows can be read in place. */
ptrdiff_t qfw_patch_bytes(const qfw_window *w, ptrdiff_t channels, ptrdiff_t bytes);

/* Some of the rows from `first` on, at least one and at most `most`, for a group of channels: in
 * place or, until the next call, in scratch. */
qfw_stretch qfw_patches_at(qfw_patches *p, ptrdiff_t group, ptrdiff_t first, ptrdiff_t most);

#endif

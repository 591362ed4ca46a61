/* What pools share: a walk over the result of a window, a few elements at a time. */
#ifndef QFW_ENGINE_POOL_H
#define QFW_ENGINE_POOL_H

#include "engine/window.h"

/* Elements that are worked on at a time. */
enum { QFW_PIECE = 2 * QFW_TILE };

/* Channels c .. c + n - 1 of positions x .. x + count - 1 of a line of the result: one position, or
 * all channels of some. They lie one behind the other, and pieces come in the order of memory. */
typedef struct {
    ptrdiff_t sample, y, x, count, c, n;
} qfw_piece;

/* The piece after p, the first one after zeros; false: there is none. */
static inline bool qfw_next_piece(const qfw_window *w, ptrdiff_t rows, ptrdiff_t channels,
                                  qfw_piece *p)
{
    p->c += p->n;
    if (p->c >= channels) {
        p->c = 0;
        p->x += p->count;
    }
    if (p->x >= w->out_w) {
        p->x = 0;
        p->y++;
    }
    if (p->y >= w->out_h) {
        p->y = 0;
        p->sample++;
    }
    const ptrdiff_t most = channels < QFW_PIECE ? QFW_PIECE / channels : 1;
    p->n = channels - p->c < QFW_PIECE ? channels - p->c : QFW_PIECE;
    p->count = w->out_w - p->x < most ? w->out_w - p->x : most;
    return p->sample < rows;
}

/* The first element of a piece in the result; of pixel x of row y of its image. */
static inline ptrdiff_t qfw_piece_at(const qfw_window *w, const qfw_piece *p, ptrdiff_t channels)
{
    return ((p->sample * w->out_h + p->y) * w->out_w + p->x) * channels + p->c;
}

static inline ptrdiff_t qfw_pixel_at(const qfw_window *w, const qfw_piece *p, ptrdiff_t channels,
                                     ptrdiff_t y, ptrdiff_t x)
{
    return ((p->sample * w->in_h + y) * w->in_w + x) * channels + p->c;
}

/* Positions first .. first + n - 1 of a piece whose pixels at column v of the kernel are inside the
 * image, and the first of these. */
typedef struct {
    ptrdiff_t first, n, pixel;
} qfw_pixels;

static inline qfw_pixels qfw_pixels_of(const qfw_window *w, const qfw_piece *p, ptrdiff_t v)
{
    const ptrdiff_t at = p->x * w->stride_w - w->pad_w + v * w->dilation_w;
    ptrdiff_t first = 0, end = p->count;
    while (first < end && at + first * w->stride_w < 0) {
        first++;
    }
    while (end > first && at + (end - 1) * w->stride_w >= w->in_w) {
        end--;
    }
    const qfw_pixels c = {first, end - first, at + first * w->stride_w};
    return c;
}

/* Channels of an image, and of what a pool makes of it. */
static inline ptrdiff_t qfw_channels_of(const qfw_call *call, const qfw_operand *image)
{
    return image->row / qfw_in_positions(call->window);
}

/* What is wrong with the sizes of an image and of the result of the window. */
const char *qfw_pool_fault(const qfw_call *call, const qfw_operand *image,
                           const qfw_operand *result);

/* Whether `pick` has one for each of `of`, which tells all taps of the window apart. */
bool qfw_is_pick(const qfw_window *w, const qfw_operand *pick, const qfw_operand *of);

/* The largest sums of each window of one sample, in place: at their beginning. No window leaves the
 * image. picks (NULL: none): where they came from, the first as number `first`. */
void qfw_pool_sums(const qfw_kernels *kernels, const qfw_window *w, int32_t *sums,
                   ptrdiff_t channels, const qfw_operand *picks, ptrdiff_t first);

/* Whether every window lies in the image, and the core is a device's. */
bool qfw_pools_directly(const qfw_window *w);

/* The results of max_pool, and its picks if there are; elements of `width` bits that are no floats. By
 * itself: as a part of its caller it lacks registers. */
__attribute__((noinline)) void qfw_max_pool_directly(const qfw_call *call, int32_t width);

/* The sums of avg_pool_s32 and the largest magnitude among them; false: it does not do these. */
bool qfw_sum_pool_directly(const qfw_call *call, uint32_t *absmax);

#endif

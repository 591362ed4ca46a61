/* The largest of each window, and its error's way back: docs/numerics.md section 35.
 *
 * max_pool: result, image, picks. max_pool_back: error of the image, error, picks. */
#include "engine/pool.h"
#include "base/pack.h"
#include "kernels/codes.h"

const char *qfw_pool_fault(const qfw_call *call, const qfw_operand *image,
                           const qfw_operand *result)
{
    const qfw_window *w = call->window;
    if (w == NULL || w->groups != 1) {
        return "window";
    }
    const ptrdiff_t positions = qfw_in_positions(w);
    const bool rows = image->plan->rows != QFW_NO_ROWS && result->plan->rows != QFW_NO_ROWS;
    return rows && image->row % positions == 0 &&
                   result->row == qfw_times(image->row / positions, qfw_out_positions(w))
               ? NULL
               : "the sizes differ";
}

static bool is_sums(const qfw_operand *x)
{
    return x->plan->kind == QFW_SYM && x->plan->bits == 32;
}

/* Bits of an element that has whole bytes. */
static int32_t width_of(const qfw_operand *x)
{
    return x->plan->kind == QFW_FLOAT32 ? 32 : qfw_slot(&x->t.format);
}

/* ---- forward ---- */

bool qfw_is_pick(const qfw_window *w, const qfw_operand *pick, const qfw_operand *of)
{
    return pick->n == of->n && pick->plan->rows != QFW_NO_ROWS &&
           qfw_taps(w) <= INT64_C(1) << pick->plan->bits;
}

/* Sums with a scale for each channel, at both places. */
static const char *sums_fault(const qfw_call *call)
{
    const qfw_operand *y = &call->at[0], *x = &call->at[1];
    const ptrdiff_t channels = qfw_channels_of(call, x);
    const bool each = x->plan->rows == QFW_ROWS_OUTER;
    const char *broken = qfw_acc_fault(x, qfw_times(call->rows, qfw_in_positions(call->window)),
                                       channels, false, each);
    return broken != NULL ? broken
                          : qfw_acc_fault(y, qfw_times(call->rows, qfw_out_positions(call->window)),
                                          channels, false, each);
}

const char *qfw_rule_max_pool(const qfw_call *call)
{
    const qfw_operand *y = &call->at[0], *x = &call->at[1];
    const char *broken = qfw_pool_fault(call, x, y);
    if (broken == NULL) {
        const bool both = is_sums(y) && is_sums(x);
        broken = both ? sums_fault(call) : qfw_alike_fault(y, x);
    }
    if (broken == NULL && qfw_has(call, 2) && !qfw_is_pick(call->window, &call->at[2], y)) {
        broken = "picks";
    }
    return broken;
}

/* An image whose windows are looked at. */
typedef struct {
    const qfw_kernels *kernels;
    const qfw_window *window;
    const void *codes;
    int32_t width;
    bool floats;
    ptrdiff_t channels;
} source;

/* The largest of each window of a piece, or 0 where none of its pixels is in the image. */
static void largest_of(const source *x, const qfw_piece *p, int32_t *best, int32_t *pick)
{
    const qfw_window *w = x->window;
    const ptrdiff_t channels = x->channels;
    const int32_t width = x->width;
    memset(best, 0, (size_t)(p->count * p->n) * sizeof *best); /* +0.0f is the pattern 0 too */
    memset(pick, 0xFF, (size_t)(p->count * p->n) * sizeof *pick);
    for (ptrdiff_t tap = 0, u = 0; u < w->kernel_h; u++) {
        const ptrdiff_t row = qfw_image_row(w, p->y, u);
        for (ptrdiff_t v = 0; v < w->kernel_w; v++, tap++) {
            const qfw_pixels c = qfw_pixels_of(w, p, v);
            if (row < 0 || c.n < 1) {
                continue;
            }
            const ptrdiff_t from = qfw_pixel_at(w, p, channels, row, c.pixel), to = c.first * p->n;
            const qfw_lines lines = {
                qfw_element(x->codes, width, from), width,       32, (size_t)p->n, (size_t)c.n,
                (size_t)(w->stride_w * channels),   (size_t)p->n};
            if (x->floats) {
                QFW_K(x->kernels, lines_max_f32)(&lines, (int32_t)tap, (float *)(void *)best + to,
                                                 pick + to);
            } else {
                QFW_K(x->kernels, lines_max_s32)(&lines, (int32_t)tap, best + to, pick + to);
            }
        }
    }
}

/* The result may take the place of the image's codes (docs/format.md): without padding position p
 * reads no pixel before number p, so what is written lies before all that is still to be read. Scales
 * come last. */
qfw_status qfw_op_max_pool(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const qfw_operand *y = &call->at[0], *x = &call->at[1], *picks = &call->at[2];
    const ptrdiff_t channels = qfw_channels_of(call, x);
    const source image = {call->kernels, w, x->t.codes, width_of(x), x->plan->kind == QFW_FLOAT32,
                          channels};
    int32_t best[QFW_PIECE], pick[QFW_PIECE];
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    if (qfw_has(call, 2)) {
        ((uint8_t *)picks->t.codes)[qfw_codes_bytes(picks) - 1] = 0; /* after the last one */
    }
    const bool directly = QFW_DIRECT && x->plan->kind != QFW_FLOAT32 && qfw_pools_directly(w);
    if (directly) {
        qfw_max_pool_directly(call, width_of(x));
    }
    while (!directly && qfw_next_piece(w, call->rows, channels, &p)) {
        const ptrdiff_t at = qfw_piece_at(w, &p, channels);
        const size_t n = (size_t)(p.count * p.n);
        largest_of(&image, &p, best, pick);
        if (width_of(y) == 32) {
            memcpy((int32_t *)y->t.codes + at, best, n * sizeof *best);
        } else {
            qfw_store_codes(&y->t, at, n, best);
        }
        if (qfw_has(call, 2)) {
            qfw_pack_tile(picks->t.codes, (uint64_t)at, n, picks->plan->bits, pick);
        }
    }
    if (y->scales > 0) {
        memcpy(y->t.scale, x->t.scale, (size_t)y->scales * sizeof *y->t.scale);
    }
    if (is_sums(y)) {
        const bool each = y->plan->rows == QFW_ROWS_OUTER;
        const qfw_finish finish = {NULL, NULL, false, each, NULL, 0, y->absmax};
        memset(y->absmax, 0, (size_t)y->scales * sizeof *y->absmax);
        QFW_K(call->kernels, finish_s32)(y->t.codes, (size_t)(y->n / channels), (size_t)channels,
                                         &finish);
    }
    return QFW_OK;
}

/* In place, as above: a position is written when all that is read later lies behind it. */
void qfw_pool_sums(const qfw_kernels *kernels, const qfw_window *w, int32_t *sums,
                   ptrdiff_t channels, const qfw_operand *picks, ptrdiff_t first)
{
    const source image = {kernels, w, sums, 32, false, channels};
    int32_t best[QFW_PIECE], pick[QFW_PIECE];
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    while (qfw_next_piece(w, 1, channels, &p)) {
        const ptrdiff_t at = qfw_piece_at(w, &p, channels);
        const size_t n = (size_t)(p.count * p.n);
        largest_of(&image, &p, best, pick);
        memcpy(sums + at, best, n * sizeof *best);
        if (picks != NULL) {
            qfw_pack_tile(picks->t.codes, (uint64_t)(first + at), n, picks->plan->bits, pick);
        }
    }
}

/* ---- back ---- */

/* Whether no two positions meet one pixel. */
static bool is_apart(const qfw_window *w)
{
    const int64_t reach_h = w->dilation_h * (w->kernel_h - INT64_C(1)) + 1;
    const int64_t reach_w = w->dilation_w * (w->kernel_w - INT64_C(1)) + 1;
    return (w->out_h == 1 || w->stride_h >= reach_h) && (w->out_w == 1 || w->stride_w >= reach_w);
}

const char *qfw_rule_max_pool_back(const qfw_call *call)
{
    const qfw_operand *dx = &call->at[0], *e = &call->at[1];
    const char *broken = qfw_pool_fault(call, dx, e);
    if (broken != NULL) {
        return broken;
    }
    if (!qfw_is_pick(call->window, &call->at[2], e)) {
        return "picks";
    }
    if (!is_sums(dx)) { /* floats are added */
        broken = qfw_alike_fault(dx, e);
        return broken != NULL || is_apart(call->window) || dx->plan->kind == QFW_FLOAT32
                   ? broken
                   : "windows overlap";
    }
    if (e->plan->kind == QFW_FLOAT32) {
        return "the formats differ";
    }
    const bool one = dx->plan->rows == QFW_ROWS_AXIS && e->plan->rows == QFW_ROWS_AXIS;
    const uint64_t most = (UINT64_C(1) << (e->plan->bits - 1)) - 1;
    return !one                                                  ? "more than one scale"
           : (uint64_t)qfw_taps(call->window) * most > INT32_MAX ? "headroom"
                                                                 : NULL;
}

/* Each error to the pixel that was picked. From the last column of the kernel to the first, so that
 * what meets a pixel is added in ascending positions. */
static void place(const qfw_call *call, const qfw_piece *p, const int32_t *e, const int32_t *pick)
{
    const qfw_window *w = call->window;
    const qfw_operand *dx = &call->at[0];
    const ptrdiff_t channels = qfw_channels_of(call, dx);
    const int32_t width = width_of(dx);
    const bool floats = dx->plan->kind == QFW_FLOAT32;
    for (ptrdiff_t u = 0; u < w->kernel_h; u++) {
        const ptrdiff_t row = qfw_image_row(w, p->y, u);
        for (ptrdiff_t v = w->kernel_w - 1; v >= 0 && row >= 0; v--) {
            const qfw_pixels c = qfw_pixels_of(w, p, v);
            const int32_t tap = (int32_t)(u * w->kernel_w + v);
            const ptrdiff_t from = c.first * p->n;
            if (c.n < 1) {
                continue;
            }
            const qfw_lines lines = {e + from,
                                     32,
                                     width,
                                     (size_t)p->n,
                                     (size_t)c.n,
                                     (size_t)p->n,
                                     (size_t)(w->stride_w * channels)};
            uint8_t *to =
                (uint8_t *)dx->t.codes + qfw_pixel_at(w, p, channels, row, c.pixel) * (width / 8);
            if (floats) {
                QFW_K(call->kernels, lines_place_f32)(&lines, pick + from, tap,
                                                      (float *)(void *)to);
            } else {
                QFW_K(call->kernels, lines_place_s32)(&lines, pick + from, tap, to);
            }
        }
    }
}

/* Where no two windows meet and all lie in the image, each code is written where it belongs, all
 * else being 0; `offset` tells how far a tap's pixel is from the window's first. */
enum { MOST_BITS = QFW_DIRECT ? 4 : 6, MOST_TAPS = 1 << MOST_BITS };

static void place_codes(const qfw_call *call, const qfw_piece *p, const int32_t *e,
                        const int32_t *pick, const int32_t *offset)
{
    const qfw_window *w = call->window;
    const qfw_operand *dx = &call->at[0];
    const ptrdiff_t channels = qfw_channels_of(call, dx);
    ptrdiff_t at = qfw_pixel_at(w, p, channels, p->y * w->stride_h, p->x * w->stride_w);
    for (ptrdiff_t i = 0; i < p->count; i++, at += w->stride_w * channels) {
        for (ptrdiff_t j = 0; j < p->n; j++, e++, pick++) {
            const ptrdiff_t to = at + offset[*pick] + j;
            if (width_of(dx) == 8) {
                ((int8_t *)dx->t.codes)[to] = (int8_t)*e;
            } else {
                ((int16_t *)dx->t.codes)[to] = (int16_t)*e;
            }
        }
    }
}

/* Whether place_codes can. Picks of more bits than the taps need may be those of another window: they
 * stay in the table, and in the image. */
static bool offsets_of(const qfw_call *call, int32_t *offset)
{
    const qfw_window *w = call->window;
    const ptrdiff_t channels = qfw_channels_of(call, &call->at[0]);
    const ptrdiff_t high =
        (ptrdiff_t)(w->out_h - 1) * w->stride_h + (w->kernel_h - 1) * w->dilation_h;
    const ptrdiff_t wide =
        (ptrdiff_t)(w->out_w - 1) * w->stride_w + (w->kernel_w - 1) * w->dilation_w;
    if (width_of(&call->at[0]) == 32 || call->at[2].plan->bits > MOST_BITS ||
        (w->pad_h | w->pad_w) != 0 || high >= w->in_h || wide >= w->in_w) {
        return false;
    }
    memset(offset, 0, MOST_TAPS * sizeof *offset);
    for (ptrdiff_t tap = 0; tap < qfw_taps(w); tap++) {
        const ptrdiff_t u = tap / w->kernel_w * w->dilation_h,
                        v = tap % w->kernel_w * w->dilation_w;
        offset[tap] = (int32_t)((u * w->in_w + v) * channels);
    }
    return true;
}

qfw_status qfw_op_max_pool_back(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const qfw_operand *dx = &call->at[0], *e = &call->at[1], *picks = &call->at[2];
    const ptrdiff_t channels = qfw_channels_of(call, dx);
    int32_t some[QFW_PIECE], pick[QFW_PIECE], offset[MOST_TAPS];
    const bool few = channels < QFW_TILE / 2; /* too few for a tap at a time */
    const bool apart = few && is_apart(w) && offsets_of(call, offset);
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    memset(dx->t.codes, 0, (size_t)qfw_codes_bytes(dx));
    while (qfw_next_piece(w, call->rows, channels, &p)) {
        const ptrdiff_t at = qfw_piece_at(w, &p, channels);
        const size_t n = (size_t)(p.count * p.n);
        if (width_of(e) == 32) {
            memcpy(some, (const int32_t *)e->t.codes + at, n * sizeof *some);
        } else {
            qfw_load_codes(&e->t, at, n, 0, some);
        }
        qfw_unpack_tile(picks->t.codes, (uint64_t)at, n, picks->plan->bits, false, pick);
        if (apart) {
            place_codes(call, &p, some, pick, offset);
        } else {
            place(call, &p, some, pick);
        }
    }
    if (dx->scales > 0) {
        dx->t.scale[0] = e->t.scale[0];
    }
    if (is_sums(dx)) {
        dx->absmax[0] = QFW_K(call->kernels, absmax_s32)(dx->t.codes, (size_t)dx->n);
    }
    return QFW_OK;
}

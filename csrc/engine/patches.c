#include "engine/patches.h"

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

/* Whether a row lies in one line of the image, or in its padded copy. */
static bool is_line(const qfw_window *w)
{
    return w->kernel_h == 1 && w->dilation_w == 1 && w->groups == 1 && w->pad_h == 0 &&
           (ptrdiff_t)(w->out_h - 1) * w->stride_h < w->in_h;
}

/* Elements of a line with all that the window reaches, in channels. */
static ptrdiff_t reach(const qfw_window *w)
{
    return (ptrdiff_t)(w->out_w - 1) * w->stride_w + w->kernel_w;
}

static bool is_inside(const qfw_window *w)
{
    return w->pad_w == 0 && reach(w) <= w->in_w;
}

ptrdiff_t qfw_patch_bytes(const qfw_window *w, ptrdiff_t channels, ptrdiff_t bytes)
{
    return is_line(w) && is_inside(w) ? 0 : qfw_times(qfw_taps(w), channels / w->groups * bytes);
}

/* [from, to) of 0 .. n - 1, the taps of a kernel's row that meet the image. */
typedef struct {
    ptrdiff_t from, to;
} span;

static span inside(ptrdiff_t start, ptrdiff_t step, ptrdiff_t n, ptrdiff_t size)
{
    const ptrdiff_t from = start >= 0 ? 0 : (-start + step - 1) / step;
    const ptrdiff_t to = start >= size ? 0 : (size - start + step - 1) / step;
    const span s = {from, least(n, to)};
    return s;
}

/* Also where the compiler is told that there is no library. */
#if defined(__GNUC__)
#define COPY __builtin_memcpy
#else
#define COPY memcpy
#endif

/* A copy of a few bytes: pieces of constant size, the last of which may overlap the one before. */
static inline void copy(uint8_t *to, const uint8_t *from, ptrdiff_t n)
{
    if (n >= 16) {
        for (ptrdiff_t i = 0; i < n - 16; i += 16) {
            COPY(to + i, from + i, 16);
        }
        COPY(to + n - 16, from + n - 16, 16);
    } else if (n >= 8) {
        COPY(to, from, 8);
        COPY(to + n - 8, from + n - 8, 8);
    } else if (n >= 4) {
        COPY(to, from, 4);
        COPY(to + n - 4, from + n - 4, 4);
    } else if (n >= 2) {
        COPY(to, from, 2);
        COPY(to + n - 2, from + n - 2, 2);
    } else if (n == 1) {
        *to = *from;
    }
}

/* A row of the result in the image: its first line, and the rows of the kernel that meet it. */
typedef struct {
    const uint8_t *image; /* of the group, pixel (0, 0) of the sample */
    ptrdiff_t y;
    span rows;
} image_line;

static image_line line_of(const qfw_patches *p, ptrdiff_t group, ptrdiff_t row)
{
    const qfw_window *w = p->window;
    const ptrdiff_t sample = row / w->out_h, y = row % w->out_h * w->stride_h - w->pad_h;
    const ptrdiff_t pixel = p->channels * p->bytes;
    const image_line l = {p->image + sample * qfw_in_positions(w) * pixel +
                              group * (p->channels / w->groups) * p->bytes,
                          y, inside(y, w->dilation_h, w->kernel_h, w->in_h)};
    return l;
}

/* One row of the matrix: position `column` of a line. */
static void gather(const qfw_patches *p, const image_line *l, ptrdiff_t column, uint8_t *to)
{
    const qfw_window *w = p->window;
    const ptrdiff_t pixel = p->channels * p->bytes, size = pixel / w->groups;
    const ptrdiff_t x = column * w->stride_w - w->pad_w;
    const span taps = inside(x, w->dilation_w, w->kernel_w, w->in_w);
    const bool whole =
        taps.from == 0 && taps.to == w->kernel_w && l->rows.from == 0 && l->rows.to == w->kernel_h;
    if (!whole) {
        memset(to, 0, (size_t)(qfw_taps(w) * size));
    }
    for (ptrdiff_t u = l->rows.from; u < l->rows.to && taps.from < taps.to; u++) {
        const ptrdiff_t at = (l->y + u * w->dilation_h) * w->in_w + x;
        const uint8_t *from = l->image + (at + taps.from * w->dilation_w) * pixel;
        uint8_t *row = to + (u * w->kernel_w + taps.from) * size;
        if (size == pixel && w->dilation_w == 1) {
            copy(row, from, (taps.to - taps.from) * size);
            continue;
        }
        for (ptrdiff_t v = taps.from; v < taps.to; v++, row += size) {
            copy(row, from, size);
            from += w->dilation_w * pixel;
        }
    }
}

/* How many positions from `column` on meet only pixels of the line that lie side by side. */
static ptrdiff_t inner_columns(const qfw_window *w, ptrdiff_t column, ptrdiff_t n)
{
    const ptrdiff_t x = column * w->stride_w - w->pad_w, room = w->in_w - w->kernel_w - x;
    if (w->groups != 1 || w->dilation_w != 1 || x < 0 || room < 0) {
        return 0;
    }
    return least(n, w->stride_w == 1 ? room + 1 : room / w->stride_w + 1);
}

/* n runs of so many bytes, `step` apart, to places `apart`. Three are a kernel's row on one channel. */
static void copy_runs(uint8_t *to, ptrdiff_t apart, const uint8_t *from, ptrdiff_t step,
                      ptrdiff_t n, ptrdiff_t run)
{
    if (run == 3) {
        for (; n > 0; n--, to += apart, from += step) {
            COPY(to, from, 2);
            to[2] = from[2];
        }
        return;
    }
    for (; n > 0; n--, to += apart, from += step) {
        copy(to, from, run);
    }
}

/* Those: a run of pixels for each row of the kernel. */
static void gather_inner(const qfw_patches *p, const image_line *l, ptrdiff_t column, ptrdiff_t n,
                         uint8_t *to)
{
    const qfw_window *w = p->window;
    const ptrdiff_t pixel = p->channels * p->bytes, run = w->kernel_w * pixel;
    const ptrdiff_t line = w->dilation_h * w->in_w * pixel, high = w->kernel_h;
    const ptrdiff_t x = column * w->stride_w - w->pad_w;
    const uint8_t *from = l->image + (l->y * w->in_w + x) * pixel;
    if (l->rows.from > 0 || l->rows.to < high) {
        memset(to, 0, (size_t)(n * high * run));
    }
    for (ptrdiff_t u = l->rows.from; u < l->rows.to; u++) {
        copy_runs(to + u * run, high * run, from + u * line, w->stride_w * pixel, n, run);
    }
}

/* Where an image has one channel, the columns of the matrix are what lies side by side: the pixels
 * that a tap meets along a line. `n` positions from `column` on, the columns `col` elements apart. */
static void gather_columns(const qfw_patches *p, const image_line *l, ptrdiff_t column, ptrdiff_t n,
                           ptrdiff_t col, uint8_t *to)
{
    const qfw_window *w = p->window;
    for (ptrdiff_t tap = 0; tap < qfw_taps(w); tap++, to += col * p->bytes) {
        const ptrdiff_t u = tap / w->kernel_w, v = tap % w->kernel_w;
        const ptrdiff_t x = column - w->pad_w + v * w->dilation_w;
        const bool there = u >= l->rows.from && u < l->rows.to;
        const ptrdiff_t from = x < 0 ? least(-x, n) : 0;
        const ptrdiff_t end = there ? least(n, w->in_w - x) : 0;
        if (from > 0 || end < n) {
            memset(to, 0, (size_t)(n * p->bytes));
        }
        if (from < end) {
            const ptrdiff_t at = (l->y + u * w->dilation_h) * w->in_w + x + from;
            copy(to + from * p->bytes, l->image + at * p->bytes, (end - from) * p->bytes);
        }
    }
}

/* As many rows from `first` on as there is room for, line by line. */
static qfw_stretch gathered(const qfw_patches *p, ptrdiff_t group, ptrdiff_t first, ptrdiff_t most)
{
    const qfw_window *w = p->window;
    const ptrdiff_t k = qfw_taps(w) * (p->channels / w->groups);
    const bool columns = !QFW_DIRECT && p->channels == 1 && w->stride_w == 1;
    const ptrdiff_t room = p->scratch_bytes / (k * p->bytes);
    /* Kernels of a device take four rows at a time. */
    const ptrdiff_t n = least(most, QFW_DIRECT && room > 4 ? room / 4 * 4 : room);
    const qfw_stretch s = {p->scratch, columns ? 1 : (size_t)k, columns ? (size_t)n : 1, n};
    for (ptrdiff_t i = 0; i < n;) {
        const ptrdiff_t row = (first + i) / w->out_w, column = (first + i) % w->out_w;
        const ptrdiff_t here = least(n - i, w->out_w - column);
        const image_line l = line_of(p, group, row);
        if (columns) {
            gather_columns(p, &l, column, here, n, p->scratch + i * p->bytes);
        }
        for (ptrdiff_t c = 0; !columns && c < here;) {
            uint8_t *to = p->scratch + (i + c) * k * p->bytes;
            const ptrdiff_t inner = inner_columns(w, column + c, here - c);
            if (inner > 0) {
                gather_inner(p, &l, column + c, inner, to);
            } else {
                gather(p, &l, column + c, to);
            }
            c += inner > 0 ? inner : 1;
        }
        i += here;
    }
    return s;
}

/* The line in which position i lies, with zeros around it. */
static void pad_line(qfw_patches *p, ptrdiff_t line)
{
    const qfw_window *w = p->window;
    const ptrdiff_t pixel = p->channels * p->bytes, all = reach(w);
    const ptrdiff_t there = least(w->in_w, all - w->pad_w), before = least(w->pad_w, all);
    memset(p->scratch, 0, (size_t)(all * pixel));
    if (there > 0) {
        memcpy(p->scratch + before * pixel, p->image + line * w->in_w * pixel,
               (size_t)(there * pixel));
    }
    p->line = line;
}

qfw_stretch qfw_patches_at(qfw_patches *p, ptrdiff_t group, ptrdiff_t first, ptrdiff_t most)
{
    const qfw_window *w = p->window;
    const ptrdiff_t pixel = p->channels * p->bytes;
    const ptrdiff_t row = first / w->out_w, column = first % w->out_w;
    const ptrdiff_t at = row / w->out_h * w->in_h + row % w->out_h * w->stride_h;
    qfw_stretch s = {p->scratch, (size_t)(w->stride_w * p->channels), 1,
                     least(most, w->out_w - column)};
    if (is_line(w) && is_inside(w)) {
        s.x = p->image + (at * w->in_w + column * w->stride_w) * pixel;
        if (w->kernel_w == 1 && w->stride_w == 1 && w->stride_h == 1 && w->in_w == w->out_w &&
            w->in_h == w->out_h) {
            s.n = most; /* the image is the matrix */
        }
        return s;
    }
    if (is_line(w) && p->scratch_bytes >= reach(w) * pixel) {
        if (p->line != at) {
            pad_line(p, at);
        }
        s.x = p->scratch + column * w->stride_w * pixel;
        return s;
    }
    if (is_line(w)) { /* what needs no padding is read in place */
        const ptrdiff_t inner = inner_columns(w, column, s.n);
        const ptrdiff_t before = (w->pad_w + w->stride_w - 1) / w->stride_w - column;
        if (inner > 0) {
            s.x = p->image + (at * w->in_w + column * w->stride_w - w->pad_w) * pixel;
            s.n = inner;
            return s;
        }
        return gathered(p, group, first, before > 0 ? least(s.n, before) : s.n);
    }
    return gathered(p, group, first, most);
}

#include "engine/patches.h"
#include "engine/window.h"

static void multiply(const qfw_convolution *c, const qfw_gemm *g, void *out, size_t out_row)
{
    if (qfw_is_float(c)) {
        QFW_K(c->kernels, gemm_f32)(g, out, out_row);
    } else {
        QFW_K(c->kernels, gemm_s32)(g, out, out_row);
    }
}

/* Room for patches beside the plan's, which is as small as a device needs it: products of more rows,
 * and lines of the image whole. */
enum { ROOM = QFW_DIRECT ? 4 : 16 * 1024 };

typedef union {
    uint8_t bytes[ROOM];
    float align;
} patch_room;

static qfw_patches patches_of(const qfw_convolution *c, const void *image, int32_t width,
                              ptrdiff_t channels, patch_room *room)
{
    qfw_patches p = {c->window, image, channels, width / 8, c->scratch, c->scratch_bytes, -1};
    if (!QFW_DIRECT && c->scratch_bytes < ROOM) {
        p.scratch = room->bytes;
        p.scratch_bytes = ROOM;
    }
    return p;
}

/* ---- forward ---- */

void qfw_convolve(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t groups = w->groups, own = c->channels / groups;
    const ptrdiff_t k = qfw_taps(w) * (c->a_channels / groups);
    patch_room room;
    qfw_patches p = patches_of(c, c->a, c->a_width, c->a_channels, &room);
    if (qfw_is_depthwise(c) && qfw_is_whole(c, k)) {
        qfw_depthwise(c, first, n, out);
        return;
    }
    for (ptrdiff_t g = 0; g < groups; g++) {
        for (ptrdiff_t i = 0; i < n;) {
            const qfw_stretch s = qfw_patches_at(&p, g, first + i, n - i);
            const qfw_gemm product = {s.x,         qfw_element(c->b, c->b_width, g * own * k),
                                      c->a_width,  c->b_width,
                                      (size_t)s.n, (size_t)own,
                                      (size_t)k,   s.row,
                                      s.col,       1,
                                      (size_t)k,   0};
            void *to = qfw_sum_at(out, i * c->channels + g * own);
            if (qfw_is_whole(c, k)) {
                multiply(c, &product, to, (size_t)c->channels);
            } else {
                qfw_gemm_chunks(c->kernels, &product, (uint32_t)c->chunk, c->shift, to,
                                (size_t)c->channels);
            }
            i += s.n;
        }
    }
}

/* ---- back ---- */

/* The products of one tap, row `row` of the result and columns x0 .. x1 - 1 of the image. */
static qfw_gemm tap_product(const qfw_convolution *c, ptrdiff_t group, ptrdiff_t row, ptrdiff_t tap,
                            qfw_meeting m)
{
    const qfw_window *w = c->window;
    const ptrdiff_t own = c->a_channels / w->groups, wide = c->channels / w->groups;
    const ptrdiff_t taps = qfw_taps(w);
    const qfw_gemm g = {
        qfw_element(c->a, c->a_width, (row * w->out_w + m.first) * c->a_channels + group * own),
        qfw_element(c->b, c->b_width, (group * own * taps + tap) * wide),
        c->a_width,
        c->b_width,
        (size_t)m.n,
        (size_t)wide,
        (size_t)own,
        (size_t)c->a_channels,
        1,
        (size_t)(taps * wide),
        1,
        1};
    return g;
}

/* What all taps give columns x0 .. x1 - 1 of row y of an image. */
static void back_line(const qfw_convolution *c, const qfw_line *at, void *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t wide = c->channels / w->groups;
    for (ptrdiff_t tap = 0; tap < qfw_taps(w); tap++) {
        const ptrdiff_t v = tap % w->kernel_w, row = qfw_result_row(w, at->y, tap / w->kernel_w);
        const qfw_meeting m = qfw_meet(w, v, at->x0, at->x1);
        const ptrdiff_t pixel = m.first * w->stride_w - w->pad_w + v * w->dilation_w - at->x0;
        for (ptrdiff_t g = 0; row >= 0 && m.n > 0 && g < w->groups; g++) {
            const qfw_gemm product = tap_product(c, g, at->sample * w->out_h + row, tap, m);
            multiply(c, &product, qfw_sum_at(out, pixel * c->channels + g * wide),
                     (size_t)(w->stride_w * c->channels));
        }
    }
}

/* Some columns of one pixel of one group, summed in 64 bits. */
static void back_pixel(const qfw_convolution *c, ptrdiff_t group, ptrdiff_t i, ptrdiff_t j,
                       ptrdiff_t n, int32_t *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t x = i % w->in_w, y = i / w->in_w % w->in_h, sample = i / w->in_w / w->in_h;
    int64_t sum[QFW_TILE] = {0};
    int32_t part[QFW_TILE];
    for (ptrdiff_t tap = 0; tap < qfw_taps(w); tap++) {
        const ptrdiff_t row = qfw_result_row(w, y, tap / w->kernel_w);
        const qfw_meeting m = qfw_meet(w, tap % w->kernel_w, x, x + 1);
        for (ptrdiff_t p = 0; row >= 0 && m.n > 0 && p < c->a_channels / w->groups; p += c->chunk) {
            qfw_gemm g = tap_product(c, group, sample * w->out_h + row, tap, m);
            g.a = qfw_element(g.a, g.a_width, p);
            g.b = qfw_element(g.b, g.b_width, p * (ptrdiff_t)g.b_row + j);
            g.k = g.k - (size_t)p < (size_t)c->chunk ? g.k - (size_t)p : (size_t)c->chunk;
            g.n = (size_t)n;
            g.add = 0;
            QFW_K(c->kernels, gemm_s32)(&g, part, g.n);
            for (ptrdiff_t q = 0; q < n; q++) {
                sum[q] += part[q];
            }
        }
    }
    for (ptrdiff_t q = 0; q < n; q++) {
        out[q] = qfw_brought_back(sum[q], c->shift);
    }
}

/* With strides of 1 the way back of integers is a gather over a, the kernel turned round. */
static bool turns(const qfw_convolution *c, qfw_window *turned)
{
    const qfw_window *w = c->window;
    const ptrdiff_t pad_h = (ptrdiff_t)(w->kernel_h - 1) * w->dilation_h - w->pad_h;
    const ptrdiff_t pad_w = (ptrdiff_t)(w->kernel_w - 1) * w->dilation_w - w->pad_w;
    const ptrdiff_t patch = qfw_taps(w) * c->a_channels * (c->a_width / 8);
    if (qfw_is_float(c) || w->kernel_h == 1 || w->groups != 1 || w->stride_h != 1 ||
        w->stride_w != 1 || pad_h < 0 || pad_w < 0 || pad_h > UINT16_MAX || pad_w > UINT16_MAX ||
        c->scratch_bytes < qfw_turned_bytes(c) + patch) {
        return false;
    }
    *turned = *w;
    turned->in_h = w->out_h;
    turned->in_w = w->out_w;
    turned->out_h = w->in_h;
    turned->out_w = w->in_w;
    turned->pad_h = (uint16_t)pad_h;
    turned->pad_w = (uint16_t)pad_w;
    return true;
}

/* Weights [o][taps][c] as [c][taps, the last first][o]. */
static void turn_weights(const qfw_convolution *c)
{
    const ptrdiff_t taps = qfw_taps(c->window), o = c->a_channels, n = c->channels;
    const size_t bytes = (size_t)(c->b_width / 8);
    uint8_t *to = c->scratch;
    for (ptrdiff_t i = 0; bytes == 1 && i < n; i++) {
        for (ptrdiff_t tap = taps - 1; tap >= 0; tap--) {
            const uint8_t *from = (const uint8_t *)c->b + tap * n + i;
            for (ptrdiff_t k = 0; k < o; k++) {
                *to++ = from[k * taps * n];
            }
        }
    }
    for (ptrdiff_t i = 0; bytes != 1 && i < n; i++) {
        for (ptrdiff_t tap = 0; tap < taps; tap++) {
            for (ptrdiff_t k = 0; k < o; k++) {
                memcpy(c->scratch + (size_t)((i * taps + tap) * o + k) * bytes,
                       qfw_element(c->b, c->b_width, (k * taps + taps - 1 - tap) * n + i), bytes);
            }
        }
    }
}

static void back_turned(const qfw_convolution *c, const qfw_window *turned, ptrdiff_t first,
                        ptrdiff_t n, void *out)
{
    qfw_convolution forward = *c;
    const ptrdiff_t bytes = qfw_turned_bytes(c);
    if (!QFW_DIRECT || first == 0) { /* a device's tiles come in order, and scratch stays */
        turn_weights(c);
    }
    forward.window = turned;
    forward.b = c->scratch;
    forward.scratch = c->scratch + bytes;
    forward.scratch_bytes = c->scratch_bytes - bytes;
    qfw_convolve(&forward, first, n, out);
}

void qfw_convolve_back(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t own = c->a_channels / w->groups, wide = c->channels / w->groups;
    qfw_window turned;
    if (qfw_is_whole(c, qfw_taps(w) * own)) {
        if (qfw_is_depthwise(c)) {
            qfw_depthwise_back(c, first, n, out);
            return;
        }
        if (QFW_DIRECT && qfw_convolve_back_directly(c, first, n, out)) {
            return;
        }
        if (turns(c, &turned)) {
            back_turned(c, &turned, first, n, out);
            return;
        }
        memset(out, 0, (size_t)(n * c->channels) * 4);
        for (ptrdiff_t i = 0; i < n;) {
            const qfw_line at = qfw_line_at(w->in_w, w->in_h, first + i, n - i);
            back_line(c, &at, qfw_sum_at(out, i * c->channels));
            i += at.x1 - at.x0;
        }
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        for (ptrdiff_t g = 0; g < w->groups; g++) {
            for (ptrdiff_t j = 0; j < wide; j += QFW_TILE) {
                const ptrdiff_t some = wide - j < QFW_TILE ? wide - j : QFW_TILE;
                back_pixel(c, g, first + i, j, some,
                           qfw_sum_at(out, i * c->channels + g * wide + j));
            }
        }
    }
}

/* ---- gradient ---- */

/* Sums over all positions of rows that belong to one group. */
static void group_gradient(const qfw_convolution *c, qfw_patches *p, ptrdiff_t terms,
                           ptrdiff_t group, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const ptrdiff_t k = qfw_taps(c->window) * (c->channels / c->window->groups);
    const bool whole = qfw_is_whole(c, terms);
    int64_t *sums = (int64_t *)(void *)c->scratch;
    for (ptrdiff_t j = 0; !whole && j < n * k; j++) {
        sums[j] = 0;
    }
    for (ptrdiff_t i = 0, part = 0; i < terms;) {
        const ptrdiff_t left = terms - i;
        const ptrdiff_t most = whole || left < c->chunk - part ? left : c->chunk - part;
        const qfw_stretch s = qfw_patches_at(p, group, i, most);
        const qfw_gemm g = {qfw_element(c->a, c->a_width, i * c->a_channels + first),
                            s.x,
                            c->a_width,
                            c->b_width,
                            (size_t)n,
                            (size_t)k,
                            (size_t)s.n,
                            1,
                            (size_t)c->a_channels,
                            s.row,
                            s.col,
                            part > 0};
        multiply(c, &g, out, (size_t)k);
        i += s.n;
        part += s.n;
        if (!whole && (part == c->chunk || i == terms)) {
            part = 0;
            for (ptrdiff_t j = 0; j < n * k; j++) {
                sums[j] += ((const int32_t *)out)[j];
            }
        }
    }
    for (ptrdiff_t j = 0; !whole && j < n * k; j++) {
        ((int32_t *)out)[j] = qfw_brought_back(sums[j], c->shift);
    }
}

void qfw_convolve_gradient(const qfw_convolution *c, ptrdiff_t terms, ptrdiff_t first, ptrdiff_t n,
                           void *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t own = c->a_channels / w->groups, k = qfw_taps(w) * (c->channels / w->groups);
    if (qfw_is_depthwise(c) && qfw_is_whole(c, terms)) {
        qfw_depthwise_gradient(c, terms / qfw_out_positions(w), first, n, out);
        return;
    }
    patch_room room;
    qfw_patches p = patches_of(c, c->b, c->b_width, c->channels, &room);
    if (!qfw_is_whole(c, terms) && p.scratch == c->scratch) { /* the sums come first */
        p.scratch += 8 * n * k;
        p.scratch_bytes -= 8 * n * k;
    }
    const ptrdiff_t done = QFW_DIRECT && qfw_is_whole(c, terms)
                               ? qfw_convolve_gradient_directly(c, terms, first, n, out)
                               : 0;
    for (ptrdiff_t i = first + done, end = first + n; i < end;) {
        const ptrdiff_t group = i / own,
                        rows = end < (group + 1) * own ? end - i : (group + 1) * own - i;
        group_gradient(c, &p, terms, group, i, rows, qfw_sum_at(out, (i - first) * k));
        i += rows;
    }
}

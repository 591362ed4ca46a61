/* What convolutions do with a window of any form against its definition: rows of patches out of as
 * little scratch as there may be, and the ways back of cores with the DSP extension. */
#include "engine/window.h"
#include "report.h"
#include "source.h"

enum { MOST_IN = 14, MOST_K = 5, CHANNELS = 9, FILTERS = 20, SAMPLES = 2, GUARD = 0x5555 };
enum {
    MOST_OUT = MOST_IN + MOST_K,
    IMAGE = SAMPLES * MOST_IN * MOST_IN * CHANNELS,
    ERRORS = SAMPLES * MOST_OUT * MOST_OUT * FILTERS,
    WEIGHTS = FILTERS * MOST_K * MOST_K * CHANNELS,
    SUMS = IMAGE > WEIGHTS ? IMAGE : WEIGHTS
};

typedef struct {
    qfw_window w;
    ptrdiff_t channels, filters, samples;
} geometry;

static int32_t size_of(source *s, int32_t least, int32_t most)
{
    return least + (int32_t)below(s, (uint32_t)(most - least + 1));
}

/* A window with a position at least. */
static geometry geometry_of(source *s)
{
    geometry g;
    int32_t reach_h, reach_w;
    do {
        const bool line = below(s, 2) == 0;
        const qfw_window w = {line ? 1 : size_of(s, 1, MOST_IN),
                              size_of(s, 1, MOST_IN),
                              0,
                              0,
                              (uint16_t)(line ? 1 : size_of(s, 1, MOST_K)),
                              (uint16_t)size_of(s, 1, MOST_K),
                              (uint16_t)size_of(s, 1, 2),
                              (uint16_t)(below(s, 4) == 0 ? 2 : 1),
                              (uint16_t)(line ? 0 : size_of(s, 0, 2)),
                              (uint16_t)size_of(s, 0, 2),
                              (uint16_t)size_of(s, 1, 2),
                              (uint16_t)(below(s, 4) == 0 ? 2 : 1),
                              1,
                              {0, 0, 0}};
        g.w = w;
        reach_h = w.in_h + 2 * w.pad_h - (w.kernel_h - 1) * w.dilation_h - 1;
        reach_w = w.in_w + 2 * w.pad_w - (w.kernel_w - 1) * w.dilation_w - 1;
    } while (reach_h < 0 || reach_w < 0);
    g.w.out_h = reach_h / g.w.stride_h + 1;
    g.w.out_w = reach_w / g.w.stride_w + 1;
    g.channels = size_of(s, 1, CHANNELS);
    g.filters = below(s, 3) == 0 ? size_of(s, 1, FILTERS) : 4 * size_of(s, 1, FILTERS / 4);
    g.samples = size_of(s, 1, SAMPLES);
    return g;
}

/* Ends and anything; errors of 16 bits have 15. */
static int32_t code(source *s, int32_t width)
{
    const int32_t high = width == 8 ? 127 : 16383;
    const uint32_t kind = below(s, 8);
    return kind == 0 ? 0 : kind == 1 ? -high - 1 : kind == 2 ? high : size_of(s, -high - 1, high);
}

static void fill(source *s, void *x, int32_t width, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        if (width == 8) {
            ((int8_t *)x)[i] = (int8_t)code(s, 8);
        } else {
            ((int16_t *)x)[i] = (int16_t)code(s, 16);
        }
    }
}

/* The pixel that position p of all samples meets at a tap, or -1. */
static ptrdiff_t pixel_of(const qfw_window *w, ptrdiff_t p, ptrdiff_t tap)
{
    const ptrdiff_t row = p / w->out_w, sample = row / w->out_h;
    const ptrdiff_t y = row % w->out_h * w->stride_h - w->pad_h + tap / w->kernel_w * w->dilation_h;
    const ptrdiff_t x = p % w->out_w * w->stride_w - w->pad_w + tap % w->kernel_w * w->dilation_w;
    const bool there = y >= 0 && y < w->in_h && x >= 0 && x < w->in_w;
    return there ? (sample * w->in_h + y) * w->in_w + x : -1;
}

/* ---- patches ---- */

static void check_patches(source *s, unsigned number)
{
    static int8_t image[IMAGE], scratch[4096];
    const geometry g = geometry_of(s);
    const ptrdiff_t all = g.samples * qfw_out_positions(&g.w);
    const ptrdiff_t least = qfw_patch_bytes(&g.w, g.channels, 1);
    fill(s, image, 8, IMAGE);
    qfw_patches p = {&g.w, (const uint8_t *)image, g.channels, 1, (uint8_t *)scratch, least, -1};
    p.scratch_bytes += below(s, 2) == 0 ? 0 : (ptrdiff_t)below(s, 1000);
    bool same = true;
    for (ptrdiff_t i = 0; i < all && same;) {
        const ptrdiff_t most = 1 + (ptrdiff_t)below(s, (uint32_t)(all - i));
        const qfw_stretch at = qfw_patches_at(&p, 0, i, most);
        same = at.n >= 1 && at.n <= most;
        for (ptrdiff_t j = 0; same && j < at.n; j++) {
            for (ptrdiff_t k = 0; k < qfw_taps(&g.w) * g.channels; k++) {
                const ptrdiff_t pixel = pixel_of(&g.w, i + j, k / g.channels);
                const int8_t *x = at.x,
                             want = pixel < 0 ? 0 : image[pixel * g.channels + k % g.channels];
                same = same && x[(size_t)j * at.row + (size_t)k * at.col] == want;
            }
        }
        i += at.n;
    }
    report_check(same, number, "patches");
}

/* ---- back and gradient ---- */

#if defined(__ARM_FEATURE_DSP)
enum { IS_DIRECT = 1 };
#else
enum { IS_DIRECT = 0 };
#endif

static int16_t errors[ERRORS];
static int8_t bytes[SUMS];
static int32_t want[SUMS], found[SUMS + 1];

static bool is_same(ptrdiff_t n)
{
    return memcmp(want, found, (size_t)n * sizeof *want) == 0 && found[n] == GUARD;
}

static bool check_back(source *s, unsigned number)
{
    const geometry g = geometry_of(s);
    const ptrdiff_t taps = qfw_taps(&g.w), positions = g.samples * qfw_out_positions(&g.w);
    const ptrdiff_t pixels = g.samples * qfw_in_positions(&g.w);
    const ptrdiff_t first = (ptrdiff_t)below(s, (uint32_t)pixels);
    const ptrdiff_t n = 1 + (ptrdiff_t)below(s, (uint32_t)(pixels - first));
    const qfw_convolution c = {NULL,      &g.w,       errors,    bytes, 16,   8,
                               g.filters, g.channels, INT16_MAX, 0,     NULL, 0};
    fill(s, errors, 16, positions * g.filters);
    fill(s, bytes, 8, WEIGHTS);
    memset(want, 0, sizeof want);
    for (ptrdiff_t p = 0; p < positions; p++) {
        for (ptrdiff_t tap = 0; tap < taps; tap++) {
            const ptrdiff_t i = pixel_of(&g.w, p, tap) - first;
            for (ptrdiff_t k = 0; i >= 0 && i < n && k < g.filters * g.channels; k++) {
                const ptrdiff_t o = k / g.channels, j = k % g.channels;
                want[i * g.channels + j] +=
                    errors[p * g.filters + o] * bytes[(o * taps + tap) * g.channels + j];
            }
        }
    }
    found[n * g.channels] = GUARD;
    const bool done = qfw_convolve_back_directly(&c, first, n, found);
    report_check(!done || is_same(n * g.channels), number, "back");
    return done;
}

static bool check_gradient(source *s, unsigned number)
{
    static int16_t room[1024];
    const geometry g = geometry_of(s);
    const ptrdiff_t taps = qfw_taps(&g.w), positions = g.samples * qfw_out_positions(&g.w);
    const ptrdiff_t k = taps * g.channels, scratch = (ptrdiff_t)below(s, sizeof room - 2);
    const ptrdiff_t first = (ptrdiff_t)below(s, (uint32_t)g.filters);
    const ptrdiff_t n = 1 + (ptrdiff_t)below(s, (uint32_t)(g.filters - first));
    const int8_t *e = (const int8_t *)errors;
    const qfw_convolution c = {NULL,       &g.w,      errors, bytes,           8,      8, g.filters,
                               g.channels, INT16_MAX, 0,      (uint8_t *)room, scratch};
    fill(s, errors, 8, positions * g.filters);
    fill(s, bytes, 8, g.samples * qfw_in_positions(&g.w) * g.channels);
    memset(want, 0, sizeof want);
    for (ptrdiff_t p = 0; p < positions; p++) {
        for (ptrdiff_t i = 0; i < n * k; i++) {
            const ptrdiff_t pixel = pixel_of(&g.w, p, i % k / g.channels);
            const int32_t x = pixel < 0 ? 0 : bytes[pixel * g.channels + i % g.channels];
            want[i] += e[p * g.filters + first + i / k] * x;
        }
    }
    room[(scratch + 1) / 2] = GUARD;
    const ptrdiff_t fours = n & ~(ptrdiff_t)3;
    found[fours * k] = GUARD;
    const ptrdiff_t done = qfw_convolve_gradient_directly(&c, positions, first, n, found);
    report_check(done == 0 || (done == fours && is_same(done * k)), number, "gradient");
    report_check(room[(scratch + 1) / 2] == GUARD, number, "gradient, scratch");
    return done != 0;
}

int main(void)
{
    source s = {{3, 5}, 0};
    unsigned number;
    int back = 0, gradients = 0; /* that were done directly */
    report_suite("patches");
    for (number = 0; number < 1000; number++) {
        check_patches(&s, number);
    }
    report_suite_end(number);
    report_suite("back");
    for (number = 0; number < 900; number++) {
        back += check_back(&s, number);
    }
    report_check(back >= (IS_DIRECT ? 50 : 0), number, "back, often enough");
    report_suite_end(number);
    report_suite("gradient");
    for (number = 0; number < 900; number++) {
        gradients += check_gradient(&s, number);
    }
    report_check(gradients >= (IS_DIRECT ? 50 : 0), number, "gradient, often enough");
    report_suite_end(number);
    report_exit();
    return 1;
}

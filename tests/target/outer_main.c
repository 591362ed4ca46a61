/* Rows that an outer product moves, all at once, against one by one as update_s32 moves them: every length,
 * words from anywhere in a block, slopes from those that move nothing to those that hold everything. */
#include "base/random.h"
#include "base/soft.h"
#include "kernels/rows.h"
#include "report.h"
#include "source.h"

enum { MOST_ROW = 100, MOST_ROWS = 5, ROOM = MOST_ROW * MOST_ROWS };

typedef struct {
    int8_t e[MOST_ROWS], x[MOST_ROW], m[ROOM];
    float scale[MOST_ROWS], top;
    size_t rows, row, scales;
    qfw_key key;
} motion;

static int8_t code(source *s, uint32_t zeros)
{
    const uint32_t kind = below(s, 8);
    const int32_t any = (int32_t)below(s, 255) - 127;
    return (int8_t)(below(s, 8) < zeros ? 0 : kind == 0 ? 127 : kind == 1 ? -127 : any);
}

/* Some normal float. */
static float scale(source *s, uint32_t exp)
{
    return qfw_from_bits_f32(exp << 23 | below(s, 1u << 23));
}

static void fill(source *s, motion *c, uint32_t exp, size_t row)
{
    c->row = row;
    c->rows = 1 + below(s, MOST_ROWS);
    c->scales = below(s, 2) == 0 ? 1 : c->rows;
    c->key.k0 = below(s, UINT32_MAX);
    c->key.k1 = below(s, UINT32_MAX);
    c->top = below(s, 50) == 0 ? 0.0f : scale(s, exp);
    const uint32_t zeros = below(s, 9);
    for (size_t i = 0; i < c->rows; i++) {
        c->e[i] = below(s, 16) == 0 ? -128 : code(s, 1);
        c->scale[i] = below(s, 4) == 0 ? 1.0f : scale(s, 126 + below(s, 3));
    }
    for (size_t i = 0; i < row; i++) {
        c->x[i] = below(s, 16) == 0 ? -128 : code(s, zeros);
    }
    for (size_t i = 0; i < c->rows * row; i++) {
        c->m[i] = code(s, 0);
    }
}

/* Slopes just below the next one of 16 bits, or that one: the largest steps tell. */
static void sharpen(source *s, motion *c)
{
    const float slope = qfw_from_bits_f32(118u << 23 | below(s, 1u << 15) << 8 | 0xFFu);
    c->scales = 1;
    c->scale[0] = scale(s, 126);
    c->top = qfw_from_bits_f32(qfw_bits_f32(qfw_soft_mul(slope, c->scale[0])) + 1);
    memset(c->e, 127, sizeof c->e);
    memset(c->x, 0x81, sizeof c->x);
}

/* Row o as update_s32 moves it. */
static uint32_t define(const motion *c, size_t o, int8_t *m)
{
    const float of = c->scale[c->scales == 1 ? 0 : o];
    const qfw_coef none = {0, 0, 0, 0};
    const qfw_slope slope = qfw_bits_f32(qfw_soft_div_upper(c->top, of));
    const qfw_move move = {moved_coef(slope, 20, 31), none, none, 20, -127, 127, QFW_STOCHASTIC};
    int32_t wide[MOST_ROW], g[MOST_ROW];
    uint32_t u[MOST_ROW];
    for (size_t i = 0; i < c->row; i++) {
        wide[i] = c->m[o * c->row + i];
        g[i] = c->e[o] * c->x[i];
    }
    qfw_uniforms(&c->key, o * c->row, c->row, u);
    const uint32_t out = qfw_update_s32_scalar(wide, NULL, g, c->row, false, &move, &move, u, NULL);
    for (size_t i = 0; i < c->row; i++) {
        m[i] = (int8_t)wide[i];
    }
    return out;
}

/* Whether instructions must take it: |term| <= 2^30, and not below what 16 bits of x leave of it. */
static bool is_near(const motion *c, size_t o)
{
    const float of = c->scale[c->scales == 1 ? 0 : o];
    const qfw_slope slope = qfw_bits_f32(qfw_soft_div_upper(c->top, of));
    const int32_t lift = moved_lift(slope) + 4;
    return slope != 0 && 17 + qfw_msb64(qfw_abs32(c->e[o])) + lift <= 23 && lift >= -16;
}

static void check(const motion *c, unsigned number)
{
    static uint32_t fours[MOST_ROW];
    static int8_t m[ROOM], own[ROOM];
    uint32_t told = 0, looked = 0, flags = 0, ones = 0;
    bool same = true;
    memcpy(m, c->m, sizeof m);
    memcpy(own, c->m, sizeof own);
    for (size_t o = 0; o < c->rows; o++) {
        flags |= c->e[o] != 0 ? define(c, o, own + o * c->row) << o : 0;
        ones |= c->e[o] != 0 && c->scale[c->scales == 1 ? 0 : o] == 1.0f ? 1u << o : 0;
    }
    const uint32_t bits = qfw_bits_f32(c->top);
    qfw_outer_rows r = {c->e,
                        c->e + c->rows,
                        c->e + 1,
                        c->row,
                        c->scale,
                        c->scales == 1 ? 0 : 4,
                        (bits & 0x7FFFFFu) | 0x800000u,
                        bits == 0 ? -1000 : (int32_t)(bits >> 23) + 17,
                        c->key,
                        m,
                        fours,
                        NULL};
    bool any = false;
    for (size_t i = 0; i < c->row; i++) {
        any = any || c->x[i] != 0;
    }
    same = qfw_fours_of(c->x, c->row, fours) == any;
    for (qfw_rows_stop why; any && (why = qfw_move_rows(&r)) != QFW_ROWS_END;) {
        const size_t o = (size_t)(r.e - r.second);
        if (why == QFW_ROW_LEFT) {
            told |= 1u << o;
        } else if (why == QFW_ROW_ONE) {
            same = same && (looked >> o & 1) == 0;
            looked |= 1u << o;
            r.looked_at = r.e--;
        } else {
            same = same && !is_near(c, o);
            told |= define(c, o, m + o * c->row) << o;
        }
    }
    same = same && told == flags && (!any || looked == ones) && memcmp(m, own, sizeof m) == 0;
    report_check(same, number, "rows of an outer product");
}

int main(void)
{
    static motion c;
    source s = {{1, 2}, 0};
    unsigned number = 0;
    report_suite("outer rows");
    for (size_t row = 12; row <= MOST_ROW; row += 4) {
        for (uint32_t exp = 96; exp < 136; exp++, number++) {
            fill(&s, &c, exp, row);
            check(&c, number);
        }
    }
    for (uint32_t exp = 1; exp < 255; exp++, number++) {
        fill(&s, &c, exp, 12 + 4 * (exp % 8));
        check(&c, number);
    }
    for (unsigned i = 0; i < 100; i++, number++) {
        fill(&s, &c, 118, MOST_ROW);
        sharpen(&s, &c);
        check(&c, number);
    }
    report_suite_end(number);
    report_exit();
    return 1;
}

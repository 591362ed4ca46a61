/* The integer step: docs/numerics.md section 17. */
#include "engine/moves.h"
#include "base/layout.h"
#include "engine/count.h"
#include "kernels/codes.h"
#include "kernels/update_loops.h"

/* ---- stretches ---- */

static qfw_cursor cursor_at(const qfw_tensor *t, ptrdiff_t i)
{
    qfw_cursor c = {NULL, NULL, 0, 0, 0, PTRDIFF_MAX};
    if (t->format.kind != QFW_FLOAT32) {
        const qfw_run run = qfw_run_at(&t->layout, i);
        c.layout = &t->layout;
        c.of = t->scale;
        c.scales = (t->layout.shared != 0 ? 1 : t->layout.outer) * qfw_groups(&t->layout);
        c.run = qfw_even_run(&t->layout);
        c.scale = run.scale;
        c.left = run.n;
    }
    return c;
}

/* Past n elements, up to number i of its tensor. */
static void advance(qfw_cursor *c, ptrdiff_t n, ptrdiff_t i)
{
    c->left -= n;
    if (c->left > 0) {
        return;
    }
    if (c->run > 0) {
        c->scale++;
        c->left = c->run;
    } else {
        const qfw_run run = qfw_run_at(c->layout, i);
        c->scale = run.scale;
        c->left = run.n;
    }
}

void qfw_begin_stretches(qfw_job *j, ptrdiff_t first, qfw_cursors *at)
{
    j->at = at;
    const qfw_cursor none = {NULL, NULL, 0, 0, 0, PTRDIFF_MAX};
    j->at->w = cursor_at(&j->param->t, first);
    j->at->g = cursor_at(j->g, first - j->first);
    j->at->v = j->state != NULL ? cursor_at(&j->state->t, first) : none;
}

static ptrdiff_t shortest(const qfw_job *j)
{
    return qfw_shorter(j->at->w.left, qfw_shorter(j->at->g.left, j->at->v.left));
}

qfw_stretch qfw_next_stretch(qfw_job *j, ptrdiff_t i, ptrdiff_t end)
{
    const ptrdiff_t n = qfw_shorter(end - i, shortest(j));
    const qfw_stretch s = {i, n, j->at->w.scale, j->at->g.scale, j->at->v.scale};
    if (i + n < end) {
        advance(&j->at->w, n, i + n);
        advance(&j->at->g, n, i + n - j->first);
        advance(&j->at->v, n, i + n);
    }
    return s;
}

size_t qfw_draw_words(qfw_job *j, ptrdiff_t i)
{
    const ptrdiff_t at = i - i % QFW_TILE;
    if (j->drawn != at) {
        j->drawn = at;
        if (j->rounding == QFW_STOCHASTIC && j->param->scales > 0) {
            qfw_uniforms(&j->key, (uint64_t)at, QFW_TILE, j->u);
        }
        if (QFW_HAS_STATE && j->state != NULL && j->state_rounding == QFW_STOCHASTIC &&
            j->state->scales > 0) {
            qfw_uniforms(&j->state_key, (uint64_t)at, QFW_TILE, j->u_v);
        }
    }
    return (size_t)(i - at);
}

void qfw_flag(const qfw_job *j, const qfw_stretch *s, uint32_t events)
{
    if ((events & 1u) != 0) {
        j->flags[s->param] = 1;
    }
    if ((events & 2u) != 0) {
        j->flags[j->param->scales + s->state] = 1;
    }
}

/* ---- coefficients of some stretches ---- */

/* Stretches of the same length, one after the other; the numbers of their scales grow by 1 or stay.
 */
typedef struct {
    qfw_stretch first;
    size_t count;
    bool by_w, by_g, by_v; /* they grow */
    qfw_moves move, state;
} bundle;

static void fill(float *room, float s)
{
    for (size_t k = 0; k < QFW_LANES; k++) {
        room[k] = s;
    }
}

/* Those of c = 0 are zeros from the start. */
static void find_coefs(const qfw_job *j, float c, const float *from, const float *to, int32_t frac,
                       bool wide, qfw_coefs *k)
{
    if (c != 0.0f) {
        QFW_K(j->call->kernels, coefs_f32)(c, from, to, frac, wide ? 63 : 31, k);
    }
}

/* What is the same for all: the terms whose codes are the target's own. */
static void begin_moves(const qfw_job *j, bundle *b)
{
    float ones[QFW_LANES];
    fill(ones, 1.0f);
    memset(b, 0, sizeof *b);
    b->move.frac = 28 - qfw_signed_bits(&j->param->t.format);
    b->move.rounding = j->rounding;
    qfw_codes_at(j->param, 0, &b->move.lo, &b->move.hi);
    find_coefs(j, j->f.step_w, ones, ones, b->move.frac, j->long_w, &b->move.w);
    b->state.frac = b->move.frac;
    b->state.rounding = j->rounding;
    if (j->state != NULL) {
        b->state.frac = 28 - qfw_signed_bits(&j->state->t.format);
        b->state.rounding = j->state_rounding;
        qfw_codes_at(j->state, 0, &b->state.lo, &b->state.hi);
        find_coefs(j, j->f.state_v, ones, ones, b->state.frac, j->long_v, &b->state.v);
    }
}

/* Whether stretches of n elements have a scale each. */
static bool has_each(const qfw_cursor *c, ptrdiff_t n)
{
    return c->run == n && c->left == n;
}

/* The scales of QFW_LANES stretches, where they stand or in `room`; those after the last one are
 * any. Read as one vector, so not written one by one. */
static const float *lanes_of(const qfw_cursor *c, bool each, float *room)
{
    if (each && c->scale + QFW_LANES <= c->scales) {
        return c->of + c->scale;
    }
    fill(room, each ? 1.0f : c->of[c->scale]);
    if (each) {
        memcpy(room, c->of + c->scale, (size_t)(c->scales - c->scale) * sizeof *room);
    }
    return room;
}

/* `again`: the scales of parameter and state are those of the bundle that `b` held before. */
static void find_moves(const qfw_job *j, bundle *b, bool again)
{
    float room_w[QFW_LANES], room_g[QFW_LANES], room_v[QFW_LANES];
    const float *s_w = lanes_of(&j->at->w, b->by_w, room_w);
    const float *s_g = lanes_of(&j->at->g, b->by_g, room_g);
    find_coefs(j, j->f.step_g, s_g, s_w, b->move.frac, j->wide, &b->move.g);
    if (j->state != NULL) {
        const float *s_v = lanes_of(&j->at->v, b->by_v, room_v);
        find_coefs(j, j->f.state_g, s_g, s_v, b->state.frac, j->wide, &b->state.g);
        if (!again) {
            find_coefs(j, j->f.step_v, s_v, s_w, b->move.frac, j->long_v, &b->move.v);
            find_coefs(j, j->f.state_w, s_w, s_v, b->state.frac, j->long_w, &b->state.w);
        }
    }
}

static void pass(qfw_cursor *c, bool each, ptrdiff_t count, ptrdiff_t n, ptrdiff_t i)
{
    if (each) {
        c->scale += count;
    } else {
        advance(c, count * n, i);
    }
}

/* Stretches from element i on, singles up to a multiple of QFW_LANES; returns the element after
 * them. */
static ptrdiff_t gather(qfw_job *j, ptrdiff_t i, ptrdiff_t end, bundle *b)
{
    const ptrdiff_t n = qfw_shorter(end - i, shortest(j));
    const qfw_stretch first = {i, n, j->at->w.scale, j->at->g.scale, j->at->v.scale};
    ptrdiff_t count = n == 1 ? QFW_LANES - i % QFW_LANES : QFW_LANES;
    const bool same = b->count > 0 && !b->by_w && !b->by_v && first.param == b->first.param &&
                      first.state == b->first.state;
    b->first = first;
    b->by_w = has_each(&j->at->w, n);
    b->by_g = has_each(&j->at->g, n);
    b->by_v = has_each(&j->at->v, n);
    count = qfw_shorter(count, n == 1 ? end - i : (end - i) / n);
    count = b->by_w ? count : qfw_shorter(count, j->at->w.left / n);
    count = b->by_g ? count : qfw_shorter(count, j->at->g.left / n);
    count = b->by_v ? count : qfw_shorter(count, j->at->v.left / n);
    b->count = (size_t)count;
    find_moves(j, b, same && !b->by_w && !b->by_v);
    i += count * n;
    if (i < end) {
        pass(&j->at->w, b->by_w, count, n, i);
        pass(&j->at->g, b->by_g, count, n, i - j->first);
        pass(&j->at->v, b->by_v, count, n, i);
    }
    return i;
}

static qfw_stretch stretch_of(const bundle *b, size_t k)
{
    const ptrdiff_t i = (ptrdiff_t)k;
    const qfw_stretch s = {b->first.at + i * b->first.n, b->first.n,
                           b->first.param + (b->by_w ? i : 0), b->first.g + (b->by_g ? i : 0),
                           b->first.state + (b->by_v ? i : 0)};
    return s;
}

static void flag_each(const qfw_job *j, const bundle *b, const uint32_t *out)
{
    for (size_t k = 0; k < b->count; k++) {
        if (out[k] != 0) {
            const qfw_stretch s = stretch_of(b, k);
            qfw_flag(j, &s, out[k]);
        }
    }
}

/* ---- a stretch with coefficients of its own ---- */

static qfw_move move_at(const qfw_moves *m, size_t k, const qfw_operand *x, ptrdiff_t scale)
{
    qfw_move move = loop_move_at(m, k);
    if (qfw_is_asym(x->plan->kind)) {
        qfw_codes_at(x, scale, &move.lo, &move.hi);
    }
    return move;
}

/* update_s32 for codes of 17 bits, which that does not take: every term in 64. */
static uint32_t move_long(int32_t *m, int32_t *v, const int32_t *g, size_t n, const qfw_move *p,
                          const qfw_move *s, const uint32_t *u, const uint32_t *u_v)
{
    int32_t out = 0, state_out = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t y = loop_wide_term(g[i], &p->g) + loop_wide_term(m[i], &p->w);
        if (v != NULL) {
            const int32_t y_v = loop_wide_term(g[i], &s->g) + loop_wide_term(m[i], &s->w) +
                                loop_wide_term(v[i], &s->v);
            y += loop_wide_term(v[i], &p->v);
            v[i] = loop_held(loop_round(y_v, s->frac, s->rounding, u_v[i]), s, &state_out);
        }
        m[i] = loop_held(m[i] - loop_round(y, p->frac, p->rounding, u[i]), p, &out);
    }
    return (out != 0 ? 1u : 0u) | (state_out != 0 ? 2u : 0u);
}

/* Any codes, a tile at a time. */
uint32_t qfw_move_tiles(qfw_job *j, const qfw_stretch *s, const qfw_move *move,
                        const qfw_move *state_move)
{
    int32_t m[QFW_TILE], v[QFW_STATE_TILE], g[QFW_TILE];
    const bool has_state = QFW_HAS_STATE && j->state != NULL;
    uint32_t events = 0;
    for (ptrdiff_t i = s->at, end = s->at + s->n; i < end;) {
        const size_t from = qfw_draw_words(j, i);
        const size_t n = (size_t)qfw_shorter(end - i, QFW_TILE - (ptrdiff_t)from);
        qfw_load_held(&j->param->t, i, n, s->param, m);
        qfw_load_held(j->g, i - j->first, n, s->g, g);
        if (has_state) {
            qfw_load_held(&j->state->t, i, n, s->state, v);
        }
        qfw_count_codes(j->param, j->state, m, v, g, n, move, state_move, j->u + from,
                        j->u_v + from);
        int32_t *of_state = has_state ? v : NULL;
        events |= QFW_HAS_ASYM && (j->long_w || j->long_v)
                      ? move_long(m, of_state, g, n, move, state_move, j->u + from, j->u_v + from)
                      : QFW_K(j->call->kernels, update_s32)(m, of_state, g, n, j->wide, move,
                                                            state_move, j->u + from, j->u_v + from);
        qfw_put_held(j->param, i, n, s->param, m);
        if (has_state) {
            qfw_put_held(j->state, i, n, s->state, v);
        }
        i += (ptrdiff_t)n;
    }
    return events;
}

static void move_stretch(qfw_job *j, const bundle *b, size_t k)
{
    const qfw_stretch s = stretch_of(b, k);
    const qfw_move move = move_at(&b->move, k, j->param, s.param);
    const qfw_move state_move = j->state != NULL ? move_at(&b->state, k, j->state, s.state) : move;
    qfw_flag(j, &s, qfw_move_tiles(j, &s, &move, &state_move));
}

/* Plain int8. */
static void move_rows(const qfw_job *j, const bundle *b)
{
    const ptrdiff_t i = b->first.at;
    const qfw_rows_move rows = {(size_t)b->first.n, b->count,   &b->move, &b->state, &j->key,
                                &j->state_key,      (uint64_t)i};
    uint32_t out[QFW_LANES];
    QFW_K(j->call->kernels, update_s8)((int8_t *)j->param->t.codes + i,
                                       j->state != NULL ? (int8_t *)j->state->t.codes + i : NULL,
                                       (const int8_t *)j->g->codes + (i - j->first), &rows, out);
    flag_each(j, b, out);
}

/* Single elements, side by side. */
static void move_singles(qfw_job *j, const bundle *b)
{
    const ptrdiff_t i = b->first.at;
    const size_t n = b->count, from = qfw_draw_words(j, i);
    int32_t m[QFW_LANES] = {0}, v[QFW_LANES] = {0}, g[QFW_LANES] = {0};
    uint32_t some[QFW_LANES] = {0}, some_v[QFW_LANES] = {0}, out[QFW_LANES];
    const uint32_t *u = j->u + from, *u_v = j->u_v + from;
    if (n < QFW_LANES) { /* more of them would reach beyond the tile */
        memcpy(some, u, n * sizeof *u);
        memcpy(some_v, u_v, n * sizeof *u_v);
        u = some;
        u_v = some_v;
    }
    qfw_load_held(&j->param->t, i, n, 0, m);
    qfw_load_held(j->g, i - j->first, n, 0, g);
    if (j->state != NULL) {
        qfw_load_held(&j->state->t, i, n, 0, v);
    }
    const uint32_t events = QFW_K(j->call->kernels, update_each)(
        m, j->state != NULL ? v : NULL, g, j->wide, &b->move, &b->state, u, u_v, out);
    qfw_put_held(j->param, i, n, 0, m);
    if (j->state != NULL) {
        qfw_put_held(j->state, i, n, 0, v);
    }
    if (events != 0) {
        flag_each(j, b, out);
    }
}

enum { SHORT = 16 };

static void move_bundle(qfw_job *j, const bundle *b)
{
    if (j->plain && b->first.n == 1) {
        move_singles(j, b);
    } else if (j->bytes && b->first.n >= SHORT) {
        move_rows(j, b);
    } else {
        for (size_t k = 0; k < b->count; k++) {
            move_stretch(j, b, k);
        }
    }
}

/* Coefficients are found a bundle ahead, since they are a long chain that moves would wait for. */
void qfw_move_codes(qfw_job *j, ptrdiff_t first, ptrdiff_t end)
{
    if (first == 0 && end == j->param->n && qfw_move_singles(j, end)) {
        return;
    }
    bundle room[2], *b = &room[0], *next = &room[1];
    begin_moves(j, b);
    qfw_cursors at;
    qfw_begin_stretches(j, first, &at);
    ptrdiff_t i = first < end ? gather(j, first, end, b) : end;
    if (i < end) {
        *next = *b;
    }
    while (i < end) {
        i = gather(j, i, end, next);
        move_bundle(j, b);
        bundle *done = b;
        b = next;
        next = done;
    }
    if (first < end) {
        move_bundle(j, b);
    }
    j->at = NULL;
}

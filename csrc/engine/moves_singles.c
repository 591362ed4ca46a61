/* The integer step of elements with scales of their own. */
#include "base/layout.h"
#include "engine/moves.h"

/* Whether the tensor has codes in whole bytes and one scale, or one for each of its n elements. */
static bool take(const qfw_tensor *t, ptrdiff_t n, uint8_t *flags, qfw_single *x)
{
    const ptrdiff_t scales = qfw_scales(&t->layout);
    const int slot = qfw_slot(&t->format);
    x->codes = t->codes;
    x->scale = t->scale;
    x->flags = flags;
    x->width = slot;
    x->bits = t->format.bits;
    x->each = scales == n;
    return (slot == 8 || slot == 16) && (scales == 1 || (x->each && qfw_even_run(&t->layout) == 1));
}

bool qfw_move_singles(const qfw_job *j, ptrdiff_t n)
{
    const qfw_factors *f = &j->f;
    if (QFW_DIRECT || !j->plain || j->first != 0 || qfw_elements(&j->g->layout) != n ||
        f->step_w != 0.0f || f->state_w != 0.0f) {
        return false;
    }
    qfw_singles s;
    memset(&s, 0, sizeof s);
    if (!take(&j->param->t, n, j->flags, &s.m) || !take(j->g, n, NULL, &s.g)) {
        return false;
    }
    if (j->state != NULL && !take(&j->state->t, n, j->flags + j->param->scales, &s.v)) {
        return false;
    }
    if (!s.m.each && !s.g.each && !s.v.each) {
        return false;
    }
    s.step_g = f->step_g;
    s.step_v = f->step_v;
    s.state_g = f->state_g;
    s.state_v = f->state_v;
    s.rounding = j->rounding;
    s.state_rounding = j->state_rounding;
    s.key = &j->key;
    s.state_key = &j->state_key;
    QFW_K(j->call->kernels, update_singles)(&s, (size_t)n);
    return true;
}

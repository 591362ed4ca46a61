/* A plan is opened; where it is, and what counts it. */
#include "base/round.h"
#include "engine/net.h"
#include "engine/state.h"

/* ---- open ---- */

/* Every scale that lasts. */
QFW_COLD static qfw_status set_scales(qfw_net *net)
{
    for (uint32_t i = 0; i < net->header->tensors; i++) {
        qfw_operand x;
        const qfw_plan_tensor *p = &net->tensors[i];
        if (p->space == QFW_ARENA && p->role <= QFW_STATE) {
            QFW_TRY(qfw_measure(p, 1, &x));
            float *scale = (float *)(void *)((uint8_t *)net + p->scale);
            for (ptrdiff_t k = 0; k < x.scales; k++) {
                scale[k] = 1.0f;
            }
        }
    }
    return QFW_OK;
}

qfw_status qfw_open(void *arena, size_t arena_bytes, const qfw_image *image, qfw_net **net)
{
    QFW_TRY(qfw_check_image(image));
    if (arena == NULL || net == NULL) {
        return QFW_E_NULL;
    }
    const qfw_plan_header *h = image->plan;
    if (arena_bytes < h->arena_bytes || h->arena_bytes < QFW_NET_BYTES ||
        (uintptr_t)arena % QFW_ALIGN != 0) {
        return QFW_E_ARENA;
    }
    if (!qfw_floats_are_ieee()) {
        return QFW_E_FLOAT;
    }
    qfw_state_header state;
    if (image->state != NULL) {
        QFW_TRY(qfw_read_state(image, &state));
    }
    memset(arena, 0, h->arena_bytes);
    qfw_net *n = arena;
    n->image = *image;
    n->header = h;
    n->tensors = qfw_tensors_of(h);
    n->ops = qfw_records_of(h);
    n->progress.lr = h->lr;
    n->next = NOWHERE;
    if (image->state != NULL) {
        memcpy(qfw_lasting(n), (const uint8_t *)image->state + sizeof state, state.payload_bytes);
        qfw_go_on(n, &state);
    } else {
        QFW_TRY(set_scales(n));
    }
    *net = n;
    return QFW_OK;
}

/* ---- progress ---- */

qfw_status qfw_get_progress(const qfw_net *net, qfw_progress *progress)
{
    if (net == NULL || progress == NULL) {
        return QFW_E_NULL;
    }
    *progress = net->progress;
    return QFW_OK;
}

qfw_status qfw_check_progress(const qfw_plan_header *h, const qfw_progress *progress)
{
    const uint32_t lr = qfw_bits_f32(progress->lr);
    if (lr > QFW_F32_MAX || (lr != 0 && lr < QFW_F32_MIN_NORMAL)) {
        return QFW_E_SCALE;
    }
    return progress->micro < micro_batches(h) ? QFW_OK : QFW_E_ROWS;
}

qfw_status qfw_set_progress(qfw_net *net, const qfw_progress *progress)
{
    if (net == NULL || progress == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_check_progress(net->header, progress));
    net->progress = *progress;
    net->has_gradients |= progress->micro != 0;
    return QFW_OK;
}

/* ---- state ---- */

const qfw_image *qfw_image_of(const qfw_net *net)
{
    return &net->image;
}

void qfw_come_to(const qfw_net *net, qfw_state_header *state)
{
    state->progress = net->progress;
    state->gradients = net->has_gradients;
}

void qfw_go_on(qfw_net *net, const qfw_state_header *state)
{
    net->progress = state->progress;
    net->has_gradients = state->gradients;
    net->has_scales = 0;
    net->next = NOWHERE;
}

/* ---- counters ---- */

qfw_status qfw_set_counters(qfw_net *net, qfw_counter *table, size_t records)
{
    if (net == NULL) {
        return QFW_E_NULL;
    }
    if (table != NULL && records != net->header->tensors) {
        return QFW_E_SIZE;
    }
    if (!QFW_HAS_COUNTERS && table != NULL) {
        return QFW_E_FEATURE;
    }
    net->counters = table;
    return QFW_OK;
}

#include "engine/state.h"
#include "base/crc.h"

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes behind the core's own up to the end of the last part that lasts, a multiple of QFW_ALIGN. */
static qfw_status lasting_bytes(const qfw_plan_header *h, uint32_t *bytes)
{
    if (!QFW_ANY_PLAN) {
        *bytes = QFW_LASTING_BYTES;
        return QFW_OK;
    }
    const qfw_plan_tensor *tensors = qfw_tensors_of(h);
    uint64_t end = QFW_NET_BYTES;
    for (uint32_t i = 0; i < h->tensors; i++) {
        const qfw_plan_tensor *p = &tensors[i];
        qfw_operand x;
        if (p->space != QFW_ARENA || p->role > QFW_STATE) {
            continue;
        }
        QFW_TRY(qfw_measure(p, 1, &x));
        const uint64_t scales = (uint64_t)x.scales;
        end = later(end, (uint64_t)p->codes + qfw_codes_bytes(&x));
        end = later(end, p->scale + 4 * scales);
        end = later(end, QFW_ZERO_POINT_AT(p) + (p->kind == QFW_ASYM ? 2 * scales : 0));
    }
    end = (end + QFW_ALIGN - 1) / QFW_ALIGN * QFW_ALIGN;
    if (end > h->arena_bytes) {
        return QFW_E_PLAN;
    }
    *bytes = (uint32_t)(end - QFW_NET_BYTES);
    return QFW_OK;
}

qfw_status qfw_state_of(const qfw_image *image, qfw_state_header *own)
{
    const qfw_plan_header *h = image->plan;
    memset(own, 0, sizeof *own);
    own->magic = QFW_STATE_MAGIC;
    own->version = QFW_STATE_VERSION;
    own->header_bytes = sizeof *own;
    own->plan_crc = h->crc;
    own->const_crc = qfw_crc32(0, image->constants, image->const_bytes);
    return lasting_bytes(h, &own->payload_bytes);
}

uint32_t qfw_state_crc(const qfw_state_header *state)
{
    return qfw_crc32(0, state, offsetof(qfw_state_header, crc));
}

qfw_status qfw_check_state(const qfw_image *image, const qfw_state_header *own,
                           const qfw_state_header *state)
{
    if (state->magic != own->magic) {
        return QFW_E_MAGIC;
    }
    if (state->version != own->version || state->header_bytes != own->header_bytes) {
        return QFW_E_VERSION;
    }
    if (state->crc != qfw_state_crc(state)) {
        return QFW_E_CRC;
    }
    if (state->plan_crc != own->plan_crc || state->const_crc != own->const_crc ||
        state->payload_bytes != own->payload_bytes || state->gradients > 1 ||
        (state->reserved[0] | state->reserved[1]) != 0) {
        return QFW_E_STATE;
    }
    return qfw_check_progress(image->plan, &state->progress);
}

qfw_status qfw_read_state(const qfw_image *image, qfw_state_header *state)
{
    const uint8_t *bytes = image->state;
    qfw_state_header own;
    if (image->state_bytes < sizeof own) {
        return QFW_E_SIZE;
    }
    memcpy(state, bytes, sizeof *state);
    QFW_TRY(qfw_state_of(image, &own));
    QFW_TRY(qfw_check_state(image, &own, state));
    if (image->state_bytes - sizeof own < own.payload_bytes) {
        return QFW_E_SIZE;
    }
    return qfw_crc32(0, bytes + sizeof own, own.payload_bytes) == state->payload_crc ? QFW_OK
                                                                                     : QFW_E_CRC;
}

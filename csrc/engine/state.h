/* What of a net lasts, as bytes with a header: docs/format.md section 10. */
#ifndef QFW_ENGINE_STATE_H
#define QFW_ENGINE_STATE_H

#include "engine/engine.h"

QFW_STATIC_ASSERT(sizeof(qfw_state_header) == 64, state_header_is_64_bytes);

/* ---- engine/image.c ---- */

/* The machine's floats are IEEE single precision, rounded to nearest, subnormals and all. */
bool qfw_floats_are_ieee(void);

/* Plan and constants: magic, version, sizes, CRC, addresses. */
QFW_COLD qfw_status qfw_check_image(const qfw_image *image);

/* ---- engine/net.c ---- */

/* QFW_E_SCALE if lr is neither 0 nor positive and normal, QFW_E_ROWS if there is no such
 * micro-batch. */
QFW_COLD qfw_status qfw_check_progress(const qfw_plan_header *header, const qfw_progress *progress);

const qfw_image *qfw_image_of(const qfw_net *net);

/* Progress and gradients of a net, which lies at the start of its arena; what lasts is behind it. */
void qfw_come_to(const qfw_net *net, qfw_state_header *state);
void qfw_go_on(qfw_net *net, const qfw_state_header *state);

static inline uint8_t *qfw_lasting(qfw_net *net)
{
    return (uint8_t *)net + QFW_NET_BYTES;
}

/* ---- engine/state.c ---- */

/* All that is the same in every state of this image; origin is 0 and the rest too. */
QFW_COLD qfw_status qfw_state_of(const qfw_image *image, qfw_state_header *own);

QFW_COLD uint32_t qfw_state_crc(const qfw_state_header *state);

/* Whether a header is whole and, by `own`, one of this image. Its payload is not looked at. */
QFW_COLD qfw_status qfw_check_state(const qfw_image *image, const qfw_state_header *own,
                                    const qfw_state_header *state);

/* The header of the state in the image, once all of it has been verified. */
QFW_COLD qfw_status qfw_read_state(const qfw_image *image, qfw_state_header *state);

#endif

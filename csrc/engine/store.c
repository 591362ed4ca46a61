/* A net's state in two slots of a flash area, of which one is whole at any time. */
#include "base/crc.h"
#include "engine/state.h"

QFW_STATIC_ASSERT(sizeof(qfw_state_header) == QFW_FLASH_UNIT, header_is_one_unit);

enum { SLOTS = 2, UNIT_WORDS = QFW_FLASH_UNIT / 4 };

/* What a look at the area finds. */
typedef struct {
    bool whole[SLOTS];
    uint32_t sequence[SLOTS];
    uint32_t newer; /* the newer slot that is whole; SLOTS: none is */
} slots;

static uint32_t slot_size(uint32_t payload_bytes)
{
    return (uint32_t)sizeof(qfw_state_header) +
           (payload_bytes + QFW_FLASH_UNIT - 1) / QFW_FLASH_UNIT * QFW_FLASH_UNIT;
}

qfw_status qfw_state_size(const qfw_image *image, size_t *bytes)
{
    qfw_state_header own;
    QFW_TRY(qfw_check_image(image));
    if (bytes == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_state_of(image, &own));
    *bytes = slot_size(own.payload_bytes);
    return QFW_OK;
}

/* Checks the area; what every state of this net in it has. */
static qfw_status describe(const qfw_net *net, const qfw_flash *flash, qfw_state_header *own)
{
    if (net == NULL || flash == NULL || flash->read == NULL || flash->write == NULL) {
        return QFW_E_NULL;
    }
    const qfw_image *image = qfw_image_of(net);
    QFW_TRY(qfw_state_of(image, own));
    if (image->state != NULL) {
        const uint8_t *state = image->state;
        memcpy(&own->origin, state + offsetof(qfw_state_header, crc), sizeof own->origin);
    }
    const bool fits = flash->slot_bytes % QFW_FLASH_UNIT == 0 &&
                      flash->slot_bytes >= slot_size(own->payload_bytes) &&
                      flash->slot_bytes <= UINT32_C(1) << 31;
    return fits ? QFW_OK : QFW_E_SIZE;
}

/* The header of a slot, if it is whole and of this net. */
static bool read_header(const qfw_net *net, const qfw_flash *flash, const qfw_state_header *own,
                        uint32_t slot, qfw_state_header *state)
{
    return flash->read(flash->user, slot * flash->slot_bytes, state, sizeof *state) == 0 &&
           qfw_check_state(qfw_image_of(net), own, state) == QFW_OK && state->origin == own->origin;
}

/* Whether a slot's payload can be read, and has this CRC. */
static bool is_payload(const qfw_flash *flash, uint32_t slot, uint32_t bytes, uint32_t crc)
{
    uint32_t part[UNIT_WORDS], found = 0;
    const uint32_t first = slot * flash->slot_bytes + (uint32_t)sizeof(qfw_state_header);
    for (uint32_t at = 0; at < bytes; at += QFW_FLASH_UNIT) {
        const uint32_t n = bytes - at < QFW_FLASH_UNIT ? bytes - at : QFW_FLASH_UNIT;
        if (flash->read(flash->user, first + at, part, n) != 0) {
            return false;
        }
        found = qfw_crc32(found, part, n);
    }
    return found == crc;
}

static slots look(const qfw_net *net, const qfw_flash *flash, const qfw_state_header *own)
{
    slots found = {{false, false}, {0, 0}, SLOTS};
    for (uint32_t i = 0; i < SLOTS; i++) {
        qfw_state_header state;
        found.whole[i] = read_header(net, flash, own, i, &state) &&
                         is_payload(flash, i, own->payload_bytes, state.payload_crc);
        found.sequence[i] = found.whole[i] ? state.sequence : 0;
        /* Numbers go round: the newer one is ahead by less than half of them. */
        const uint32_t ahead = qfw_sub32(found.sequence[i], found.sequence[0]);
        if (found.whole[i] && (found.newer == SLOTS || (ahead != 0 && ahead < UINT32_C(1) << 31))) {
            found.newer = i;
        }
    }
    return found;
}

/* Makes the slot ready, then writes the payload and, when all of that is there, the header. */
static bool write_slot(const qfw_flash *flash, uint32_t slot, const uint8_t *lasting,
                       const qfw_state_header *state)
{
    uint32_t last[UNIT_WORDS];
    const uint32_t at = slot * flash->slot_bytes, first = at + (uint32_t)sizeof *state;
    const uint32_t rest = state->payload_bytes % QFW_FLASH_UNIT;
    const uint32_t units = state->payload_bytes - rest;
    memset(last, 0xFF, sizeof last);
    memcpy(last, lasting + units, rest);
    return flash->write(flash->user, at, NULL, flash->slot_bytes) == 0 &&
           (units == 0 || flash->write(flash->user, first, lasting, units) == 0) &&
           (rest == 0 || flash->write(flash->user, first + units, last, sizeof last) == 0) &&
           flash->write(flash->user, at, state, sizeof *state) == 0;
}

qfw_status qfw_store(const qfw_net *net, const qfw_flash *flash)
{
    qfw_state_header own, written;
    QFW_TRY(describe(net, flash, &own));
    const slots found = look(net, flash, &own);
    const bool any = found.newer != SLOTS;
    const uint32_t slot = any ? 1 - found.newer : 0;
    const uint8_t *lasting = (const uint8_t *)net + QFW_NET_BYTES;
    qfw_come_to(net, &own);
    own.sequence = any ? qfw_add32(found.sequence[found.newer], 1) : 1;
    own.payload_crc = qfw_crc32(0, lasting, own.payload_bytes);
    own.crc = qfw_state_crc(&own);
    const bool done = write_slot(flash, slot, lasting, &own) &&
                      read_header(net, flash, &own, slot, &written) && written.crc == own.crc &&
                      is_payload(flash, slot, own.payload_bytes, own.payload_crc);
    return done ? QFW_OK : QFW_E_FLASH;
}

/* Reads a slot into the arena. */
static bool load(qfw_net *net, const qfw_flash *flash, const qfw_state_header *own, uint32_t slot)
{
    qfw_state_header state;
    uint8_t *lasting = qfw_lasting(net);
    const uint32_t at = slot * flash->slot_bytes + (uint32_t)sizeof state;
    const uint32_t bytes = own->payload_bytes;
    if (!read_header(net, flash, own, slot, &state) ||
        (bytes != 0 && flash->read(flash->user, at, lasting, bytes) != 0) ||
        qfw_crc32(0, lasting, bytes) != state.payload_crc) {
        return false;
    }
    qfw_go_on(net, &state);
    return true;
}

qfw_status qfw_resume(qfw_net *net, const qfw_flash *flash)
{
    qfw_state_header own;
    QFW_TRY(describe(net, flash, &own));
    const slots found = look(net, flash, &own);
    if (found.newer == SLOTS) {
        return QFW_E_EMPTY;
    }
    if (load(net, flash, &own, found.newer) ||
        (found.whole[1 - found.newer] && load(net, flash, &own, 1 - found.newer))) {
        return QFW_OK;
    }
    /* What was whole does not read the same again: the arena may hold a part of it. */
    const qfw_image image = *qfw_image_of(net);
    const qfw_plan_header *h = image.plan;
    QFW_TRY(qfw_open(net, h->arena_bytes, &image, &net));
    return QFW_E_FLASH;
}

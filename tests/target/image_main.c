/* Bad input on the device: an image in which a bit is flipped, wrong addresses and sizes, slots of
 * another net. Each ends in a status; on the boards a fault would end the test. */
#include <string.h>

#include "base/crc.h"
#include "include/qfw.h"
#include "report.h"
#include "step.h"

enum { ROOM = 4096, SHIFTS = 3 };

static union {
    uint8_t bytes[ROOM];
    uint64_t aligned[ROOM / 8];
} room;

/* An image whose parts can be written, one behind the other in `room`. */
typedef struct {
    qfw_image image;
    uint8_t *part[3]; /* plan, constants, state */
    uint32_t bytes[3];
} copy;

static bool copied(const step_case *c, copy *to)
{
    const void *from[3] = {c->plan, c->constants, c->state};
    const uint32_t bytes[3] = {c->plan_bytes, c->const_bytes, c->state_bytes};
    uint32_t at = (uint32_t)(-(uintptr_t)room.bytes % QFW_ALIGN);
    for (int i = 0; i < 3; i++) {
        if (bytes[i] > ROOM - QFW_ALIGN - at) {
            return false;
        }
        to->part[i] = room.bytes + at;
        to->bytes[i] = bytes[i];
        memcpy(to->part[i], from[i], bytes[i]);
        at += (bytes[i] + QFW_ALIGN - 1) / QFW_ALIGN * QFW_ALIGN;
    }
    const qfw_image image = {
        to->part[0],   bytes[0],    to->part[1], bytes[1], qfw_kernels_portable(),
        qfw_ops_all(), to->part[2], bytes[2]};
    to->image = image;
    return true;
}

static qfw_status opened(const qfw_image *image, qfw_net **net)
{
    return qfw_open(step_arena, step_arena_bytes, image, net);
}

static unsigned check_bits(const copy *of)
{
    qfw_net *net;
    unsigned number = 0;
    for (int i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < 8 * of->bytes[i]; k++, number++) {
            of->part[i][k / 8] ^= (uint8_t)(1u << k % 8);
            const qfw_status s = opened(&of->image, &net);
            report_check(s == QFW_E_MAGIC || s == QFW_E_VERSION || s == QFW_E_SIZE ||
                             s == QFW_E_CRC || s == QFW_E_STATE,
                         number, "a flipped bit");
            of->part[i][k / 8] ^= (uint8_t)(1u << k % 8);
        }
    }
    report_check(opened(&of->image, &net) == QFW_OK, number, "the bits as they were");
    return number;
}

static unsigned check_calls(const step_case *c, const copy *of)
{
    const uint32_t shifts[SHIFTS] = {1, 4, 8};
    qfw_net *net;
    float loss;
    const size_t least = c->arena_bytes;
    report_check(qfw_open(step_arena, least - 1, &of->image, &net) == QFW_E_ARENA, 0, "small");
    for (unsigned i = 0; i < SHIFTS; i++) {
        const uint32_t by = shifts[i];
        qfw_image image = of->image;
        report_check(qfw_open(step_arena + by, least, &image, &net) == QFW_E_ARENA, i, "arena");
        image.plan = of->part[0] + by;
        report_check(opened(&image, &net) == QFW_E_SIZE, i, "plan");
        image = of->image;
        image.constants = of->part[1] + by;
        report_check(opened(&image, &net) == QFW_E_SIZE, i, "constants");
        image = of->image;
        image.state_bytes -= by;
        report_check(opened(&image, &net) == QFW_E_SIZE, i, "a cut state");
        memmove(of->part[2] + by, of->part[2], of->bytes[2]);
        image.state = of->part[2] + by;
        image.state_bytes = of->bytes[2];
        report_check(opened(&image, &net) == QFW_OK, i, "a state at any address");
        memmove(of->part[2], of->part[2] + by, of->bytes[2]);
    }
    report_check(opened(&of->image, &net) == QFW_OK, SHIFTS, "open");
    const step_data *data = &step_steps[0];
    const uint32_t many = 1u << 30;
    report_check(qfw_step(net, data->x, data->y, 0, &loss) == QFW_E_ROWS, 0, "no rows");
    report_check(qfw_step(net, data->x, data->y, many, &loss) == QFW_E_ROWS, 0, "many rows");
    report_check(qfw_step(net, data->x, data->y, data->rows, &loss) == QFW_OK, 0, "rows");
    return SHIFTS;
}

/* ---- slots ---- */

static int slot_read(void *user, uint32_t at, void *data, uint32_t bytes)
{
    const copy *of = user;
    if (at >= ROOM / 2 || at + bytes > of->bytes[2]) {
        return 1;
    }
    memcpy(data, of->part[2] + at, bytes);
    return 0;
}

static int slot_write(void *user, uint32_t at, const void *data, uint32_t bytes)
{
    (void)user;
    (void)at;
    (void)data;
    return bytes == 0 ? 0 : 1;
}

/* The first slot holds a whole state; one field of it is another net's. */
static unsigned check_slots(copy *of)
{
    const qfw_flash flash = {of, ROOM / 2, slot_read, slot_write};
    qfw_net *net;
    qfw_state_header head;
    uint32_t *const fields[] = {&head.plan_crc,      &head.const_crc,      &head.origin,
                                &head.payload_bytes, &head.progress.micro, &head.gradients,
                                &head.reserved[1],   &head.sequence};
    enum { FIELDS = sizeof fields / sizeof *fields, OWN = FIELDS - 1 };
    of->image.state = NULL; /* the origin of what is in the slot */
    for (unsigned i = 0; i < FIELDS; i++) {
        memcpy(&head, of->part[2], sizeof head);
        const qfw_state_header before = head;
        *fields[i] += 2;
        head.crc = qfw_crc32(0, &head, offsetof(qfw_state_header, crc));
        memcpy(of->part[2], &head, sizeof head);
        report_check(opened(&of->image, &net) == QFW_OK, i, "open");
        report_check(qfw_resume(net, &flash) == (i == OWN ? QFW_OK : QFW_E_EMPTY), i, "a slot");
        report_check(qfw_store(net, &flash) == QFW_E_FLASH, i, "a flash that takes nothing");
        memcpy(of->part[2], &before, sizeof before);
    }
    return FIELDS;
}

int main(void)
{
    copy of;
    const step_case *c = &step_cases[0];
    report_suite("bits");
    report_check(copied(c, &of), 0, "room for the image");
    report_suite_end(check_bits(&of));
    report_suite("calls");
    report_suite_end(check_calls(c, &of));
    report_suite("slots");
    report_suite_end(check_slots(&of));
    report_exit();
    return 1;
}

/* Every operation there is, with its rule. Firmware has a list of its own (QFW_OP_LINE), and nothing of
 * this file. */
#include "engine/engine.h"

typedef struct {
    const char *name;
    qfw_rule_fn *rule;
    uint16_t places[QFW_OP_TENSORS];
} op_line;

static const op_line lines[QFW_OP_COUNT] = {
    {NULL, NULL, {0, 0, 0, 0, 0, 0, 0, 0}},
#define QFW_OP(number, name, p0, p1, p2, p3, p4, p5, p6, p7) \
    [number] = {#name, qfw_rule_##name, {(p0), (p1), (p2), (p3), (p4), (p5), (p6), (p7)}},
#include "kernels/kernels.def"
};

static const qfw_op_line every[] = {
#define QFW_OP(number, name, p0, p1, p2, p3, p4, p5, p6, p7) QFW_OP_LINE(name),
#include "kernels/kernels.def"
};

static const qfw_ops all = {every, sizeof every / sizeof every[0]};

const qfw_ops *qfw_ops_all(void)
{
    return &all;
}

const char *qfw_op_name(uint32_t kernel, uint16_t places[8])
{
    if (kernel == 0 || kernel >= QFW_OP_COUNT) {
        return NULL;
    }
    if (places != NULL) {
        memcpy(places, lines[kernel].places, sizeof lines[kernel].places);
    }
    return lines[kernel].name;
}

qfw_rule_fn *qfw_rule_of(uint32_t kernel)
{
    return kernel < QFW_OP_COUNT ? lines[kernel].rule : NULL;
}

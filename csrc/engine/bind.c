/* The outside of a plan, the sizes of its tensors, and the list of operations. */
#include "base/crc.h"
#include "base/layout.h"
#include "engine/engine.h"
#include "kernels/codes.h"

/* ---- bytes ---- */

qfw_status qfw_check_bytes(const void *plan, size_t bytes)
{
    const qfw_plan_header *h = plan;
    if (plan == NULL) {
        return QFW_E_NULL;
    }
    if ((uintptr_t)plan % QFW_ALIGN != 0 || bytes < sizeof *h) {
        return QFW_E_SIZE;
    }
    if (h->magic != QFW_PLAN_MAGIC) {
        return QFW_E_MAGIC;
    }
    if (h->version != QFW_PLAN_VERSION || h->header_bytes != sizeof *h) {
        return QFW_E_VERSION;
    }
    if (h->plan_bytes != bytes || h->tensors > QFW_MAX_TENSORS || h->ops > QFW_MAX_OPS ||
        bytes != sizeof *h + h->tensors * sizeof(qfw_plan_tensor) + h->ops * sizeof(qfw_plan_op)) {
        return QFW_E_SIZE;
    }
    return qfw_crc32(0, (const uint8_t *)plan + 16, bytes - 16) == h->crc ? QFW_OK : QFW_E_CRC;
}

/* ---- tensors ---- */

qfw_status qfw_measure(const qfw_plan_tensor *plan, uint32_t rows, qfw_operand *x)
{
    const bool outer = plan->rows == QFW_ROWS_OUTER, axis = plan->rows == QFW_ROWS_AXIS;
    const int64_t by_axis = axis ? rows : 1;
    qfw_operand o = {plan, {{0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, NULL, NULL, NULL}, 0, 0, 0, NULL,
                     NULL};
    o.t.format.kind = plan->kind;
    o.t.format.bits = plan->bits;
    o.t.format.container = plan->container;
    o.t.format.pow2 = plan->pow2;
    o.t.layout.outer = (int64_t)plan->outer * (outer ? (int64_t)rows : 1);
    o.t.layout.axis = plan->axis * by_axis;
    o.t.layout.inner = plan->inner;
    o.t.layout.group = plan->group * by_axis;
    o.t.layout.shared = plan->shared;
    QFW_TRY(qfw_layout_check(&o.t.layout, &o.n, &o.scales));
    if (o.n > QFW_MAX_ELEMENTS || o.scales > QFW_MAX_ELEMENTS) {
        return QFW_E_SIZE;
    }
    o.row = plan->rows == QFW_NO_ROWS ? o.n : o.n / (int64_t)rows;
    if (plan->kind != QFW_SYM && plan->kind != QFW_ASYM) {
        o.scales = 0;
    }
    *x = o;
    return QFW_OK;
}

qfw_status qfw_check_scales(const qfw_operand *x)
{
    for (int64_t i = 0; i < x->scales; i++) {
        const float s = x->t.scale[i];
        if (!qfw_is_scale_f32(s) || (x->plan->pow2 != 0 && (qfw_bits_f32(s) & 0x7FFFFFu) != 0)) {
            return QFW_E_SCALE;
        }
        if (x->plan->kind == QFW_ASYM && x->t.zero_point[i] >> x->plan->bits != 0) {
            return QFW_E_ZERO_POINT;
        }
    }
    return QFW_OK;
}

uint64_t qfw_codes_bytes(const qfw_operand *x)
{
    const uint64_t n = (uint64_t)x->n;
    switch (x->plan->kind) {
    case QFW_BYTES:
        return n;
    case QFW_SYM:
    case QFW_ASYM:
        return x->plan->container != 0 ? n * (x->plan->container / 8u)
                                       : (n * x->plan->bits + 7u) / 8u;
    default:
        return 4 * n;
    }
}

uint32_t qfw_class_of(const qfw_plan_tensor *plan)
{
    const qfw_format f = {plan->kind, plan->bits, plan->container, plan->pow2};
    switch (plan->kind) {
    case QFW_FLOAT32:
        return QFW_AS_F32;
    case QFW_SYM:
        return f.bits == 32         ? QFW_AS_S32
               : qfw_slot(&f) == 8  ? QFW_AS_S8
               : qfw_slot(&f) == 16 ? QFW_AS_S16
                                    : QFW_AS_SYM;
    case QFW_ASYM:
        return QFW_AS_ASYM;
    case QFW_INDEX:
        return QFW_AS_INDEX;
    case QFW_BYTES:
        return QFW_AS_BYTES;
    default:
        return 0;
    }
}

/* ---- operations ---- */

#define F32 QFW_AS_F32
#define S8 QFW_AS_S8
#define S16 QFW_AS_S16
#define S32 QFW_AS_S32
#define ASYM QFW_AS_ASYM
#define INDEX QFW_AS_INDEX
#define BYTES QFW_AS_BYTES
#define SYMS (QFW_AS_S8 | QFW_AS_S16 | QFW_AS_SYM)
#define STORED (F32 | SYMS | ASYM)
#define IN(classes) (QFW_IS_READ | (classes))
#define OUT(classes) (QFW_IS_WRITTEN | (classes))
#define INOUT(classes) (QFW_IS_READ | QFW_IS_WRITTEN | (classes))
#define MAY(classes) (QFW_MAY_LACK | OUT(classes))
#define MAY_IN(classes) (QFW_MAY_LACK | IN(classes))
#define MAY_INOUT(classes) (QFW_MAY_LACK | INOUT(classes))
#define NO 0

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

static const qfw_ops all = {{
    NULL,
#define QFW_OP(number, name, p0, p1, p2, p3, p4, p5, p6, p7) [number] = qfw_op_##name,
#include "kernels/kernels.def"
}};

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

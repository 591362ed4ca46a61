/* The outside of a plan, and the sizes of its tensors. */
#include "base/crc.h"
#include "base/layout.h"
#include "engine/measure.h"
#include "kernels/codes.h"

/* ---- bytes ---- */

#if QFW_NARROW_PLAN
/* With the whole of one plan nothing else can differ. */
qfw_status qfw_check_bytes(const void *plan, size_t bytes)
{
    const qfw_plan_header *h = plan;
    const size_t from = sizeof h->own_crc;
    if (plan == NULL) {
        return QFW_E_NULL;
    }
    if ((uintptr_t)plan % QFW_ALIGN != 0 || bytes < sizeof *h) {
        return QFW_E_SIZE;
    }
    return qfw_crc32(0, (const uint8_t *)plan + from, bytes - from) == h->own_crc ? QFW_OK
                                                                                  : QFW_E_CRC;
}

const qfw_window *qfw_window_of(const qfw_plan_header *h, const qfw_plan_op *op)
{
    (void)h;
    (void)op;
    return NULL;
}
#else
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
        h->windows > QFW_MAX_OPS ||
        bytes != sizeof *h + h->tensors * sizeof(qfw_plan_tensor) + h->ops * sizeof(qfw_plan_op) +
                     h->windows * sizeof(qfw_plan_window)) {
        return QFW_E_SIZE;
    }
    return qfw_crc32(0, (const uint8_t *)plan + 16, bytes - 16) == h->crc ? QFW_OK : QFW_E_CRC;
}

const qfw_window *qfw_window_of(const qfw_plan_header *h, const qfw_plan_op *op)
{
    const qfw_window *windows = (const void *)(qfw_records_of(h) + h->ops);
    const uint32_t number = op->param[QFW_WINDOW_PARAM];
    return number == 0 || number > h->windows ? NULL : &windows[number - 1];
}
#endif

/* ---- tensors ---- */

qfw_status qfw_measure(const qfw_plan_tensor *plan, uint32_t rows, qfw_operand *x)
{
    x->t.codes = NULL;
    x->t.scale = NULL;
    x->t.zero_point = NULL;
    x->absmax = NULL;
    QFW_SET_COUNTER(x, NULL);
    return qfw_measured(plan, rows, x);
}

qfw_status qfw_check_scales(const qfw_operand *x)
{
    const uint32_t not_pow2 = qfw_is_pow2(x->plan->pow2) ? 0x7FFFFFu : 0;
    const uint32_t least = QFW_F32_MIN_NORMAL, span = QFW_F32_MAX - QFW_F32_MIN_NORMAL;
    uint32_t none = 0, beyond = 0;
    for (ptrdiff_t i = 0; i < x->scales; i++) { /* without a branch: many are looked at */
        const uint32_t bits = qfw_bits_f32(x->t.scale[i]);
        none |= qfw_sub32(bits, least) > span ? 1u : 0u;
        none |= bits & not_pow2;
    }
    for (ptrdiff_t i = 0; qfw_is_asym(x->plan->kind) && i < x->scales; i++) {
        beyond |= (uint32_t)x->t.zero_point[i] >> x->plan->bits;
    }
    return none != 0 ? QFW_E_SCALE : beyond != 0 ? QFW_E_ZERO_POINT : QFW_OK;
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
    case QFW_PICK:
        return (n * x->plan->bits + 7u) / 8u;
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
    case QFW_PICK:
        return QFW_AS_PICK;
    default:
        return 0;
    }
}

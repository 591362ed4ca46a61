#include "include/qfw.h"

qfw_status qfw_format_check(const qfw_format *f)
{
    if (f == NULL) {
        return QFW_E_NULL;
    }
    if (f->kind != QFW_FLOAT32 && f->kind != QFW_SYM && f->kind != QFW_ASYM) {
        return QFW_E_KIND;
    }
    if (f->container != 0 && f->container != 8 && f->container != 16 && f->container != 32) {
        return QFW_E_CONTAINER;
    }
    if (f->bits == 32) { /* a float or an accumulator */
        return f->kind == QFW_ASYM ? QFW_E_BITS : f->container != 32 ? QFW_E_CONTAINER : QFW_OK;
    }
    if (f->kind == QFW_FLOAT32 || f->bits < (f->kind == QFW_SYM ? 2 : 1) || f->bits > 16) {
        return QFW_E_BITS;
    }
    return f->container != 0 && f->container < f->bits ? QFW_E_CONTAINER : QFW_OK;
}

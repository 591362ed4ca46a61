/* The affine quantize family: the definition, for every operation, type and rule. */
#include "kernels/affine.h"

#include "base/layout.h"
#include "base/random.h"
#include "base/round.h"

/* Arithmetic in the precision of the computation: float, or double for QFW_F64. An operand that
 * float does not hold is rounded first. */
static inline double multiply(bool wide, double a, double b)
{
    return wide ? a * b : (double)((float)a * (float)b);
}

static inline double divide(bool wide, double a, double b)
{
    return wide ? qfw_div_f64(a, b) : (double)qfw_div_f32((float)a, (float)b);
}

/* One scale's worth of the descriptor. */
typedef struct {
    const qfw_affine *a;
    const qfw_affine_data *d;
    bool wide;
    double s, r; /* scale and its reciprocal */
    int64_t zp;
} point;

static point point_of(const qfw_affine *a, const qfw_affine_data *d, int64_t scale)
{
    point p = {a, d, a->real == QFW_F64, 1.0, 1.0, 0};
    if (d->scale != NULL && p.wide) {
        p.s = ((const double *)d->scale)[scale];
        p.r = qfw_reciprocal_f64(p.s);
    } else if (d->scale != NULL) {
        p.s = (double)((const float *)d->scale)[scale];
        p.r = (double)qfw_reciprocal_f32((float)p.s);
    }
    p.zp = d->zero_point != NULL ? d->zero_point[scale] : 0;
    return p;
}

/* The code before the clamp: the one function of the forwards and of the backwards' masks. At most
 * 2^33 + 2^31. */
static inline int64_t raw_code(const point *p, double x, uint32_t u)
{
    return qfw_round_real(multiply(p->wide, x, p->r), (qfw_rounding)p->a->rounding, u) + p->zp;
}

static inline bool in_range(const qfw_affine *a, int64_t raw)
{
    return a->in_range == QFW_STRICT ? raw > a->qmin && raw < a->qmax
                                     : raw >= a->qmin && raw <= a->qmax;
}

static void store_codes(void *codes, int32_t type, int64_t first, size_t n, const int64_t *v)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t at = first + (int64_t)i;
        switch (type) {
        case QFW_I8:
            ((int8_t *)codes)[at] = (int8_t)v[i];
            break;
        case QFW_U8:
            ((uint8_t *)codes)[at] = (uint8_t)v[i];
            break;
        case QFW_I16:
            ((int16_t *)codes)[at] = (int16_t)v[i];
            break;
        case QFW_U16:
            ((uint16_t *)codes)[at] = (uint16_t)v[i];
            break;
        default:
            ((int32_t *)codes)[at] = (int32_t)v[i];
            break;
        }
    }
}

static int64_t load_code(const void *codes, int32_t type, int64_t at)
{
    switch (type) {
    case QFW_I8:
        return ((const int8_t *)codes)[at];
    case QFW_U8:
        return ((const uint8_t *)codes)[at];
    case QFW_I16:
        return ((const int16_t *)codes)[at];
    case QFW_U16:
        return ((const uint16_t *)codes)[at];
    default:
        return ((const int32_t *)codes)[at];
    }
}

/* Codes before the clamp of elements first .. first + n - 1. */
static qfw_status raw_codes(const point *p, int64_t first, size_t n, int64_t *raw)
{
    double x[QFW_TILE];
    uint32_t u[QFW_TILE];
    memset(u, 0, sizeof u);
    if (p->a->rounding == QFW_STOCHASTIC) {
        qfw_uniforms(&p->a->key, (uint64_t)first, n, u);
    }
    qfw_load_reals(p->d->x, p->a->real, first, n, x);
    for (size_t i = 0; i < n; i++) {
        if (qfw_not_finite(x[i])) {
            return QFW_E_NONFINITE;
        }
        raw[i] = raw_code(p, x[i], u[i]);
    }
    return QFW_OK;
}

static qfw_status forward(const point *p, int64_t first, size_t n)
{
    int64_t v[QFW_TILE];
    QFW_TRY(raw_codes(p, first, n, v));
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = (uint64_t)first + i;
        if (p->d->mask_out != NULL && in_range(p->a, v[i])) {
            p->d->mask_out[at / 8] = (uint8_t)(p->d->mask_out[at / 8] | 1u << at % 8);
        }
        v[i] = v[i] < p->a->qmin ? p->a->qmin : v[i] > p->a->qmax ? p->a->qmax : v[i];
    }
    if (p->a->op == QFW_QUANTIZE) {
        store_codes(p->d->out, p->a->code, first, n, v);
        return QFW_OK;
    }
    double y[QFW_TILE];
    for (size_t i = 0; i < n; i++) {
        y[i] = multiply(p->wide, (double)(v[i] - p->zp), p->s);
    }
    qfw_store_reals(p->d->out, p->a->real, first, n, y);
    return QFW_OK;
}

static void dequantize(const point *p, int64_t first, size_t n)
{
    double y[QFW_TILE];
    for (size_t i = 0; i < n; i++) {
        y[i] = multiply(p->wide,
                        (double)(load_code(p->d->x, p->a->code, first + (int64_t)i) - p->zp), p->s);
    }
    qfw_store_reals(p->d->out, p->a->real, first, n, y);
}

/* forward was: code = clamp(raw) , or (code - zp) * s , or (c - zp) * s */
static qfw_status backward(const point *p, int64_t first, size_t n)
{
    int64_t raw[QFW_TILE];
    double dy[QFW_TILE];
    const bool masked = p->a->op != QFW_DEQUANTIZE_BACKWARD;
    if (masked && p->d->mask_in == NULL) {
        QFW_TRY(raw_codes(p, first, n, raw));
    }
    qfw_load_reals(p->d->dy, p->a->real, first, n, dy);
    for (size_t i = 0; i < n; i++) {
        if (qfw_not_finite(dy[i])) {
            return QFW_E_NONFINITE;
        }
        if (p->a->op == QFW_DEQUANTIZE_BACKWARD) {
            dy[i] = multiply(p->wide, dy[i], p->s);
            continue;
        }
        const uint64_t at = (uint64_t)first + i;
        const bool passes = p->d->mask_in != NULL ? (p->d->mask_in[at / 8] >> at % 8 & 1) != 0
                                                  : in_range(p->a, raw[i]);
        if (!passes) {
            dy[i] = qfw_from_bits_f64(qfw_bits_f64(dy[i]) >> 63 << 63);
        } else if (p->a->op == QFW_QUANTIZE_BACKWARD) {
            dy[i] = divide(p->wide, dy[i], p->s);
        }
    }
    qfw_store_reals(p->d->out, p->a->real, first, n, dy);
    return QFW_OK;
}

static qfw_status run_tile(const point *p, int64_t first, size_t n)
{
    switch (p->a->op) {
    case QFW_QUANTIZE:
    case QFW_FAKE_QUANTIZE:
        return forward(p, first, n);
    case QFW_DEQUANTIZE:
        dequantize(p, first, n);
        return QFW_OK;
    default:
        return backward(p, first, n);
    }
}

static qfw_status run_scale(const point *p, int64_t first, int64_t n)
{
    for (int64_t at = 0; at < n; at += QFW_TILE) {
        QFW_TRY(run_tile(p, first + at, n - at < QFW_TILE ? (size_t)(n - at) : QFW_TILE));
    }
    return QFW_OK;
}

qfw_status qfw_affine_rows_scalar(const qfw_affine *affine, const qfw_affine_data *data,
                                  uint32_t max_zp)
{
    const qfw_layout *l = &affine->layout;
    const int64_t row = l->axis * l->inner, run = qfw_run_length(l), groups = qfw_groups(l);
    (void)max_zp; /* 64 bits hold every sum */
    for (int64_t o = 0; o < l->outer; o++) {
        for (int64_t g = 0; g < groups; g++) {
            const point p = point_of(affine, data, (l->shared != 0 ? 0 : o * groups) + g);
            const int64_t left = row - g * run;
            QFW_TRY(run_scale(&p, o * row + g * run, left < run ? left : run));
        }
    }
    return QFW_OK;
}

const char *qfw_affine_name_scalar(const qfw_affine *affine, const qfw_affine_data *data,
                                   uint32_t max_zp)
{
    (void)affine;
    (void)data;
    (void)max_zp;
    return "affine_rows_scalar";
}

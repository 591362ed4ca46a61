/* A step as a program on the desktop feeds it: one call, with what has to be brought into the core's form. */
#include "host/bound.h"

/* Rows [channels][positions] as [positions][channels]. */
static const float *swapped(const qfw_host_feed *feed, const float *x, uint32_t rows)
{
    const size_t channels = feed->channels, positions = feed->positions;
    float *to = feed->swapped;
    for (size_t i = 0; i < rows; i++, x += channels * positions) {
        for (size_t p = 0; p < positions; p++) {
            for (size_t c = 0; c < channels; c++) {
                *to++ = x[c * positions + p];
            }
        }
    }
    return feed->swapped;
}

/* Labels as int32; NULL if one is none. */
static const int32_t *narrowed(const qfw_host_feed *feed, const int64_t *y, uint32_t rows)
{
    int64_t lost = 0;
    for (size_t i = 0; i < rows; i++) {
        const int32_t label = (int32_t)(uint32_t)((uint64_t)y[i] & UINT32_MAX);
        feed->labels[i] = label;
        lost |= label ^ y[i];
    }
    return lost == 0 ? feed->labels : NULL;
}

qfw_status qfw_host_step(qfw_net *net, const qfw_host_feed *feed, const void *x, const void *y,
                         uint32_t rows, float *loss)
{
    if (feed == NULL || x == NULL || y == NULL || (feed->channels != 0 && feed->swapped == NULL)) {
        return QFW_E_NULL;
    }
    if (rows > feed->rows) {
        return QFW_E_ROWS;
    }
    if ((uintptr_t)x % sizeof(float) != 0) {
        return QFW_E_NULL;
    }
    if (feed->channels != 0) {
        x = swapped(feed, x, rows);
    }
    if (feed->labels != NULL && (uintptr_t)y % sizeof(int64_t) != 0) {
        return QFW_E_NULL;
    }
    if (feed->labels != NULL) {
        y = narrowed(feed, y, rows);
        if (y == NULL) {
            return QFW_E_LABEL;
        }
    }
    const uint32_t mode = qfw_host_float_enter();
    const bool known = loss != NULL && feed->bound != NULL && qfw_bound_has(feed->bound, net, rows);
    const qfw_status status =
        known ? qfw_bound_step(feed->bound, net, x, y, loss) : qfw_step(net, x, y, rows, loss);
    qfw_host_float_leave(mode);
    return status;
}

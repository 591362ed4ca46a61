/* Requantization with a ratio a column: the definition. */
#include "kernels/loops.h"

/* A row without a tile in between, to the nearest; saturated ones are counted. */
static inline uint32_t rescale_row(const qfw_rescaling *c, size_t first, const qfw_code_rule *rule,
                                   const int32_t from_width, const int32_t to_width)
{
    const uint32_t *mult = c->ratios.mult, *up = c->ratios.up, *down = c->ratios.down;
    const uint32_t *end = mult + c->columns;
    const qfw_code_rule held = *rule;
    uint32_t saturated = 0;
    for (size_t i = first; mult < end; i++) {
        const int32_t a =
            from_width == 32 ? ((const int32_t *)c->from)[i] : loop_at(c->from, from_width, i);
        const uint32_t limit = (uint32_t)INT32_MAX >> *up;
        const qfw_ratio r = {*mult++, (uint8_t)*up++, (uint8_t)*down++, limit};
        const int32_t code = qfw_code_of(qfw_rescale(a, &r, held.rounding, 0), &held, &saturated);
        if (to_width == 8) {
            ((uint8_t *)c->to)[i] = (uint8_t)((uint32_t)code & 0xFFu);
        } else {
            ((uint16_t *)c->to)[i] = (uint16_t)((uint32_t)code & 0xFFFFu);
        }
    }
    return saturated;
}

static uint32_t rescale_few(const qfw_rescaling *c, const qfw_code_rule *rule)
{
    uint32_t saturated = 0;
    for (size_t i = 0; i < c->rows; i++) {
        const size_t first = i * c->columns;
        saturated += c->to_width == 8 ? rescale_row(c, first, rule, c->from_width, 8)
                                      : rescale_row(c, first, rule, c->from_width, 16);
    }
    return saturated;
}

uint32_t qfw_rescale_rows_scalar(const qfw_rescaling *columns, const qfw_code_rule *rule)
{
    const bool few = QFW_DIRECT && rule->rounding != QFW_STOCHASTIC && columns->to_width != 32;
    return !QFW_HAS_ANY_ROWS || few ? rescale_few(columns, rule) : loop_rescale_rows(columns, rule);
}

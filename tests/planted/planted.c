/* One bug of each kind that a sanitizer must stop, compiled exactly as the core is.
 * Each is harmless for the arguments 0: tools/sanitize.sh runs both, so that a module that
 * cannot even be loaded does not count as a bug found. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int32_t qfw_planted_signed_overflow(int32_t bug);
EXPORT int32_t qfw_planted_float_cast(int32_t bug);
EXPORT int32_t qfw_planted_over_read(const uint8_t *heap, size_t n, int32_t bug);
EXPORT uint32_t qfw_planted_unsigned_wrap(uint32_t bug);

int32_t qfw_planted_signed_overflow(int32_t bug)
{
    return INT32_MAX - 1 + bug + bug;
}

int32_t qfw_planted_float_cast(int32_t bug)
{
    return (int32_t)(1e10f * (float)bug);
}

/* `heap` has n bytes */
int32_t qfw_planted_over_read(const uint8_t *heap, size_t n, int32_t bug)
{
    return heap[bug != 0 ? n : n - 1];
}

uint32_t qfw_planted_unsigned_wrap(uint32_t bug)
{
    return 0u - bug;
}

/* How many multiply-accumulates a core can make: what products are measured against. */
#ifndef QFW_HOST_PEAK_H
#define QFW_HOST_PEAK_H

#include "include/qfw.h"

#include <stdbool.h>

/* As qfw_host_peak, by the instructions of one set. */
uint64_t qfw_peak_avx2(uint32_t width, uint64_t rounds);
uint64_t qfw_peak_avx512(uint32_t width, uint64_t rounds);

/* Sums side by side: more than an instruction's latency times how many of them begin at once. */
enum { QFW_PEAK_SUMS = 12 };

#endif

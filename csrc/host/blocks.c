/* Counting for an emulator, which calls it for every block of code that begins to run. */
#include "include/qfw.h"

void qfw_host_count_block(void *emulator, uint64_t address, uint32_t bytes, void *blocks)
{
    qfw_host_blocks *b = blocks;
    const uint64_t i = (address - b->origin) / 2;
    (void)emulator;
    if (i >= b->slots || (b->bytes[i] != 0 && b->bytes[i] != bytes)) {
        b->strays++;
        return;
    }
    b->bytes[i] = bytes;
    b->entered[i]++;
}

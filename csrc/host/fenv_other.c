#include "host/threads.h"

uint32_t qfw_host_float_enter(void)
{
    return 0;
}

void qfw_host_float_leave(uint32_t mode)
{
    (void)mode;
}

void qfw_host_pause(void)
{
}

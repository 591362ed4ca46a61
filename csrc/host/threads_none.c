/* A machine without POSIX threads: the caller is alone. */
#include "host/threads.h"

size_t qfw_crew_bytes(void)
{
    return 0;
}

qfw_status qfw_crew_open(qfw_crew *crew, uint32_t threads)
{
    (void)crew;
    (void)threads;
    return QFW_E_FEATURE;
}

void qfw_crew_close(qfw_crew *crew)
{
    (void)crew;
}

bool qfw_crew_enter(qfw_crew *crew)
{
    (void)crew;
    return false;
}

void qfw_crew_leave(qfw_crew *crew)
{
    (void)crew;
}

qfw_status qfw_crew_run(qfw_crew *crew, uint32_t parts, qfw_part_fn *run, const void *job)
{
    (void)crew;
    (void)parts;
    (void)run;
    (void)job;
    return QFW_E_FEATURE;
}

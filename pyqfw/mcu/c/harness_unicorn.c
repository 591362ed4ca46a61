/* The harness in Unicorn, which calls each function by itself: the entry is there for the linker, so
 * that it keeps them. */
#include "harness.h"

void qfw_reset(void);

void qfw_reset(void)
{
    mcu_open();
    mcu_step(1);
    mcu_walk();
    mcu_infer();
}

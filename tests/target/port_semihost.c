#include "cross/semihost.h"
#include "cross/stack.h"
#include "port.h"

void port_put(const char *text)
{
    semihost_put(text);
}

port_stack port_stack_use(void)
{
    const port_stack stack = {stack_used(), stack_size()};
    return stack;
}

void port_exit(int code)
{
    semihost_exit(code);
}

#include "cross/semihost.h"
#include "port.h"

void port_put(const char *text)
{
    semihost_put(text);
}

void port_exit(int code)
{
    semihost_exit(code);
}

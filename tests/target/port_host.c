#include <stdio.h>
#include <stdlib.h>

#include "port.h"

void port_put(const char *text)
{
    fputs(text, stdout);
}

void port_exit(int code)
{
    exit(code);
}

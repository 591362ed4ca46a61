/* All that a test needs of the machine it runs on. */
#ifndef PORT_H
#define PORT_H

void port_put(const char *text);

typedef struct {
    unsigned long used, size; /* bytes; size 0: not known. used > size: the stack ran over */
} port_stack;

/* Of the run until now. */
port_stack port_stack_use(void);

/* Does not return. */
void port_exit(int code);

#endif

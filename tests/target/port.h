/* All that a test needs of the machine it runs on. */
#ifndef PORT_H
#define PORT_H

void port_put(const char *text);

/* Does not return. */
void port_exit(int code);

#endif

/* For a compiler that has no libc of its own: what the core uses of string.h. */
#ifndef QFW_BARE_STRING_H
#define QFW_BARE_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);

#endif

/* Counts checks and says which was the first to fail. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

/* Checks from here on belong to the suite `name`. */
void report_suite(const char *name);

/* One check, of the suite's case number `number`. */
void report_check(bool ok, unsigned number, const char *what);

/* The line of the suite. */
void report_suite_end(unsigned cases);

/* The last lines; leaves with 0 if there were checks, all passed, and the stack was deep enough, else
 * with 1. */
void report_exit(void);

#endif

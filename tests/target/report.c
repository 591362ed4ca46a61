#include "report.h"

#include "port.h"

typedef struct {
    unsigned long passed, failed;
} tally;

static tally suite, total;
static const char *suite_name;

static void put_number(unsigned long v)
{
    char text[24], *at = text + sizeof text - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    port_put(at);
}

static void put_tally(const tally *t)
{
    put_number(t->passed);
    port_put(" passed, ");
    put_number(t->failed);
    port_put(" failed\n");
}

void report_suite(const char *name)
{
    suite_name = name;
    suite.passed = suite.failed = 0;
}

void report_check(bool ok, unsigned number, const char *what)
{
    if (ok) {
        suite.passed++;
        return;
    }
    if (suite.failed++ == 0) {
        port_put(suite_name);
        port_put(": the first to fail is case ");
        put_number(number);
        port_put(", ");
        port_put(what);
        port_put("\n");
    }
}

void report_suite_end(unsigned cases)
{
    total.passed += suite.passed;
    total.failed += suite.failed;
    port_put(suite_name);
    port_put(": ");
    put_number(cases);
    port_put(" cases, ");
    put_tally(&suite);
}

static void put_stack(const port_stack *stack)
{
    put_number(stack->used);
    port_put(" of ");
    put_number(stack->size);
    port_put(" bytes of stack\n");
}

void report_exit(void)
{
    const port_stack stack = port_stack_use();
    put_tally(&total);
    if (stack.size > 0) {
        put_stack(&stack);
    }
    const bool ok = total.failed == 0 && total.passed > 0 && stack.used <= stack.size;
    port_exit(ok ? 0 : 1);
}

/* Both ways to the high word of a product, on operands at every edge and on random ones. */
#include "base/random.h"
#include "report.h"

enum { RANDOM = 20000 };

static void check(uint32_t a, uint32_t b, unsigned number)
{
    const uint32_t high = (uint32_t)(((uint64_t)a * b) >> 32);
    report_check(qfw_mulhi_split(a, b) == high, number, "four products");
    report_check(qfw_mulhi(a, b) == high, number, "the target's choice");
}

/* Words next to 0, to a half word, to 2^30, where multipliers begin, to 2^31 and to 2^32. */
static unsigned check_edges(void)
{
    static const uint32_t middles[] = {0, 0x8000u, 0x10000u, 0x40000000u, 0x80000000u};
    enum { MIDDLES = sizeof middles / sizeof *middles, NEAR = 5, EDGES = MIDDLES * NEAR };
    unsigned number = 0;
    for (uint32_t i = 0; i < EDGES; i++) {
        for (uint32_t j = 0; j < EDGES; j++, number++) {
            check(qfw_sub32(qfw_add32(middles[i / NEAR], i % NEAR), NEAR / 2),
                  qfw_sub32(qfw_add32(middles[j / NEAR], j % NEAR), NEAR / 2), number);
        }
    }
    return number;
}

/* Of every length: a random word shifted by a random distance. */
static unsigned check_random(void)
{
    const qfw_key key = {1, 2};
    for (unsigned number = 0; number < RANDOM; number++) {
        const uint32_t a = qfw_draw(&key, 3 * number), b = qfw_draw(&key, 3 * number + 1),
                       distances = qfw_draw(&key, 3 * number + 2);
        check(a >> (distances & 31), b >> (distances >> 5 & 31), number);
    }
    return RANDOM;
}

int main(void)
{
    report_suite("edges");
    report_suite_end(check_edges());
    report_suite("random");
    report_suite_end(check_random());
    report_exit();
    return 1;
}

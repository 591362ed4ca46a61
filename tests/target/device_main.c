/* Kernels that firmware takes instead of a definition, against that: every length, any alignment. */
#include "base/random.h"
#include "kernels/kernels.h"
#include "kernels/moved.h"
#include "report.h"

#if defined(__ARM_FEATURE_DSP)
#define GEMM qfw_gemm_s32_dsp
#else
#define GEMM qfw_gemm_s32_scalar
#endif

enum { MOST_K = 19, MOST_N = 9, ROOM = 256 };

static void fill(int8_t *x, size_t n, uint32_t seed)
{
    const qfw_key key = {seed, 3};
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = qfw_draw(&key, (uint32_t)i);
        x[i] = (int8_t)(u % 5 == 0 ? 0 : u % 7 == 0 ? -128 : (int32_t)(u >> 8 & 0xFFu) - 128);
    }
}

static unsigned check_products(void)
{
    static int8_t a[ROOM], b[ROOM];
    unsigned number = 0;
    fill(a, ROOM, 1);
    fill(b, ROOM, 2);
    for (size_t k = 0; k <= MOST_K; k++) {
        for (size_t n = 1; n <= MOST_N; n++, number++) {
            const size_t off = (k + n) % 4;
            const qfw_gemm g = {a + off, b + n % 4, 8, 8, 2, n, k, k, 1, 1, k, n % 2};
            int32_t x[2 * MOST_N], y[2 * MOST_N];
            for (size_t i = 0; i < 2 * n; i++) {
                x[i] = y[i] = (int32_t)i - 7;
            }
            qfw_gemm_s32_scalar(&g, x, n);
            GEMM(&g, y, n);
            report_check(memcmp(x, y, 2 * n * sizeof *x) == 0, number, "a product");
        }
    }
    return number;
}

/* m, v and x of n codes, as update_s32 moves them; right: of the gradient's coefficients. */
static void check_move(size_t n, int32_t code, uint8_t right, uint8_t left, bool has_state,
                       unsigned number)
{
    enum { N = 32 };
    int8_t m[N] = {0}, v[N] = {0}, x[N] = {0};
    int32_t wide_m[N] = {0}, wide_v[N] = {0}, g[N] = {0};
    uint32_t u[N] = {0}, u_v[N] = {0};
    const qfw_words from = {0x12345678u + number, 0x9E3779B1u}, from_v = {number, 0x85EBCA6Bu};
    const qfw_coef none = {0, 0, 0, 0};
    const qfw_coef of_g = {40000, (1 << 28) >> left, right, left}, of_v = {60001, 1 << 28, 6, 0};
    const qfw_coef beta = {58982, (1 << 28) >> 4, 0, 4};
    const qfw_move move = {of_g, has_state ? of_v : none, none, 20, -127, 127, QFW_STOCHASTIC};
    const qfw_move state = {of_g, beta, none, 20, -127, 127, QFW_STOCHASTIC};
    fill(m, n, number);
    fill(v, n, number + 1);
    fill(x, n, number + 2);
    for (size_t i = 0; i < n; i++) {
        m[i] = m[i] == -128 ? -127 : m[i];
        wide_m[i] = m[i];
        wide_v[i] = v[i];
        g[i] = code * x[i];
        u[i] = qfw_add32(from.u, qfw_mul32((uint32_t)i, from.step));
        u_v[i] = qfw_add32(from_v.u, qfw_mul32((uint32_t)i, from_v.step));
    }
    const uint32_t told =
        qfw_update_s32_scalar(wide_m, has_state ? wide_v : NULL, g, n, true, &move, &state, u, u_v);
    const uint32_t out = has_state
                             ? qfw_move_states(m, v, x, n, code, &move, &state, from, from_v)
                             : qfw_move_products(m, x, n, code * of_g.mu, right, from.u, from.step);
    bool same = out == told;
    for (size_t i = 0; i < n; i++) {
        same = same && m[i] == wide_m[i] && v[i] == wide_v[i];
    }
    report_check(same, number, has_state ? "with a state" : "products");
}

static unsigned check_moves(void)
{
    unsigned number = 0;
    for (size_t n = 0; n <= 32; n++) {
        for (uint8_t right = 0; right < 32; right = (uint8_t)(right + 3)) {
            for (int32_t code = -128; code <= 128; code += 64, number++) {
                check_move(n, code, right, 0, false, number);
                check_move(n, code, right, 0, true, number);
                check_move(n, code, 0, (uint8_t)(right % 29), true, number);
            }
        }
    }
    return number;
}

int main(void)
{
    report_suite("products");
    report_suite_end(check_products());
    report_suite("moves");
    report_suite_end(check_moves());
    report_exit();
    return 1;
}

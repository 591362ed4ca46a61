/* Every table of this machine against the portable one: the kernels of a step, at every tail length,
 * on the codes, coefficients and scales of every edge. Where there is no other table, the portable
 * one against itself. */
#include "base/round.h"
#include "twins.h"

static qfw_coef coef(source *s, uint32_t how)
{
    qfw_coef c = {(int32_t)(0x8000u + below(s, 0x8000)), 1 << 28, 0, 0};
    if (how == 0) {
        c.right = (uint8_t)below(s, 12);
    } else if (how == 1) {
        c.left = (uint8_t)below(s, 6);
    } else if (below(s, 2) == 0) {
        c.right = (uint8_t)below(s, 32);
    } else {
        c.left = (uint8_t)below(s, 29);
    }
    c.mu = below(s, 8) == 0 ? 0xFFFF : below(s, 8) == 0 ? 0 : c.mu;
    c.limit = (1 << 28) >> c.left;
    return c;
}

static void put(qfw_coefs *to, size_t k, qfw_coef c)
{
    to->mu[k] = c.mu;
    to->limit[k] = c.limit;
    to->right[k] = c.right;
    to->left[k] = c.left;
}

/* how: 0 small steps, 1 lifted terms, 2 anything. */
static qfw_moves moves(source *s, uint32_t how, int32_t q, qfw_rounding rounding)
{
    qfw_moves m;
    memset(&m, 0, sizeof m);
    for (size_t k = 0; k < QFW_LANES; k++) {
        put(&m.g, k, coef(s, how));
        put(&m.v, k, coef(s, how));
        if (how == 2 && below(s, 3) == 0) {
            put(&m.w, k, coef(s, 0));
        }
    }
    m.frac = q == 127 ? 20 : 22;
    m.lo = -q;
    m.hi = q;
    m.rounding = rounding;
    return m;
}

/* ---- the update ---- */

static void check_update(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int8_t m[2][ROOM], v[2][ROOM], g[ROOM];
    uint32_t out[2][QFW_LANES] = {{0}, {0}};
    const qfw_key key = {word(s), word(s)}, state_key = {word(s), word(s)};
    const uint32_t how = below(s, 3);
    const qfw_rounding rounding = below(s, 5) == 0 ? QFW_HALF_EVEN : QFW_STOCHASTIC;
    const int32_t q = below(s, 6) == 0 ? 31 : 127;
    const qfw_moves move = moves(s, how == 1 ? 0 : how, q, rounding);
    const qfw_moves state = moves(s, how, q, rounding);
    const size_t pad = 1 + below(s, 31), count = 1 + below(s, QFW_LANES);
    const qfw_rows_move rows = {n, count, &move, &state, &key, &state_key, below(s, 1000)};
    const bool has_state = below(s, 3) != 0;
    fill(s, m[0], ROOM, 1);
    fill(s, v[0], ROOM, below(s, 3));
    fill(s, g, ROOM, below(s, 3));
    for (size_t k = 0; k < count; k++) { /* rows without a gradient, without anything */
        const size_t at = pad + k * n;
        memset(g + at, 0, below(s, 2) == 0 ? n : 0);
        memset(v[0] + at, 0, below(s, 4) == 0 ? n : 0);
    }
    memcpy(m[1], m[0], ROOM);
    memcpy(v[1], v[0], ROOM);
    fast->update_s8(m[0] + pad, has_state ? v[0] + pad : NULL, g + pad, &rows, out[0]);
    slow->update_s8(m[1] + pad, has_state ? v[1] + pad : NULL, g + pad, &rows, out[1]);
    report_check(same(m[0], m[1], ROOM), n, "update_s8, parameter");
    report_check(same(v[0], v[1], ROOM), n, "update_s8, state");
    report_check(same(out[0], out[1], sizeof out[0]), n, "update_s8, events");
}

static void check_each(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int32_t m[2][QFW_LANES], v[2][QFW_LANES], g[QFW_LANES];
    uint32_t u[QFW_LANES], u_v[QFW_LANES], out[2][QFW_LANES], all[2];
    const qfw_rounding rounding = (qfw_rounding)below(s, 3);
    const bool wide = below(s, 4) == 0, has_state = below(s, 3) != 0;
    qfw_moves move = moves(s, 2, 127, rounding), state = moves(s, 2, 127, rounding);
    move.lo = -32767;
    move.hi = 32767;
    move.frac = 12;
    for (size_t k = 0; k < QFW_LANES; k++) {
        m[0][k] = m[1][k] = (int32_t)below(s, 65536) - 32768;
        v[0][k] = v[1][k] = code(s);
        g[k] = wide ? (int32_t)(word(s) & 0x7FFFFFFFu) - (1 << 30) : code(s);
        u[k] = word(s);
        u_v[k] = word(s);
    }
    all[0] =
        fast->update_each(m[0], has_state ? v[0] : NULL, g, wide, &move, &state, u, u_v, out[0]);
    all[1] =
        slow->update_each(m[1], has_state ? v[1] : NULL, g, wide, &move, &state, u, u_v, out[1]);
    report_check(same(m[0], m[1], sizeof m[0]) && same(v[0], v[1], sizeof v[0]), n, "update_each");
    report_check(same(out[0], out[1], sizeof out[0]) && all[0] == all[1], n, "update_each, events");
}

static void check_coefs(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    float from[QFW_LANES], to[QFW_LANES];
    qfw_coefs k[2];
    const float c = below(s, 8) == 0 ? 0.0f : scale(s, below(s, 2) == 0);
    for (size_t i = 0; i < QFW_LANES; i++) {
        from[i] = scale(s, below(s, 2) == 0);
        to[i] = scale(s, below(s, 2) == 0);
    }
    const int32_t frac = 11 + (int32_t)below(s, 16), last = below(s, 2) == 0 ? 31 : 63;
    fast->coefs_f32(c, from, to, frac, last, &k[0]);
    slow->coefs_f32(c, from, to, frac, last, &k[1]);
    report_check(same(&k[0], &k[1], sizeof k[0]), n, "coefs_f32");
}

static void check_less(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int8_t m[2][TAILS + 64];
    float d[TAILS + 64];
    const qfw_key key = {word(s), word(s)};
    const float by = scale(s, below(s, 4) != 0);
    const qfw_rounding rounding = below(s, 4) == 0 ? QFW_HALF_AWAY : QFW_STOCHASTIC;
    const int32_t q = below(s, 6) == 0 ? 7 : 127;
    const uint64_t first = below(s, 1000);
    const uint32_t zeros = below(s, 3), far = below(s, 4) == 0 ? 40 : 8;
    fill(s, m[0], sizeof m[0], 1);
    memcpy(m[1], m[0], sizeof m[0]);
    for (size_t i = 0; i < sizeof m[0]; i++) { /* quotients of up to 2^(far - 1), and 0 */
        const int32_t e =
            (int32_t)(qfw_bits_f32(by) >> 23) + 7 - (int32_t)below(s, 30) + (int32_t)far - 8;
        const uint32_t field = (uint32_t)(e < 0 ? 0 : e > 254 ? 254 : e);
        const uint32_t bits = (word(s) & 0x807FFFFFu) | field << 23;
        d[i] =
            below(s, 3) < zeros ? qfw_from_bits_f32(bits & 0x80000000u) : qfw_from_bits_f32(bits);
    }
    const uint32_t a = fast->less_s8(m[0] + 7, d + 7, n, by, q, rounding, &key, first);
    const uint32_t b = slow->less_s8(m[1] + 7, d + 7, n, by, q, rounding, &key, first);
    report_check(same(m[0], m[1], sizeof m[0]) && a == b, n, "less_s8");
}

/* ---- scales ---- */

static void check_scales(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    uint32_t most[TAILS] = {0};
    float found[2][TAILS];
    const float s_in = scale(s, below(s, 2) == 0);
    const uint32_t q = below(s, 3) == 0 ? 1 + below(s, 32767) : 127;
    const bool pow2 = below(s, 5) == 0;
    const uint32_t bits = below(s, 32);
    for (unsigned i = 0; i < n; i++) {
        most[i] = below(s, 6) == 0 ? 0 : word(s) >> (below(s, 4) == 0 ? below(s, 32) : bits);
        most[i] = most[i] > UINT32_C(1) << 31 ? UINT32_C(1) << 31 : most[i];
        most[i] = below(s, 6) == 0 && most[i] > q ? most[i] / q * q : most[i];
    }
    fast->scales_s32(s_in, most, n, q, pow2, found[0]);
    slow->scales_s32(s_in, most, n, q, pow2, found[1]);
    report_check(same(found[0], found[1], n * sizeof(float)), n, "scales_s32");
}

static void check_seeds(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int32_t m[TAILS] = {0}, seed[2][TAILS] = {{0}, {0}};
    float sigma[2][TAILS] = {{0}, {0}};
    uint8_t shift[2][TAILS] = {{0}, {0}};
    const bool usual = below(s, 3) != 0;
    const float by = scale(s, usual);
    for (unsigned i = 0; i < n; i++) {
        m[i] = below(s, 8) == 0 ? 0 : (int32_t)(word(s) >> 15 >> below(s, 17));
        m[i] = below(s, 2) == 0 ? m[i] : -m[i];
        sigma[0][i] = below(s, 4) == 0 ? by : scale(s, usual); /* ties, when a power of two */
        sigma[0][i] = below(s, 4) == 0 ? qfw_scale_lift(by, (int32_t)below(s, 16)) : sigma[0][i];
        sigma[1][i] = sigma[0][i];
    }
    fast->seeds_s32(m, by, n, sigma[0], seed[0], shift[0]);
    slow->seeds_s32(m, by, n, sigma[1], seed[1], shift[1]);
    report_check(same(seed[0], seed[1], sizeof seed[0]) &&
                     same(sigma[0], sigma[1], sizeof sigma[0]),
                 n, "seeds_s32");
    report_check(same(shift[0], shift[1], sizeof shift[0]), n, "seeds_s32, shifts");
}

/* The portable one is a loop of its own beside qfw_ratio_of. */
static void check_ratios(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    float from[TAILS] = {0};
    uint32_t ratios[2][4 * TAILS] = {{0}, {0}};
    const float to = scale(s, below(s, 2) == 0);
    const int32_t bits = 2 + (int32_t)below(s, 16);
    for (unsigned i = 0; i < n; i++) {
        from[i] = below(s, 8) == 0 ? to : scale(s, below(s, 2) == 0);
    }
    fast->ratios_f32(from, n, to, bits, ratios[0], TAILS);
    slow->ratios_f32(from, n, to, bits, ratios[1], TAILS);
    report_check(same(ratios[0], ratios[1], sizeof ratios[0]), n, "ratios_f32");
    for (unsigned i = 0; i < n; i++) {
        const uint32_t *r = ratios[1] + i;
        const qfw_ratio one = qfw_ratio_of(from[i], to, bits);
        report_check(r[0] == one.mult && r[TAILS] == one.limit && r[2 * TAILS] == one.up &&
                         r[3 * TAILS] == one.down,
                     n, "ratios_f32, one by one");
    }
}

static void check_rows(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    enum { ROWS = 5, MOST = ROWS * TAILS };
    float from[TAILS] = {0};
    uint32_t ratios[4 * TAILS] = {0};
    int32_t a[MOST + 16], codes[2][MOST + 16];
    const float to = scale(s, below(s, 2) == 0);
    const int32_t bits = 2 + (int32_t)below(s, 15), q = (1 << (bits - 1)) - 1;
    const int32_t widths[] = {8, 16, 32};
    const int32_t from_width = widths[below(s, 3)], to_width = widths[below(s, 3)];
    const int32_t zp = below(s, 4) == 0 ? q : 0;
    const qfw_code_rule rule = {(qfw_rounding)below(s, 3), zp, -q + zp, q + zp};
    const qfw_key key = {word(s), word(s)};
    const size_t rows = 1 + below(s, ROWS);
    for (unsigned i = 0; i < n; i++) {
        from[i] = below(s, 8) == 0 ? to : scale(s, below(s, 2) == 0);
    }
    slow->ratios_f32(from, n, to, bits, ratios, TAILS);
    for (size_t i = 0; i < MOST + 16; i++) {
        a[i] = below(s, 8) == 0 ? INT32_MIN : (int32_t)(word(s) >> below(s, 32));
        a[i] = below(s, 2) == 0 ? a[i] : -(a[i] >> 1);
    }
    memset(codes, 0x55, sizeof codes);
    const qfw_ratios r = {ratios, ratios + TAILS, ratios + 2 * TAILS, ratios + 3 * TAILS};
    qfw_rescaling c = {a, codes[0], from_width, to_width, rows, n, r, &key, below(s, 1000)};
    const uint32_t x = fast->rescale_rows(&c, &rule);
    c.to = codes[1];
    const uint32_t y = slow->rescale_rows(&c, &rule);
    report_check(same(codes[0], codes[1], sizeof codes[0]) && x == y, n, "rescale_rows");
    for (size_t i = 0; from_width == 32 && to_width == 32 && i < rows * n; i++) {
        const qfw_ratio one = qfw_ratio_of(from[i % n], to, bits);
        uint32_t u;
        qfw_uniforms(&key, c.first + i, 1, &u);
        const int32_t v = qfw_rescale(a[i], &one, rule.rounding, u) + zp;
        const int32_t held = v > rule.qmax ? rule.qmax : v < rule.qmin ? rule.qmin : v;
        report_check(codes[1][i] == held, n, "rescale_rows, one by one");
    }
    if (to_width <= from_width) { /* in place */
        memcpy(codes[0], a, sizeof a);
        c.from = c.to = codes[0];
        report_check(fast->rescale_rows(&c, &rule) == y &&
                         same(codes[0], codes[1], rows * n * (size_t)(to_width / 8)),
                     n, "rescale_rows, in place");
    }
}

static void check_floats(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int32_t a[8 * TAILS] = {0};
    float y[2][8 * TAILS];
    const float by = scale(s, below(s, 2) == 0);
    const uint32_t bits = below(s, 32);
    for (unsigned i = 0; i < 8 * n; i++) {
        const int32_t size = (int32_t)(word(s) >> 1 >> bits);
        a[i] = below(s, 2) == 0 ? -size - 1 : size;
    }
    fast->floats_s32(a, 8 * n, by, y[0]);
    slow->floats_s32(a, 8 * n, by, y[1]);
    report_check(same(y[0], y[1], 8 * n * sizeof(float)), n, "floats_s32");
    for (unsigned i = 0; i < 8 * n; i++) {
        const float one = qfw_product_f32(a[i], by);
        report_check(qfw_bits_f32(one) == qfw_bits_f32(y[1][i]), n, "floats_s32, one by one");
    }
}

/* ---- outer products ---- */

static void check_outer(const qfw_kernels *fast, const qfw_kernels *slow, source *s, unsigned n)
{
    int8_t x[TAILS] = {0}, codes[2][ROOM];
    int32_t e[8];
    float scales[8];
    uint32_t most[8], size = 0;
    const bool full = below(s, 2) == 0;
    for (unsigned i = 0; i < n; i++) {
        x[i] = full ? code(s) : (int8_t)((int32_t)below(s, 90) - 45);
        x[i] = full && x[i] == -128 && below(s, 4) != 0 ? -127 : x[i];
        size = qfw_abs32(x[i]) > size ? qfw_abs32(x[i]) : size;
    }
    const int32_t bits = below(s, 4) == 0 ? 5 : 8, q = (1 << (bits - 1)) - 1;
    const qfw_rounding rounding = below(s, 5) == 0 ? (qfw_rounding)below(s, 2) : QFW_STOCHASTIC;
    const qfw_outer outer = {
        x, n, size, scale(s, below(s, 3) != 0), bits, {rounding, 0, -q, q}, {word(s), word(s)}};
    const size_t rows = 1 + below(s, 8);
    for (size_t k = 0; k < rows; k++) {
        e[k] = below(s, 4) == 0 ? 0 : (int32_t)below(s, 255) - 127;
        e[k] *= below(s, 4) == 0 ? 200 : 1;
        most[k] = qfw_abs32(e[k]) * size;
    }
    slow->scales_s32(outer.sigma, most, rows, (uint32_t)q, below(s, 6) == 0, scales);
    scales[0] = below(s, 4) == 0 ? scale(s, true) : scales[0]; /* one that was not found */
    memset(codes, 0x55, sizeof codes);
    const uint64_t first = below(s, 5000);
    const uint32_t a = fast->outer_s8(&outer, e, scales, rows, first, codes[0] + 5);
    const uint32_t b = slow->outer_s8(&outer, e, scales, rows, first, codes[1] + 5);
    report_check(same(codes[0], codes[1], ROOM) && a == b, n, "outer_s8");
}

int main(void)
{
    run("update_s8", check_update, 40);
    run("update_each", check_each, 100);
    run("coefs_f32", check_coefs, 100);
    run("less_s8", check_less, 60);
    run("scales_s32", check_scales, 60);
    run("seeds_s32", check_seeds, 60);
    run("ratios_f32", check_ratios, 10);
    run("rescale_rows", check_rows, 20);
    run("floats_s32", check_floats, 4);
    run("outer_s8", check_outer, 60);
    report_exit();
    return 1;
}

/* Floats and integers to codes with AVX2 and FMA: the bits of quantize.c, whose exact quotient is
 * reached in float.
 *
 * n = nearest(x * r), r = 1/s rounded, is the exact quotient's neighbour: where |x * r| <= 2^17,
 * which holds all codes, its error is below 2^-5. The remainder x - n s is exact in one FMA: for
 * |n| >= 2 both terms are multiples of s's last bit and the difference is below s; for |n| = 1 they
 * are within a factor of two; for n = 0 it is x. So n is right unless |remainder| >= s/2, which a
 * comparison settles exactly, ties included. */
#include "kernels/avx2.h"

typedef struct {
    __m256 s, r, half, q;
} lanes;

static inline lanes lanes_of(float s, float q)
{
    const __m128 r = _mm_div_ss(_mm_set_ss(1.0f), _mm_set_ss(s));
    const lanes k = {_mm256_set1_ps(s), _mm256_broadcastss_ps(r), _mm256_set1_ps(0.5f * s),
                     _mm256_set1_ps(q)};
    return k;
}

static inline __m256 absolute(__m256 v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* What is beyond every code stays so and fits int32. */
static inline __m256 beyond_codes(__m256 n)
{
    const __m256 top = _mm256_set1_ps(0x1p17f);
    return _mm256_max_ps(_mm256_min_ps(n, top), _mm256_sub_ps(_mm256_setzero_ps(), top));
}

/* Right where |remainder| < s/2; `worst` collects the remainders. Beyond int32 the conversion gives
 * -2^31, whose remainder is huge. */
QFW_ALWAYS_INLINE __m256i nearest(__m256 x, const lanes *k, __m256 *worst)
{
    const __m256i n = _mm256_cvtps_epi32(_mm256_mul_ps(x, k->r));
    *worst = _mm256_max_ps(*worst, absolute(_mm256_fnmadd_ps(_mm256_cvtepi32_ps(n), k->s, x)));
    return n;
}

/* Right everywhere: also where the remainder is s/2 or more. */
QFW_ALWAYS_INLINE __m256i exact(__m256 x, const lanes *k, bool to_even)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 n =
        _mm256_round_ps(_mm256_mul_ps(x, k->r), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 rest = _mm256_fnmadd_ps(n, k->s, x), size = absolute(rest);
    const __m256 tie = _mm256_cmp_ps(size, k->half, _CMP_EQ_OQ);
    __m256i step_on_tie;
    if (to_even) { /* n is odd */
        step_on_tie = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 31);
    } else { /* the remainder points away from zero: its sign is x's */
        step_on_tie =
            _mm256_xor_si256(_mm256_castps_si256(_mm256_xor_ps(rest, x)), _mm256_set1_epi32(-1));
    }
    const __m256 tie_step =
        _mm256_and_ps(tie, _mm256_castsi256_ps(_mm256_srai_epi32(step_on_tie, 31)));
    const __m256 step = _mm256_or_ps(_mm256_cmp_ps(size, k->half, _CMP_GT_OQ), tie_step);
    const __m256 one = _mm256_or_ps(_mm256_and_ps(rest, sign), _mm256_set1_ps(1.0f));
    return _mm256_cvtps_epi32(beyond_codes(_mm256_add_ps(n, _mm256_and_ps(step, one))));
}

/* Four vectors of int32 within int8 to 32 codes. */
static inline __m256i to_bytes(const __m256i *n)
{
    const __m256i a = _mm256_packs_epi32(n[0], n[1]), b = _mm256_packs_epi32(n[2], n[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
}

/* Lanes of n outside -q..q are clamped and counted. */
static inline uint32_t clamp_codes(__m256i *n, const lanes *k)
{
    const __m256i q = _mm256_cvtps_epi32(k->q);
    const __m256i c =
        _mm256_max_epi32(_mm256_min_epi32(*n, q), _mm256_sub_epi32(_mm256_setzero_si256(), q));
    const int kept = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(c, *n)));
    *n = c;
    return 8u - (uint32_t)__builtin_popcount((unsigned)kept);
}

QFW_ALWAYS_INLINE void encode_32(const float *x, const lanes *k, bool to_even, bool may_saturate,
                                 int8_t *codes, uint64_t *saturated)
{
    __m256i n[4];
    __m256 worst = _mm256_setzero_ps();
    for (int j = 0; j < 4; j++) {
        n[j] = nearest(_mm256_loadu_ps(x + 8 * j), k, &worst);
    }
    if (_mm256_movemask_ps(_mm256_cmp_ps(worst, k->half, _CMP_GE_OQ)) != 0) {
        for (int j = 0; j < 4; j++) {
            n[j] = exact(_mm256_loadu_ps(x + 8 * j), k, to_even);
        }
    }
    for (int j = 0; may_saturate && j < 4; j++) {
        *saturated += clamp_codes(&n[j], k);
    }
    _mm256_storeu_si256((__m256i *)(void *)codes, to_bytes(n));
}

static inline void encode_tail(const float *x, size_t n, const lanes *k, bool to_even,
                               int8_t *codes, uint64_t *saturated)
{
    float padded[32] = {0};
    int8_t out[32];
    memcpy(padded, x, n * sizeof *x);
    encode_32(padded, k, to_even, true, out, saturated);
    memcpy(codes, out, n);
}

static inline __m256i load_bits(const float *x)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

QFW_ALWAYS_INLINE int32_t largest(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return _mm_cvtsi128_si32(m);
}

void qfw_extent_f32_avx2(const float *x, size_t n, int32_t *hi, int32_t *lo)
{
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    __m256i up = _mm256_set1_epi32(*hi), down = _mm256_set1_epi32(*lo);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        QFW_PREFETCH(x + i);
        const __m256i a = load_bits(x + i), b = load_bits(x + i + 8);
        up = _mm256_max_epi32(up, _mm256_max_epi32(a, b));
        down = _mm256_max_epi32(
            down, _mm256_max_epi32(_mm256_xor_si256(a, sign), _mm256_xor_si256(b, sign)));
    }
    *hi = largest(up);
    *lo = largest(down);
    qfw_extent_f32_scalar(x + i, n - i, hi, lo);
}

QFW_ALWAYS_INLINE uint32_t absmax_bits(const float *x, size_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    __m256i m0 = _mm256_setzero_si256(), m1 = m0;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        QFW_PREFETCH(x + i);
        m0 = _mm256_max_epi32(m0, _mm256_and_si256(magnitude, load_bits(x + i)));
        m1 = _mm256_max_epi32(m1, _mm256_and_si256(magnitude, load_bits(x + i + 8)));
    }
    uint32_t most = (uint32_t)largest(_mm256_max_epi32(m0, m1));
    for (; i < n; i++) {
        const uint32_t u = qfw_bits_f32(x[i]) & 0x7FFFFFFFu;
        most = u > most ? u : most;
    }
    return most;
}

/* The smallest float >= most / q: the rounded quotient, one pattern up if its product with q falls
 * short (the FMA has the exact sign). Without branches: they would be taken half of the time. */
QFW_ALWAYS_INLINE float found_scale(uint32_t most, float q, bool pow2)
{
    const float top = qfw_from_bits_f32(most);
    const __m128 s = _mm_div_ss(_mm_set_ss(top), _mm_set_ss(q));
    const __m128 gap = _mm_fmsub_ss(s, _mm_set_ss(q), _mm_set_ss(top));
    uint32_t u = qfw_bits_f32(_mm_cvtss_f32(s)) + (qfw_bits_f32(_mm_cvtss_f32(gap)) >> 31);
    u = pow2 ? (u + 0x7FFFFFu) & 0xFF800000u : u;
    u = u < QFW_F32_MIN_NORMAL ? QFW_F32_MIN_NORMAL : u;
    return most == 0 ? 1.0f : qfw_from_bits_f32(u);
}

QFW_ALWAYS_INLINE void encode_run(const float *x, size_t n, float s, float q, bool to_even,
                                  bool may_saturate, int8_t *codes, uint64_t *saturated)
{
    const lanes k = lanes_of(s, q);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        encode_32(x + i, &k, to_even, may_saturate, codes + i, saturated);
    }
    if (i < n) {
        encode_tail(x + i, n - i, &k, to_even, codes + i, saturated);
    }
}

/* Eight rounded numbers to codes; returns how many the clamp changed. */
static inline uint32_t store_codes(__m256i v, const qfw_code_rule *rule, int32_t *codes)
{
    const __m256i wanted = _mm256_add_epi32(v, _mm256_set1_epi32(rule->zp));
    const __m256i code = _mm256_max_epi32(_mm256_min_epi32(wanted, _mm256_set1_epi32(rule->qmax)),
                                          _mm256_set1_epi32(rule->qmin));
    const __m256i kept = _mm256_cmpeq_epi32(code, wanted);
    _mm256_storeu_si256((__m256i *)(void *)codes, code);
    return 8u -
           (uint32_t)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(kept)));
}

/* floor(x / s + u / 2^32) of four numbers, in doubles. The product with 1 / s is off by at most
 * 2^-52 of itself, with the sum by less than 2^-32 below 2^18; false if one ends that close to an
 * integer: the definition decides then. */
QFW_ALWAYS_INLINE bool stochastic_4(const float *x, const uint32_t *u, __m256d recip, __m128i *v)
{
    const __m256d top = _mm256_set1_pd(262144.0), near = _mm256_set1_pd(0x1p-32);
    const __m256d q = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(x)), recip);
    const __m256d held =
        _mm256_max_pd(_mm256_min_pd(q, top), _mm256_sub_pd(_mm256_setzero_pd(), top));
    const __m128i word = _mm_loadu_si128((const __m128i *)(const void *)u);
    const __m128i flipped = _mm_xor_si128(word, _mm_set1_epi32(INT32_MIN));
    const __m256d draw = _mm256_add_pd(_mm256_cvtepi32_pd(flipped), _mm256_set1_pd(0x1p31));
    const __m256d t = _mm256_add_pd(held, _mm256_mul_pd(draw, _mm256_set1_pd(0x1p-32)));
    const __m256d below = _mm256_floor_pd(t), rest = _mm256_sub_pd(t, below);
    const __m256d far =
        _mm256_and_pd(_mm256_cmp_pd(rest, near, _CMP_GE_OQ),
                      _mm256_cmp_pd(rest, _mm256_sub_pd(_mm256_set1_pd(1.0), near), _CMP_LE_OQ));
    *v = _mm256_cvttpd_epi32(below);
    return _mm256_movemask_pd(far) == 15;
}

static uint32_t stochastic(const float *x, const uint32_t *u, size_t n, float s,
                           const qfw_code_rule *rule, int32_t *codes)
{
    const __m256d recip = _mm256_set1_pd(1.0 / (double)s);
    uint32_t saturated = 0;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m128i lo, hi;
        const bool far_lo = stochastic_4(x + i, u + i, recip, &lo);
        const bool far_hi = stochastic_4(x + i + 4, u + i + 4, recip, &hi);
        saturated += far_lo && far_hi
                         ? store_codes(_mm256_set_m128i(hi, lo), rule, codes + i)
                         : qfw_quotient_f32_scalar(x + i, u + i, 8, s, rule, codes + i);
    }
    return saturated + qfw_quotient_f32_scalar(x + i, u + i, n - i, s, rule, codes + i);
}

uint32_t qfw_quotient_f32_avx2(const float *x, const uint32_t *u, size_t n, float s,
                               const qfw_code_rule *rule, int32_t *codes)
{
    if (rule->rounding == QFW_STOCHASTIC) {
        return stochastic(x, u, n, s, rule, codes);
    }
    if (!qfw_in_reach(s)) {
        return qfw_quotient_f32_scalar(x, u, n, s, rule, codes);
    }
    const lanes k = lanes_of(s, 0.0f); /* the rule has the codes' limits */
    uint32_t saturated = 0;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256i v = exact(_mm256_loadu_ps(x + i), &k, rule->rounding == QFW_HALF_EVEN);
        saturated += store_codes(v, rule, codes + i);
    }
    return saturated + qfw_quotient_f32_scalar(x + i, NULL, n - i, s, rule, codes + i);
}

uint32_t qfw_rescale_s32_avx2(const int32_t *a, const uint32_t *u, size_t n, const qfw_ratio *ratio,
                              const qfw_code_rule *rule, int32_t *codes)
{
    const __m256i mult = _mm256_set1_epi32((int32_t)ratio->mult);
    const __m256i limit = _mm256_set1_epi32((int32_t)ratio->limit);
    const __m256i half = _mm256_set1_epi32(1 << (ratio->down - 1));
    const __m256i below = _mm256_set1_epi32((1 << ratio->down) - 1), zero = _mm256_setzero_si256();
    const __m128i up = _mm_cvtsi32_si128(ratio->up), down = _mm_cvtsi32_si128(ratio->down);
    const __m128i draw = _mm_cvtsi32_si128(32 - ratio->down);
    uint32_t saturated = 0;
    size_t i = 0;
    for (; n - i >= 8; i += 8) { /* qfw_rescale, eight at a time */
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(a + i));
        const __m256i magnitude = _mm256_min_epu32(_mm256_abs_epi32(v), limit);
        const __m256i lifted = _mm256_sll_epi32(magnitude, up), hi = qfw_mulhi_avx2(lifted, mult);
        __m256i r;
        if (rule->rounding == QFW_STOCHASTIC) {
            const __m256i sign = _mm256_srai_epi32(v, 31);
            const __m256i exact_hi = _mm256_cmpeq_epi32(_mm256_mullo_epi32(lifted, mult), zero);
            const __m256i floor_hi =
                _mm256_add_epi32(_mm256_sub_epi32(_mm256_xor_si256(hi, sign), sign),
                                 _mm256_andnot_si256(exact_hi, sign));
            const __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(u + i));
            r = _mm256_sra_epi32(_mm256_add_epi32(floor_hi, _mm256_srl_epi32(w, draw)), down);
        } else {
            const __m256i sum = _mm256_add_epi32(hi, half);
            r = _mm256_srl_epi32(sum, down);
            if (rule->rounding == QFW_HALF_EVEN) {
                const __m256i rest =
                    _mm256_or_si256(_mm256_and_si256(sum, below), _mm256_mullo_epi32(lifted, mult));
                const __m256i tie = _mm256_cmpeq_epi32(rest, zero);
                r = _mm256_andnot_si256(_mm256_srli_epi32(tie, 31), r);
            }
            r = _mm256_sign_epi32(r, v);
        }
        saturated += store_codes(r, rule, codes + i);
    }
    const uint32_t *rest = rule->rounding == QFW_STOCHASTIC ? u + i : u;
    return saturated + qfw_rescale_s32_scalar(a + i, rest, n - i, ratio, rule, codes + i);
}

qfw_status qfw_quantize_s8_avx2(const float *x, size_t n, size_t run, const qfw_row_encoding *how,
                                float *scale, int8_t *codes, uint64_t *saturated)
{
    if (how->rounding == QFW_STOCHASTIC || run < 8) {
        return qfw_quantize_s8_scalar(x, n, run, how, scale, codes, saturated);
    }
    const float q = (float)how->q;
    const bool to_even = how->rounding == QFW_HALF_EVEN;
    for (size_t i = 0; i < n; i += run, scale++) {
        const size_t count = n - i < run ? n - i : run;
        const uint32_t most = absmax_bits(x + i, count);
        if (most >= QFW_F32_INF) {
            return QFW_E_NONFINITE;
        }
        if (how->dynamic) {
            *scale = found_scale(most, q, how->pow2);
        }
        if (!qfw_in_reach(*scale)) {
            qfw_row_encoding rest = *how;
            rest.first += i;
            QFW_TRY(qfw_quantize_s8_scalar(x + i, count, run, &rest, scale, codes + i, saturated));
        } else if (how->dynamic) { /* nothing exceeds q */
            encode_run(x + i, count, *scale, q, to_even, false, codes + i, saturated);
        } else {
            encode_run(x + i, count, *scale, q, to_even, true, codes + i, saturated);
        }
    }
    return QFW_OK;
}

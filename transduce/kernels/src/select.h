// The best logits of a row and its log-sum-exp, in one pass over memory: a vector of logits is compared with the worst
// that would still be wanted, and only what beats it is looked at. NaN is above all numbers, as in torch; of equals
// the first counts.
#pragma once

#include <algorithm>
#include <vector>

#include "vec.h"

// Log-sum-exp is summed within spans, then over them, so that its bits do not depend on how a row is cut.
constexpr int64_t SPAN = 1024;

constexpr int64_t spans_of(int64_t vocab) { return (vocab + SPAN - 1) / SPAN; }

struct Candidate {
    float value;
    int32_t index;
};

constexpr Candidate NOTHING = {-INFINITY, INT32_MAX}; // behind every other

// The order of the answer.
TD_INLINE bool outranks(float a, float b) { return !(a <= b) && b == b; }
static inline bool before(Candidate a, Candidate b) {
    if (outranks(a.value, b.value)) return true;
    return !outranks(b.value, a.value) && a.index < b.index;
}

// One bit per lane that is not at most `limit`: greater, or either is NaN.
TD_INLINE uint32_t above(f32x16 v, f32x16 limit) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(v), reinterpret_cast<__m512>(limit), _CMP_NLE_UQ);
#else
    float values[LANES], limits[LANES];
    store(values, v);
    store(limits, limit);
    uint32_t bits = 0;
#if defined(__AVX2__)
    for (int i = 0; i < LANES; i += 8) // GCC compares vectors wider than a register lane by lane
        bits |= _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(values + i), _mm256_loadu_ps(limits + i), _CMP_NLE_UQ))
                << i;
#else
    for (int i = 0; i < LANES; i++) bits |= uint32_t(!(values[i] <= limits[i])) << i;
#endif
    return bits;
#endif
}

// take(value, index) for what is above `limit` in x[begin, end), in order; it may raise the limit, and is given some
// that were above an earlier one.
template <class T, class Take>
TD_INLINE void filter(const T* x, int64_t begin, int64_t end, const float& limit, Take take) {
    auto take_vector = [&](int64_t i, int n) {
        f32x16 v = load(x + i, n);
        uint32_t bits = above(v, splat(limit)) & ((1u << n) - 1);
        for (; bits; bits &= bits - 1) take(v[__builtin_ctz(bits)], int32_t(i + __builtin_ctz(bits)));
    };
    int64_t i = begin;
    for (; i + 4 * LANES <= end; i += 4 * LANES) {
        f32x16 wanted = splat(limit);
        uint32_t any = 0;
        for (int p = 0; p < 4; p++) any |= above(load(x + i + p * LANES), wanted);
        if (__builtin_expect(any != 0, 0))
            for (int p = 0; p < 4; p++) take_vector(i + p * LANES, LANES);
    }
    for (; i < end; i += LANES) take_vector(i, int(std::min<int64_t>(LANES, end - i)));
}

// The k best so far and newcomers behind them, which are sorted in when there is no more room.
class Best {
  public:
    explicit Best(int k) : k(k), kept(std::max(4 * k, 256)) {}
    void take(Candidate candidate) {
        kept[count++] = candidate;
        if (count == kept.size()) cut();
    }
    void cut() {
        if (count <= k) return;
        std::nth_element(kept.begin(), kept.begin() + (k - 1), kept.begin() + count, before);
        count = k;
        worst = kept[k - 1].value;
    }
    // Logits x[0, n), which are those from index `first` on. Spans come in rising order.
    template <class T> void look(const T* x, int64_t n, int64_t first) {
        filter(x, 0, n, worst, [&](float value, int32_t index) { take({value, int32_t(first + index)}); });
    }
    // The k best, in any order; where there are fewer, NOTHING after them.
    void write(Candidate* out) {
        cut();
        std::fill_n(std::copy_n(kept.begin(), count, out), k - count, NOTHING);
    }

  private:
    size_t k, count = 0;
    float worst = NAN; // nothing is at most NaN: all are taken
    std::vector<Candidate> kept;
};

// The greatest logit, and the sum of e^(logit - greatest).
struct Mass {
    float greatest, sum;
};

template <class T> static Mass mass_of(const T* x, int64_t n) {
    const int64_t whole = n / LANES * LANES;
    const int left = int(n - whole);
    const f32x16 rest = iota() < left ? load(x + whole, left) : splat(-INFINITY);
    f32x16 greatest = rest;
    for (int64_t i = 0; i < whole; i += LANES) greatest = max(greatest, load(x + i));
    const float top = highest(greatest);
    if (std::isinf(top)) return {top, 0.f};
    const auto share = [=](f32x16 v) { return exp2((v - top) * 1.44269504f); };
    f32x16 sums = share(rest);
    for (int64_t i = 0; i < whole; i += LANES) sums += share(load(x + i));
    return {top, sum(sums)};
}

static inline float log_sum_exp(const Mass* spans, int64_t n) {
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = std::max(top, spans[i].greatest);
    if (std::isinf(top)) return top;
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += spans[i].sum * std::exp(double(spans[i].greatest) - top);
    return float(top + std::log(total));
}

// What is asked of rows: the k best, values and indices [rows, k], and the log-sum-exp, lse [rows] or null.
struct Ranks {
    int k;
    float* values;
    int64_t* indices;
    float* lse;

    // One row's, of the best of its parts, `width` in all, and the masses of its spans.
    void write(int64_t row, Candidate* best, int64_t width, const Mass* masses, int64_t spans) const {
        std::partial_sort(best, best + k, best + width, before);
        for (int i = 0; i < k; i++) {
            values[row * k + i] = best[i].value;
            indices[row * k + i] = best[i].index;
        }
        if (lse) lse[row] = std::isnan(best->value) ? NAN : log_sum_exp(masses, spans);
    }
};

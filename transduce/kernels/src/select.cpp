// Argmax, top-k and log-sum-exp over rows of logits, in one pass over memory: a vector of logits is compared with the
// worst that would still be wanted, and only what beats it is looked at. NaN is above all numbers, as in torch; of
// equals the first counts.
#include <algorithm>
#include <vector>

#include "team.h"
#include "vec.h"

// Log-sum-exp is summed within blocks, then over them, so that its bits do not depend on how a row is cut.
constexpr int64_t BLOCK = 2048;

// Below this many logits a second thread costs more than it brings.
constexpr int64_t ARGMAX_PARALLEL_FROM = 192 * 1024, TOP_K_PARALLEL_FROM = 96 * 1024;

struct Candidate {
    float value;
    int32_t index;
};

constexpr Candidate NOTHING = {-INFINITY, INT32_MAX}; // behind every other

// The order of the answer.
TD_INLINE bool outranks(float a, float b) { return !(a <= b) && b == b; }
static bool before(Candidate a, Candidate b) {
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

// How rows are shared among threads: whole, or in parts where there are fewer rows than threads.
struct Split {
    int64_t rows, vocab, size, parts;
    bool parallel;
    Split(int64_t rows, int64_t vocab, int64_t parallel_from)
        : rows(rows), vocab(vocab), parallel(rows * vocab >= parallel_from) {
        const int64_t threads = parallel ? team_size() : 1;
        const int64_t wanted = (threads + rows - 1) / rows;
        size = (vocab / wanted + BLOCK) / BLOCK * BLOCK;
        parts = (vocab + size - 1) / size;
    }
    // work(row, part, begin, end) for every part of every row; parts begin at multiples of BLOCK.
    template <class Work> void run(Work work) const {
        share(rows * parts, parallel, [&](int64_t task, int) {
            const int64_t part = task % parts, begin = part * size;
            work(task / parts, part, begin, std::min(vocab, begin + size));
        });
    }
};

template <class T> static Candidate best_of(const T* x, int64_t begin, int64_t end) {
    Candidate best = {to_f32(x[begin]), int32_t(begin)};
    filter(x, begin, end, best.value, [&](float value, int32_t index) {
        if (outranks(value, best.value)) best = {value, index};
    });
    return best;
}

template <class T> static void argmax(const T* x, int64_t rows, int64_t vocab, int64_t stride, int64_t* out) {
    if (rows == 0) return;
    const Split split(rows, vocab, ARGMAX_PARALLEL_FROM);
    std::vector<Candidate> found(rows * split.parts);
    split.run([&](int64_t row, int64_t part, int64_t begin, int64_t end) {
        found[row * split.parts + part] = best_of(x + row * stride, begin, end);
    });
    for (int64_t row = 0; row < rows; row++) {
        auto first = found.begin() + row * split.parts;
        out[row] = std::min_element(first, first + split.parts, before)->index;
    }
}

// The k best so far and newcomers behind them, which are sorted in when there is no more room.
class Best {
  public:
    explicit Best(int k) : k(k), kept(std::max(4 * k, 256)) {}
    const float& limit() const { return worst; }
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
    auto at = [&](int64_t i) {
        int64_t left = n - i;
        return left >= LANES ? load(x + i) : iota() < int(left) ? load(x + i, int(left)) : splat(-INFINITY);
    };
    f32x16 greatest = splat(-INFINITY), sums = {};
    for (int64_t i = 0; i < n; i += LANES) greatest = max(greatest, at(i));
    float top = highest(greatest);
    if (std::isinf(top)) return {top, 0.f};
    for (int64_t i = 0; i < n; i += LANES) sums += exp(at(i) - top);
    return {top, sum(sums)};
}

static float log_sum_exp(const Mass* blocks, int64_t n) {
    float top = -INFINITY;
    for (int64_t b = 0; b < n; b++) top = std::max(top, blocks[b].greatest);
    if (std::isinf(top)) return top;
    double total = 0;
    for (int64_t b = 0; b < n; b++) total += blocks[b].sum * std::exp(double(blocks[b].greatest) - top);
    return float(top + std::log(total));
}

// What top_k reads and writes: rows `stride` apart; values and indices [rows, k]; lse [rows] or null.
template <class T> struct TopK {
    const T* x;
    int64_t rows, vocab, stride;
    int k;
    float* values;
    int64_t* indices;
    float* lse;

    void run() {
        if (rows == 0) return;
        const Split split(rows, vocab, TOP_K_PARALLEL_FROM);
        const int64_t width = split.parts * k, blocks = (vocab + BLOCK - 1) / BLOCK;
        std::vector<Candidate> found(rows * width);
        std::vector<Mass> masses(lse ? rows * blocks : 0);
        split.run([&](int64_t row, int64_t part, int64_t begin, int64_t end) {
            search(row, begin, end, &found[row * width + part * k], lse ? &masses[row * blocks] : nullptr);
        });
        for (int64_t row = 0; row < rows; row++) {
            Candidate* first = &found[row * width];
            std::partial_sort(first, first + k, first + width, before);
            write(row, first);
            if (lse) lse[row] = std::isnan(first->value) ? NAN : log_sum_exp(&masses[row * blocks], blocks);
        }
    }

    // The best of a part, and the masses of its blocks where they are wanted.
    void search(int64_t row, int64_t begin, int64_t end, Candidate* out, Mass* masses) const {
        const T* logits = x + row * stride;
        Best best(k);
        for (int64_t i = begin; i < end; i += BLOCK) {
            const int64_t stop = std::min(end, i + BLOCK);
            filter(logits, i, stop, best.limit(), [&](float value, int32_t index) { best.take({value, index}); });
            if (masses) masses[i / BLOCK] = mass_of(logits + i, stop - i);
        }
        best.write(out);
    }

    void write(int64_t row, const Candidate* best) {
        for (int i = 0; i < k; i++) {
            values[row * k + i] = best[i].value;
            indices[row * k + i] = best[i].index;
        }
    }
};

// logits [rows, vocab], rows `stride` elements apart; out [rows].
TD_EXPORT void td_argmax_f32(const float* logits, int64_t rows, int64_t vocab, int64_t stride, int64_t* out) {
    argmax(logits, rows, vocab, stride, out);
}
TD_EXPORT void td_argmax_bf16(const bf16* logits, int64_t rows, int64_t vocab, int64_t stride, int64_t* out) {
    argmax(logits, rows, vocab, stride, out);
}

// As above; values and indices [rows, k], k <= vocab; lse [rows] or null.
TD_EXPORT void td_top_k_f32(const float* logits, int64_t rows, int64_t vocab, int64_t stride, int k, float* values,
                            int64_t* indices, float* lse) {
    TopK<float>{logits, rows, vocab, stride, k, values, indices, lse}.run();
}
TD_EXPORT void td_top_k_bf16(const bf16* logits, int64_t rows, int64_t vocab, int64_t stride, int k, float* values,
                             int64_t* indices, float* lse) {
    TopK<bf16>{logits, rows, vocab, stride, k, values, indices, lse}.run();
}

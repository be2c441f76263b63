// Argmax, top-k and log-sum-exp over rows of logits. Owns how rows are cut and shared among threads.
#include "select.h"
#include "team.h"

// Below this many logits a second thread costs more than it brings.
constexpr int64_t ARGMAX_PARALLEL_FROM = 192 * 1024, TOP_K_PARALLEL_FROM = 96 * 1024;

// How rows are shared among threads: whole, or in parts where there are fewer rows than threads.
struct Split {
    int64_t rows, vocab, size, parts;
    bool parallel;
    Split(int64_t rows, int64_t vocab, int64_t parallel_from)
        : rows(rows), vocab(vocab), parallel(rows * vocab >= parallel_from) {
        const int64_t threads = parallel ? team_size() : 1;
        const int64_t wanted = (threads + rows - 1) / rows;
        size = (vocab / wanted + SPAN) / SPAN * SPAN;
        parts = (vocab + size - 1) / size;
    }
    // work(row, part, begin, end) for every part of every row; parts begin at multiples of SPAN.
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

// Rows of logits, `stride` apart, and what is asked of them.
template <class T> struct TopK {
    const T* x;
    int64_t rows, vocab, stride;
    Ranks ranks;

    void run() const {
        if (rows == 0) return;
        const Split split(rows, vocab, TOP_K_PARALLEL_FROM);
        const int64_t width = split.parts * ranks.k, spans = spans_of(vocab);
        std::vector<Candidate> found(rows * width);
        std::vector<Mass> masses(ranks.lse ? rows * spans : 0);
        const auto masses_of = [&](int64_t row) { return ranks.lse ? &masses[row * spans] : nullptr; };
        split.run([&](int64_t row, int64_t part, int64_t begin, int64_t end) {
            search(row, begin, end, &found[row * width + part * ranks.k], masses_of(row));
        });
        for (int64_t row = 0; row < rows; row++) ranks.write(row, &found[row * width], width, masses_of(row), spans);
    }

    // The best of a part, and the masses of its spans where they are wanted.
    void search(int64_t row, int64_t begin, int64_t end, Candidate* out, Mass* masses) const {
        const T* logits = x + row * stride;
        Best best(ranks.k);
        for (int64_t i = begin; i < end; i += SPAN) {
            const int64_t n = std::min(end - i, SPAN);
            best.look(logits + i, n, i);
            if (masses) masses[i / SPAN] = mass_of(logits + i, n);
        }
        best.write(out);
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
    TopK<float>{logits, rows, vocab, stride, {k, values, indices, lse}}.run();
}
TD_EXPORT void td_top_k_bf16(const bf16* logits, int64_t rows, int64_t vocab, int64_t stride, int k, float* values,
                             int64_t* indices, float* lse) {
    TopK<bf16>{logits, rows, vocab, stride, {k, values, indices, lse}}.run();
}

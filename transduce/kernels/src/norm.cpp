// LayerNorm and RMSNorm over rows. Statistics are float32, in two passes over a row that stays in the first cache; a
// row's bits depend on nothing but the row.
#include <algorithm>

#include "team.h"
#include "vec.h"

// Below this many elements a second thread costs more than it brings.
constexpr int64_t PARALLEL_FROM = 16 * 1024;

// The sum of term(i, n), which gives n values at i and zeros after them, over a row of d.
template <class Term> TD_INLINE float sum_over(int64_t d, Term term) {
    f32x16 part[4] = {}; // four at a time: an addition waits for its predecessor
    int64_t i = 0;
    for (; i + 4 * LANES <= d; i += 4 * LANES)
        for (int p = 0; p < 4; p++) part[p] += term(i + p * LANES, LANES);
    for (; i < d; i += LANES) part[0] += term(i, int(std::min<int64_t>(LANES, d - i)));
    return sum((part[0] + part[1]) + (part[2] + part[3]));
}

// out[i] = value(i, n), n at a time, over a row of d.
template <class X, class Value> TD_INLINE void write_row(X* out, int64_t d, Value value) {
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) store(out + i, value(i, LANES));
    if (i < d) store(out + i, value(i, int(d - i)), int(d - i));
}

TD_INLINE f32x16 squared(f32x16 v) { return v * v; }

// What is left of v in the type of weights W.
template <class W> TD_INLINE f32x16 rounded(f32x16 v);
template <> inline __attribute__((always_inline)) f32x16 rounded<float>(f32x16 v) { return v; }
template <> inline __attribute__((always_inline)) f32x16 rounded<bf16>(f32x16 v) {
    return as_f32(i32x16(__builtin_convertvector(round_bf16(v), u32x16) << 16));
}

template <class X, class W>
static void layer_norm_row(const X* x, const W* weight, const W* bias, int64_t d, float eps, X* out) {
    float mean = sum_over(d, [&](int64_t i, int n) { return load(x + i, n); }) / float(d);
    float variance = sum_over(d, [&](int64_t i, int n) {
                         f32x16 deviation = load(x + i, n) - mean;
                         return squared(n == LANES ? deviation : iota() < n ? deviation : splat(0.f));
                     }) /
                     float(d);
    float scale = 1.f / std::sqrt(variance + eps);
    write_row(out, d, [&](int64_t i, int n) {
        return (load(x + i, n) - mean) * scale * load(weight + i, n) + load(bias + i, n);
    });
}

template <class X, class W> static void rms_norm_row(const X* x, const W* weight, int64_t d, float eps, X* out) {
    float mean = sum_over(d, [&](int64_t i, int n) { return squared(load(x + i, n)); }) / float(d);
    float scale = 1.f / std::sqrt(mean + eps);
    write_row(out, d, [&](int64_t i, int n) { return rounded<W>(load(x + i, n) * scale) * load(weight + i, n); });
}

// work(row) for every row, a few at a time.
template <class Work> static void by_rows(int64_t rows, int64_t d, Work work) {
    const int64_t step = 8;
    share((rows + step - 1) / step, rows * d >= PARALLEL_FROM, [&](int64_t piece, int) {
        for (int64_t r = piece * step; r < rows && r < (piece + 1) * step; r++) work(r);
    });
}

template <class X, class W>
static void layer_norm(const void* x, const void* weight, const void* bias, int64_t rows, int64_t d, float eps,
                       void* out) {
    by_rows(rows, d, [=](int64_t r) {
        layer_norm_row((const X*)x + r * d, (const W*)weight, (const W*)bias, d, eps, (X*)out + r * d);
    });
}

template <class X, class W>
static void rms_norm(const void* x, const void* weight, int64_t rows, int64_t d, float eps, void* out) {
    by_rows(rows, d, [=](int64_t r) { rms_norm_row((const X*)x + r * d, (const W*)weight, d, eps, (X*)out + r * d); });
}

// x and out [rows, d], weight and bias [d]; named by the types of x and of weight.
TD_EXPORT void td_layer_norm_f32_f32(const void* x, const void* weight, const void* bias, int64_t rows, int64_t d,
                                     float eps, void* out) {
    layer_norm<float, float>(x, weight, bias, rows, d, eps, out);
}
TD_EXPORT void td_layer_norm_bf16_f32(const void* x, const void* weight, const void* bias, int64_t rows, int64_t d,
                                      float eps, void* out) {
    layer_norm<bf16, float>(x, weight, bias, rows, d, eps, out);
}
TD_EXPORT void td_layer_norm_bf16_bf16(const void* x, const void* weight, const void* bias, int64_t rows, int64_t d,
                                       float eps, void* out) {
    layer_norm<bf16, bf16>(x, weight, bias, rows, d, eps, out);
}
TD_EXPORT void td_rms_norm_f32_f32(const void* x, const void* weight, int64_t rows, int64_t d, float eps, void* out) {
    rms_norm<float, float>(x, weight, rows, d, eps, out);
}
TD_EXPORT void td_rms_norm_bf16_f32(const void* x, const void* weight, int64_t rows, int64_t d, float eps, void* out) {
    rms_norm<bf16, float>(x, weight, rows, d, eps, out);
}
TD_EXPORT void td_rms_norm_bf16_bf16(const void* x, const void* weight, int64_t rows, int64_t d, float eps,
                                     void* out) {
    rms_norm<bf16, bf16>(x, weight, rows, d, eps, out);
}

// Activations on their way into a product: rows of floats to packed tiles, quantized where the weights are.
#pragma once

#include "linear.h"

// Integers are stored with 128 added, as dot products take one unsigned operand.
constexpr int ZERO_POINT = 128;

// A row's sixteens, the last filled up with zeros.
template <class T, class F> TD_INLINE void by_lanes(const T* x, int64_t n, F&& take) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) take(i, load(x + i));
    if (i < n) take(i, load(x + i, int(n - i)));
}

TD_INLINE f32x16 itself(f32x16 v) { return v; }

// The largest magnitude in a row of what `of` makes of its values; NaN if it holds one: bits of magnitudes are ordered
// like the numbers.
template <class T, class Of = f32x16 (*)(f32x16)> TD_INLINE float row_magnitude(const T* x, int64_t n, Of of = itself) {
    i32x16 most = {};
    by_lanes(x, n, [&](int64_t, f32x16 v) {
        most = max(most, as_i32(of(v)) & 0x7fffffff);
    });
    int32_t lanes[LANES], best = 0;
    store_as(lanes, most);
    for (int32_t lane : lanes) best = lane > best ? lane : best;
    float magnitude;
    std::memcpy(&magnitude, &best, 4);
    return magnitude;
}

// Integers a row is stored as, up to `most`, and the float that one of them stands for. A row that holds an infinity or
// a NaN has such a scale, and the results of this row alone are NaN.
struct RowScale {
    RowScale(float magnitude, float most) : unit(magnitude / most), per_unit(magnitude > 0.f ? most / magnitude : 0.f) {}
    // To the nearest integer, in the low bits: adding 1.5 * 2^23 leaves it there, in those of the float.
    i32x16 operator()(f32x16 v) const { return as_i32(v * per_unit + 12582912.f); }
    float unit, per_unit;
};

constexpr float MOST = 127.f;

// What goes with a packed row: the scale of its integers, and of LLM_INT8 its outliers in their order.
struct Outlier {
    int32_t index;
    float value;
};
struct RowExtra {
    float scale;
    int32_t count;
    Outlier outliers[1]; // as many as there are inputs
};
constexpr int64_t extra_bytes(Kind kind, int64_t inner) {
    return kind == LLM_INT8 ? int64_t(sizeof(float) + sizeof(int32_t) + inner * sizeof(Outlier)) : int64_t(sizeof(float));
}

TD_INLINE u8x16 low_bytes(i32x16 v) {
#ifdef __AVX512F__
    return reinterpret_cast<u8x16>(_mm512_maskz_cvtepi32_epi8(__mmask16(-1), reinterpret_cast<__m512i>(v)));
#else
    return __builtin_convertvector(v, u8x16);
#endif
}

// A row but for its outliers to integers at `place`, and those to `extra`. A NaN is an outlier.
template <class T, class Place>
TD_INLINE void pack_apart(const T* x, int64_t n, float threshold, Place place, RowExtra& extra) {
    const auto within = [=](f32x16 v) { return less(abs(v), splat(threshold)); };
    const auto rest = [=](f32x16 v) { return select(within(v), v, splat(0.f)); };
    const RowScale integer(row_magnitude(x, n, rest), MOST);
    extra.scale = integer.unit;
    extra.count = 0;
    by_lanes(x, n, [&](int64_t i, f32x16 v) {
        store_as(place(i), low_bytes(integer(rest(v))) ^ uint8_t(ZERO_POINT));
        if (!any(~within(v))) return;
        float lanes[LANES];
        store(lanes, v);
        for (int lane = 0; lane < LANES; lane++)
            if (!(std::fabs(lanes[lane]) < threshold)) extra.outliers[extra.count++] = {int32_t(i + lane), lanes[lane]};
    });
}

// One row into its place in the tiles, every 64 bytes a tile further on; `scale` is what its integers are multiples
// of, and left alone for floats. What is past the row's end meets weights that are zero.
template <Kind K, class T>
TD_INLINE void pack_row(const T* x, int64_t n, float threshold, uint8_t* tiles, float* scale) {
    (void)threshold;
    constexpr int PER_TILE = STEP * per_word(K), BYTES = 4 / per_word(K);
    const auto place = [=](int64_t i) { return tiles + i / PER_TILE * TILE + i % PER_TILE * BYTES; };
    if constexpr (K == FLOAT32) by_lanes(x, n, [&](int64_t i, f32x16 v) { store(reinterpret_cast<float*>(place(i)), v); });
    if constexpr (K == BFLOAT16) by_lanes(x, n, [&](int64_t i, f32x16 v) { store(reinterpret_cast<bf16*>(place(i)), v); });
    if constexpr (K == INT8) {
        const RowScale integer(row_magnitude(x, n), MOST);
        *scale = integer.unit;
        by_lanes(x, n, [&](int64_t i, f32x16 v) { store_as(place(i), low_bytes(integer(v)) ^ uint8_t(ZERO_POINT)); });
    }
    if constexpr (K == INT8X2) { // 128 times the first, plus the second, which is the next row of the tile
        const RowScale integer(row_magnitude(x, n), MOST * 128);
        scale[0] = integer.unit * 128;
        scale[1] = integer.unit;
        by_lanes(x, n, [&](int64_t i, f32x16 v) {
            const i32x16 whole = integer(v), upper = (whole + 64) >> 7;
            store_as(place(i), low_bytes(upper) ^ uint8_t(ZERO_POINT));
            store_as(place(i) + 64, low_bytes(whole - (upper << 7)) ^ uint8_t(ZERO_POINT));
        });
    }
    if constexpr (K == LLM_INT8) pack_apart(x, n, threshold, place, *reinterpret_cast<RowExtra*>(scale));
    // Bytes between the row's end and its tile's may hold a NaN, which times zero is one.
    const int64_t whole = round_up(n, PER_TILE);
    for (int64_t i = round_up(n, LANES); i < whole; i += LANES)
        for (int term = 0; term < terms(K); term++) std::memset(place(i) + term * 64, 0, LANES * BYTES);
}

// Packed rows and what goes with each.
struct Tiles {
    uint8_t* at;
    uint8_t* extras;
    int64_t extra; // bytes of a row's

    float* scale(int64_t row) const { return reinterpret_cast<float*>(extras + row * extra); }
};

// Rows [from, to) of x into tiles; a tile's missing rows are left as they are, since nothing reads their sums.
template <Kind K> static void pack_rows(const Linear& w, const Matrix& x, int64_t from, int64_t to, const Tiles& tiles) {
    const int64_t n = w.in, tile_rows = steps_of(K, n) * TILE;
    for (int64_t r = from; r < to; r++) {
        const int64_t packed = (r - from) * terms(K);
        uint8_t* at = tiles.at + packed / STEP * tile_rows + packed % STEP * 64;
        float* scale = tiles.scale(packed);
        if (x.type == F32) pack_row<K>(static_cast<const float*>(x.data) + r * x.row, n, w.threshold, at, scale);
        else pack_row<K>(static_cast<const bf16*>(x.data) + r * x.row, n, w.threshold, at, scale);
    }
}

// What becomes of a block's sums: scales and bias, an activation, another row times or plus it, and rounding once.
#pragma once

#include "activation.h"
#include "block.h"
#include "rows.h"

// The greatest of some outputs and its index; of equals the lowest.
struct Leader {
    float value = -INFINITY;
    int32_t index = 0;

    void meet(Leader other) {
        if (other.value > value || (other.value == value && other.index < index)) *this = other;
    }
};

// Where a product goes. `times` and `plus`: null, or rows of out's type that the activated result is multiplied by,
// then added to. `leaders`: where only the greatest of each row is wanted, one for every row.
struct Target {
    Matrix out;
    const Matrix *times, *plus;
    Leader* leaders;
};

// A block's place in the target, and its packed rows.
struct Place {
    int64_t row, column;
    int rows;
    Tiles packed;
};

// Rows of a matrix at a block's place.
template <class T> struct Rows {
    Rows(const Matrix& m, int64_t row, int64_t column) : at(static_cast<T*>(m.data) + row * m.row + column), step(m.row) {}
    T* operator[](int64_t row) const { return at + row * step; }
    T* at;
    int64_t step;
};

// `sum` and a row's outliers times the weights of a panel of integers. Inlined, products might be fused with additions in
// one place and not in another, and results would differ by a bit.
static __attribute__((noinline)) f32x16 plus_outliers(f32x16 sum, const RowExtra& row, const uint8_t* panel) {
    for (int32_t i = 0; i < row.count; i++) {
        const int32_t at = row.outliers[i].index, per_tile = STEP * per_word(LLM_INT8);
        const i32x16 words = load_as<i32x16>(panel + at / per_tile * TILE + at % per_tile / 4 * 64);
        sum = sum + to_f32((words << (24 - 8 * (at % 4))) >> 24) * row.outliers[i].value;
    }
    return sum;
}

// One panel's parameters, held in registers while its rows go by. `sums` and `scales` are those of a row's first term,
// the next term's lie `row` sums further on.
template <Kind K> struct Panel {
    Panel(const Linear& w, int64_t column) : bias(w.bias ? load(w.bias + column) : splat(0.f)) {
        if constexpr (integers(K)) {
            scale = load(w.scale + column);
            offset = load_as<i32x16>(w.offset + column);
            weights = w.panels + column / LANES * steps_of(K, w.in) * TILE;
        }
    }
    f32x16 operator()(const typename Accumulator<K>::one* sums, const float* scales, int row) const {
        if constexpr (K == INT8) return integer(sums) * (scale * scales[0]) + bias;
        else if constexpr (K == INT8X2) return (integer(sums) * scales[0] + integer(sums + row) * scales[1]) * scale + bias;
        else if constexpr (K == LLM_INT8) {
            const RowExtra& extra = *reinterpret_cast<const RowExtra*>(scales);
            const f32x16 plain = integer(sums) * extra.scale;
            return (extra.count ? plus_outliers(plain, extra, weights) : plain) * scale + bias;
        } else return load_as<f32x16>(sums) + bias;
    }
    f32x16 integer(const int32_t* sums) const { return to_f32(load_as<i32x16>(sums) - offset); }
    f32x16 bias, scale;
    i32x16 offset;
    const uint8_t* weights;
};

// Two whole panels, and nothing follows the activation: the common case, in few instructions.
template <Kind K, int PANELS, class T, Activation A>
TD_INLINE void finish_pair(const typename Accumulator<K>::one* sums, const Linear& w, const Place& place, int64_t column,
                           const Target& target) {
    const Panel<K> left(w, column), right(w, column + LANES);
    const Rows<T> out(target.out, place.row, column);
    constexpr int ROW = PANELS * LANES;
    for (int64_t r = 0, rows = place.rows; r < rows; r++, sums += terms(K) * ROW) {
        const float* scales = place.packed.scale(r * terms(K));
        store_pair(out[r], activated<A, K == FLOAT32>(left(sums, scales, ROW)),
                   activated<A, K == FLOAT32>(right(sums + LANES, scales, ROW)));
    }
}

// The first n outputs of a panel, times and plus other rows.
template <Kind K, int PANELS, class T, Activation A>
TD_INLINE void finish_full(const typename Accumulator<K>::one* sums, const Panel<K> panel, const Place& place,
                           const Target& target, int64_t column, int n) {
    const Rows<T> out(target.out, place.row, column);
    const Rows<T> times(target.times ? *target.times : target.out, place.row, column);
    const Rows<T> plus(target.plus ? *target.plus : target.out, place.row, column);
    for (int64_t r = 0; r < place.rows; r++) {
        constexpr int ROW = PANELS * LANES;
        const int64_t packed = r * terms(K);
        f32x16 v = activated<A, K == FLOAT32>(panel(sums + packed * ROW, place.packed.scale(packed), ROW));
        if (target.times) v = v * load(times[r], n);
        if (target.plus) v = v + load(plus[r], n);
        store(out[r], v, n);
    }
}

template <Kind K, int PANELS, class T, Activation A>
void finish(const Sums<K>& sums, const Linear& w, const Place& place, const Target& target) {
    for (int p = 0; p < PANELS; p++) {
        const int64_t column = place.column + p * LANES;
        if (column >= w.out) return;
        const auto* at = sums.at + p * LANES;
        if (p % 2 == 0 && column + 2 * LANES <= w.out && !target.times && !target.plus) {
            finish_pair<K, PANELS, T, A>(at, w, place, column, target);
            p++;
            continue;
        }
        const int n = w.out - column < LANES ? int(w.out - column) : LANES;
        finish_full<K, PANELS, T, A>(at, Panel<K>(w, column), place, target, column, n);
    }
}

// Outputs come in rising order, so a leader gives way to greater ones alone; few outputs are.
template <Kind K, int PANELS>
void finish_best(const Sums<K>& sums, const Linear& w, const Place& place, const Target& target) {
    for (int p = 0; p < PANELS; p++) {
        const int64_t column = place.column + p * LANES;
        if (column >= w.out) return;
        const Panel<K> panel(w, column);
        const f32x16 outside = iota() < splat(int32_t(w.out - column)) ? splat(0.f) : splat(-INFINITY);
        for (int r = 0; r < place.rows; r++) {
            Leader& leader = target.leaders[place.row + r];
            const int64_t packed = r * terms(K);
            const auto* at = sums.at + (packed * PANELS + p) * LANES;
            const f32x16 v = panel(at, place.packed.scale(packed), PANELS * LANES) + outside;
            if (!any(less(splat(leader.value), v))) continue;
            float lanes[LANES];
            store(lanes, v);
            for (int lane = 0; lane < LANES; lane++)
                if (lanes[lane] > leader.value) leader = {lanes[lane], int32_t(column + lane)};
        }
    }
}

template <Kind K, int PANELS>
using Finish = void (*)(const Sums<K>&, const Linear&, const Place&, const Target&);

template <Kind K, int PANELS, class T> Finish<K, PANELS> finish_of(int32_t activation) {
    switch (activation) {
    case RELU: return finish<K, PANELS, T, RELU>;
    case GELU: return finish<K, PANELS, T, GELU>;
    case GELU_NEW: return finish<K, PANELS, T, GELU_NEW>;
    case SILU: return finish<K, PANELS, T, SILU>;
    default: return finish<K, PANELS, T, NONE>;
    }
}

// The epilogue of a layer that writes to the target.
template <Kind K, int PANELS> Finish<K, PANELS> finish_of(const Linear& w, const Target& target) {
    return target.out.type == F32 ? finish_of<K, PANELS, float>(w.activation) : finish_of<K, PANELS, bf16>(w.activation);
}

// Attention of a part of an item, flash-style: a block of queries meets block after block of keys and carries along the
// highest score, the sum of weights and the weighted sum of values. Powers and logarithms are of base 2.
//
// Owns how queries, keys, values and biases are laid out for that; block.h multiplies. Knows no threads.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "block.h"

namespace {

// Mirrored by varlen.py.
struct Varlen {
    const void *q, *k, *v; // [rows, heads], twice [rows, kv_heads], of [head_dim]; all bf16 or all float
    void* out;             // [rows, heads, head_dim]
    const int64_t* lengths;
    const float* bias; // [heads, 2 * reach + 1], or null
    int64_t items, q_row, k_row, v_row; // elements from a row to the next
    int64_t heads, kv_heads, head_dim, reach, window;
    float scale, softcap; // softcap 0: none
    int32_t causal, bfloat16;
};

// Queries [from, to) of an item, for the heads that share one head of keys and values.
struct Part {
    int64_t first_row, length, from, to, kv_head;
};

// What happens to scores before they become weights.
enum Shape { SCALED, BY_DISTANCE, CAPPED };

constexpr float LOG2_E = 1.44269504f;
constexpr float LOWEST = -1e30f; // finite, so that a row that has seen nothing yet has no NaN
constexpr int KEYS = 256;        // of a block

template <class E> class Buffer {
  public:
    explicit Buffer(int64_t n) : at_(static_cast<E*>(std::aligned_alloc(64, round_up(n * sizeof(E), 64)))) {}
    ~Buffer() { std::free(at_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    operator E*() const { return at_; }

  private:
    E* at_;
};

// Up to sixteen numbers at x; n may be anything.
template <class T> TD_INLINE f32x16 load_some(const T* x, int64_t n) {
    return n >= LANES ? load(x) : n > 0 ? load(x, int(n)) : splat(0.f);
}

// Neighbours along a row as words.
template <Kind K, class T> TD_INLINE i32x16 row_words(const T* x, int64_t n) {
    if constexpr (K == FLOAT32) return as_i32(load_some(x, n));
    if (n >= 2 * LANES) return load_as<i32x16>(x);
    T some[2 * LANES] = {};
    if (n > 0) std::memcpy(some, x, n * sizeof(T));
    return load_as<i32x16>(some);
}

// Sixteen columns of the rows x, and with bf16 x + row, as words; n and rows may be anything.
template <Kind K, class T> TD_INLINE i32x16 column_words(const T* x, int64_t row, int64_t n, int64_t rows) {
    const i32x16 first = rows > 0 ? as_i32(load_some(x, n)) : i32x16{};
    if constexpr (K == FLOAT32) return first;
    const i32x16 second = rows > 1 ? as_i32(load_some(x + row, n)) : i32x16{};
    return i32x16(u32x16(first) >> 16) | second;
}

// A thread's buffers, and attention of one part at a time.
template <class T> class PartAttention {
#ifdef __AVX512BF16__
    static constexpr Kind K = sizeof(T) == 2 ? BFLOAT16 : FLOAT32;
#else
    static constexpr Kind K = FLOAT32; // there is no dot product of bf16
#endif
#ifdef __AMX_TILE__
    static constexpr int QUERIES = K == BFLOAT16 ? 32 : 16;
#else
    static constexpr int QUERIES = 16;
#endif
    static constexpr int PER_WORD = per_word(K), STEP_CELLS = STEP * PER_WORD;
    static constexpr int PANELS = BLOCK / QUERIES / LANES, GROUP = PANELS * LANES;

  public:
    PartAttention(const Varlen& call, int64_t longest)
        : call_(call), steps_(steps_of(K, call.head_dim)), groups_((call.head_dim + GROUP - 1) / GROUP),
          queries_(QUERIES / STEP * steps_ * TILE), keys_(round_up(longest, GROUP) / LANES * steps_ * TILE),
          values_(steps_of(K, longest) * groups_ * PANELS * TILE), weights_(QUERIES * KEYS * 4 / PER_WORD),
          by_distance_(2 * longest + GROUP), scores_(KEYS / GROUP), sums_(groups_), fresh_(groups_) {}

    void attend(const Part& part) {
        part_ = part;
        pack_keys();
        pack_values();
        const bool bounded = call_.causal || call_.window < part.length;
        const int64_t sharing = call_.heads / call_.kv_heads;
        for (int64_t head = part.kv_head * sharing; head < (part.kv_head + 1) * sharing; head++) {
            if (call_.softcap > 0) attend_head<CAPPED>(head);
            else if (call_.bias || bounded) attend_head<BY_DISTANCE>(head);
            else attend_head<SCALED>(head);
        }
    }

  private:
    template <Shape S> void attend_head(int64_t head) {
        if (S != SCALED) lay_biases(head, S == CAPPED ? 1.f : LOG2_E);
        for (int64_t from = part_.from; from < part_.to; from += QUERIES) {
            const int rows = int(std::min<int64_t>(QUERIES, part_.to - from));
            pack_queries(head, from, rows);
            begin();
            const int64_t seen = call_.causal ? from + rows : part_.length;
            const int64_t unseen = std::max<int64_t>(0, from - call_.window + 1);
            const int64_t first = unseen / KEYS * KEYS;
            for (int64_t key = first; key < seen; key += KEYS) {
                score(key, rows);
                for (int row = 0; row < rows; row += STEP) weigh<S>(from, key, row, std::min(STEP, rows - row));
                if (key == first) sum_values(key, rows, sums_);
                else add_values(key, rows);
            }
            finish(head, from, rows);
        }
    }

    // [panel of keys][step][16 words][16 keys]
    void pack_keys() {
        const T* k = static_cast<const T*>(call_.k) + part_.first_row * call_.k_row + part_.kv_head * call_.head_dim;
        uint8_t* at = keys_;
        for (int64_t key = 0; key < round_up(part_.length, GROUP); key += LANES)
            for (int64_t d = 0; d < steps_ * STEP_CELLS; d += STEP_CELLS, at += TILE) {
                i32x16 rows[LANES] = {};
                for (int i = 0; i < LANES && key + i < part_.length; i++)
                    rows[i] = row_words<K>(k + (key + i) * call_.k_row + d, call_.head_dim - d);
                transpose(rows);
                for (int i = 0; i < LANES; i++) store_as(at + i * 64, rows[i]);
            }
    }

    // [block of keys][panel of head_dim][step][16 words of keys][16]
    void pack_values() {
        const T* v = static_cast<const T*>(call_.v) + part_.first_row * call_.v_row + part_.kv_head * call_.head_dim;
        for (int64_t block = 0; block < part_.length; block += KEYS) {
            uint8_t* at = block_values(block);
            const int64_t panel = block_steps(block) * TILE;
            for (int64_t key = block; at < block_values(block) + panel; key += PER_WORD, at += 64)
                for (int64_t d = 0; d < groups_ * GROUP; d += LANES)
                    store_as(at + d / LANES * panel, column_words<K>(v + key * call_.v_row + d, call_.v_row,
                                                                     call_.head_dim - d, part_.length - key));
        }
    }

    // [tile of rows][step][16 rows][16 words]; what is made of rows that do not exist is never looked at.
    void pack_queries(int64_t head, int64_t from, int rows) {
        const T* q = static_cast<const T*>(call_.q) + (part_.first_row + from) * call_.q_row + head * call_.head_dim;
        for (int row = 0; row < rows; row++, q += call_.q_row)
            for (int64_t s = 0; s < steps_; s++)
                store_as(queries_ + (row / STEP * steps_ + s) * TILE + row % STEP * 64,
                         row_words<K>(q + s * STEP_CELLS, call_.head_dim - s * STEP_CELLS));
    }

    // What is added to a score, by distance from length - 1 before the query: biases, and -inf where nothing is seen.
    void lay_biases(int64_t head, float unit) {
        const float* bias = call_.bias ? call_.bias + head * (2 * call_.reach + 1) + call_.reach : nullptr;
        for (int64_t i = 0; i < 2 * part_.length + GROUP; i++) {
            const int64_t distance = i - (part_.length - 1);
            const bool unseen = (call_.causal && distance > 0) || -distance >= call_.window;
            const float added = bias ? bias[std::clamp(distance, -call_.reach, call_.reach)] * unit : 0.f;
            by_distance_[i] = unseen ? -INFINITY : added;
        }
    }

    void begin() {
        std::fill_n(highest_, QUERIES / LANES, splat(LOWEST));
        std::fill_n(total_, QUERIES / LANES, splat(0.f));
    }

    // Scores of a block of keys; those past the item's end are -inf.
    void score(int64_t key, int rows) {
        const int64_t keys = block_keys(key);
        for (int64_t g = 0; g * GROUP < keys; g++)
            multiply(queries_, keys_ + (key + g * GROUP) / LANES * steps_ * TILE, steps_, rows, scores_[g]);
        if (keys % GROUP) hide_from(keys % GROUP, rows, scores_[keys / GROUP].at);
    }

    static void hide_from(int key, int rows, float* scores) {
        for (int p = 0; p < PANELS; p++)
            for (int row = 0; row < rows; row++) {
                float* at = scores + row * GROUP + p * LANES;
                store(at, iota() + p * LANES < key ? load(at) : splat(-INFINITY));
            }
    }

    // Scores of up to sixteen rows from `row` on become weights; what was summed before shrinks with the highest score.
    template <Shape S> void weigh(int64_t from, int64_t key, int row, int rows) {
        const int64_t groups = (block_keys(key) + GROUP - 1) / GROUP;
        const float unit = S == SCALED ? call_.scale * LOG2_E : 1.f;
        f32x16 tops[LANES] = {}, totals[LANES] = {};
        for (int i = 0; i < rows; i++)
            tops[i] = shape_row<S>(row + i, groups, by_distance_ + (key - from - row - i + part_.length - 1));
        const f32x16 top = across(tops, [](f32x16 a, f32x16 b) { return max(a, b); }) * unit;
        const f32x16 highest = max(highest_[row / LANES], top);
        float base[LANES];
        store(base, highest);
        uint8_t* weights = weights_ + row / STEP * block_steps(key) * TILE;
        for (int i = 0; i < rows; i++) totals[i] = weigh_row(row + i, groups, unit, base[i], weights + i * 64);
        const f32x16 kept = exp2(highest_[row / LANES] - highest);
        store(kept_ + row, kept);
        highest_[row / LANES] = highest;
        total_[row / LANES] = total_[row / LANES] * kept + across(totals, [](f32x16 a, f32x16 b) { return a + b; });
    }

    template <Shape S> f32x16 shape_row(int row, int64_t groups, const float* by_distance) {
        f32x16 top = splat(-INFINITY);
        for (int64_t g = 0; g < groups; g++)
            for (int p = 0; p < PANELS; p++) {
                float* at = scores_[g].at + row * GROUP + p * LANES;
                f32x16 x = load(at);
                if constexpr (S != SCALED) store(at, x = shaped<S>(x, load(by_distance + g * GROUP + p * LANES)));
                top = max(x, top);
            }
        return top;
    }

    template <Shape S> f32x16 shaped(f32x16 score, f32x16 added) const {
        if constexpr (S == BY_DISTANCE) return score * (call_.scale * LOG2_E) + added;
        const f32x16 x = score * call_.scale + added;
        return x == -INFINITY ? x : tanh(x / call_.softcap) * (call_.softcap * LOG2_E);
    }

    f32x16 weigh_row(int row, int64_t groups, float unit, float base, uint8_t* weights) {
        f32x16 total = {};
        for (int64_t g = 0; g < groups; g++)
            for (int p = 0; p < PANELS; p++) {
                const f32x16 weight = exp2<K == BFLOAT16>(load(scores_[g].at + row * GROUP + p * LANES) * unit - base);
                total += weight;
                const int64_t panel = g * PANELS + p;
                uint8_t* at = weights + panel / PER_WORD * TILE + panel % PER_WORD * (64 / PER_WORD);
                if constexpr (K == BFLOAT16) store(reinterpret_cast<bf16*>(at), weight);
                else store(reinterpret_cast<float*>(at), weight);
            }
        return total;
    }

    void sum_values(int64_t key, int rows, Sums<K>* sums) {
        const int64_t steps = block_steps(key);
        for (int64_t g = 0; g < groups_; g++)
            multiply(weights_, block_values(key) + g * PANELS * steps * TILE, steps, rows, sums[g]);
    }

    void add_values(int64_t key, int rows) {
        sum_values(key, rows, fresh_);
        for (int64_t g = 0; g < groups_; g++)
            for (int i = 0; i < rows * GROUP; i += LANES) {
                float* sum = sums_[g].at + i;
                store(sum, load(sum) * kept_[i / GROUP] + load(fresh_[g].at + i));
            }
    }

    void finish(int64_t head, int64_t from, int rows) {
        float share[QUERIES];
        for (int row = 0; row < QUERIES; row += LANES) store(share + row, 1.f / total_[row / LANES]);
        T* out = static_cast<T*>(call_.out) + ((part_.first_row + from) * call_.heads + head) * call_.head_dim;
        for (int row = 0; row < rows; row++, out += call_.heads * call_.head_dim)
            for (int64_t d = 0; d < call_.head_dim; d += LANES) {
                const f32x16 sum = load(sums_[d / GROUP].at + row * GROUP + d % GROUP);
                store(out + d, sum * share[row], int(std::min<int64_t>(LANES, call_.head_dim - d)));
            }
    }

    // A function of its own, or the compiler runs out of registers for the sums.
    __attribute__((noinline)) static void multiply(const uint8_t* a, const uint8_t* b, int64_t steps, int rows,
                                                   Sums<K>& out) {
        block<K, PANELS>(a, b, steps, rows, Ahead{nullptr, 0}, out); // what comes next is in the cache
    }

    int64_t block_keys(int64_t key) const { return std::min<int64_t>(KEYS, part_.length - key); }
    int64_t block_steps(int64_t key) const { return steps_of(K, block_keys(key)); }
    uint8_t* block_values(int64_t key) const { return values_ + key / STEP_CELLS * groups_ * PANELS * TILE; }

    const Varlen& call_;
    Part part_;
    const int64_t steps_, groups_; // of head_dim
    Buffer<uint8_t> queries_, keys_, values_, weights_;
    Buffer<float> by_distance_;
    Buffer<Sums<K>> scores_, sums_, fresh_;
    f32x16 highest_[QUERIES / LANES], total_[QUERIES / LANES]; // of each row
    alignas(64) float kept_[QUERIES];
};

} // namespace

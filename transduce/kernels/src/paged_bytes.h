// Attention of up to four queries over the pages of bytes of one KV head, by dot products of integers.
//
// Queries and weights become integers of two bytes, so that their rounding is nothing beside that of the pages: a query
// is 128 * upper + lower, and a weight, which is never negative, 256 * upper + lower. Integers have the same sum in any
// order: a query's bits do not depend on the queries beside it.
#pragma once

#include "paged_query.h"
#include "rows.h"

constexpr int PER_BYTES = PER_WORD<int8_t>;
constexpr int MOST_KEYS = 1 << 15; // 32 bits hold the sum of so many products of bytes

// A query and its weights as integers. unit, weights_unit: what they are multiples of.
struct Integers {
    uint8_t *upper, *lower;                 // [head_dim]
    uint8_t *weights_upper, *weights_lower; // [keys, and zeros up to a whole vector]
    float unit, weights_unit;
    int32_t offset; // in its dot products: bytes of keys are stored with ZERO_POINT added

    static int64_t room(int64_t head_dim, int64_t keys) {
        return 2 * (round_up(head_dim, LANES) + round_up(keys, LANES));
    }
};

static Integers split_query(const Query& query, int head_dim, int keys) {
    const int64_t dims = round_up(head_dim, LANES), weights = 2 * dims + round_up(keys, LANES);
    const RowScale integer(row_magnitude(query.q, head_dim), MOST * ZERO_POINT);
    Integers ints{query.bytes, query.bytes + dims, query.bytes + 2 * dims, query.bytes + weights, integer.unit, 0.f, 0};
    i32x16 total = {};
    by_lanes(query.q, head_dim, [&](int64_t i, f32x16 v) {
        const i32x16 whole = integer(v), high = (whole + 64) >> 7;
        total += whole - as_i32(splat(12582912.f)); // what RowScale adds
        store_as(ints.upper + i, low_bytes(high));
        store_as(ints.lower + i, low_bytes(whole - (high << 7)));
    });
    for (int lane = 0; lane < LANES; lane++) ints.offset += ZERO_POINT * total[lane];
    return ints;
}

// Scores, before Scoring, of N queries with sixteen keys from `key` on, of which `lanes` lie in the block.
template <int N, bool WHOLE>
TD_INLINE void dot_keys(const int32_t* keys, const float* scales, int lanes, PageShape shape, const Integers* ints,
                        Query* const* queries, int key) {
    constexpr int CHAINS = 2; // a sum waits for its predecessor
    i32x16 upper[N][CHAINS] = {}, lower[N][CHAINS] = {};
    const auto add = [&](int dim, int chain) __attribute__((always_inline)) {
        const i32x16 words = load_words<WHOLE>(keys, lanes);
        keys += shape.block_size;
        for (int n = 0; n < N; n++) {
            upper[n][chain] = dot_bytes(upper[n][chain], words, splat(load_as<int32_t>(ints[n].upper + dim)));
            lower[n][chain] = dot_bytes(lower[n][chain], words, splat(load_as<int32_t>(ints[n].lower + dim)));
        }
    };
    int dim = 0;
    for (; dim + CHAINS * 4 <= shape.head_dim; dim += CHAINS * 4)
        for (int chain = 0; chain < CHAINS; chain++) add(dim + chain * 4, chain);
    if (dim < shape.head_dim) add(dim, 0);
    const f32x16 each = WHOLE ? load(scales) : load(scales, lanes);
    for (int n = 0; n < N; n++) {
        const i32x16 dots = ((upper[n][0] + upper[n][1]) << 7) + lower[n][0] + lower[n][1];
        store(queries[n]->weights + key, to_f32(dots - ints[n].offset) * (each * ints[n].unit));
    }
}

// Scores of N queries with the keys of all blocks that touch [first, end).
template <int N>
static void multiply_keys(const Pages<int8_t>& pages, int first, int end, const Integers* ints, Query* const* queries) {
    const int size = pages.shape.block_size;
    for (int block = first / size; block * size < end; block++) {
        pages.fetch_after_keys(block, first / size, (end - 1) / size);
        const auto* keys = reinterpret_cast<const int32_t*>(pages.keys(block));
        const auto* scales = reinterpret_cast<const float*>(pages.keys(block) + pages.shape.elements());
        for (int token = 0; token < std::min(size, end - block * size); token += LANES) {
            const int lanes = size - token, key = block * size + token;
            if (lanes >= LANES) dot_keys<N, true>(keys + token, scales + token, LANES, pages.shape, ints, queries, key);
            else dot_keys<N, false>(keys + token, scales + token, lanes, pages.shape, ints, queries, key);
        }
    }
}

// A query's weights, each times what its value's integers stand for.
static void scale_weights(const Pages<int8_t>& pages, const Query& query) {
    const int size = pages.shape.block_size;
    for (int key = query.first; key < query.end;) {
        const int block = key / size, stop = std::min(query.end, (block + 1) * size);
        const char* page = reinterpret_cast<const char*>(pages.values(block) + pages.shape.elements());
        const auto* scales = reinterpret_cast<const float*>(page - int64_t(block) * size * 4);
        for (; key + LANES <= stop; key += LANES) store(query.weights + key, load(query.weights + key) * load(scales + key));
        for (; key < stop; key++) query.weights[key] *= scales[key];
    }
}

// Scaled weights to integers: zero for those of the keys [first, end) that the query does not see.
static void split_weights(const Query& query, int first, int end, Integers& ints) {
    const int64_t from = first / LANES * LANES, own = query.first / LANES * LANES;
    std::memset(ints.weights_upper + from, 0, round_up(end, LANES) - from);
    std::memset(ints.weights_lower + from, 0, round_up(end, LANES) - from);
    const float most = 65535.f, top = row_magnitude(query.weights + own, query.end - own);
    const float per_unit = top > 0.f ? most / top : 0.f;
    for (int64_t key = own; key < query.end; key += LANES) {
        const i32x16 whole = as_i32(load(query.weights + key) * per_unit + 8388608.f); // 2^23: integers in the low bits
        store_as(ints.weights_upper + key, low_bytes(whole >> 8));
        store_as(ints.weights_lower + key, low_bytes(whole));
    }
    ints.weights_unit = top / most;
}

// Adds the values of tokens [first, end) to N queries' sums: VECTORS of dimensions from `dim` on, or if not WHOLE, the
// first `lanes` of one.
template <int N, int VECTORS, bool WHOLE = true>
static void add_strip(const Pages<int8_t>& pages, int first, int end, int dim, const Integers* ints,
                      Query* const* queries, int lanes = LANES) {
    const int size = pages.shape.block_size / PER_BYTES, width = pages.shape.head_dim;
    const int last = (end + PER_BYTES - 1) / PER_BYTES;
    i32x16 upper[N][VECTORS] = {}, lower[N][VECTORS] = {};
    f32x16 sums[N][VECTORS];
    for (int word = first / PER_BYTES; word < last;) {
        const int block = word / size, stop = std::min(last, (block + 1) * size);
        pages.fetch_after_values(block, (last - 1) / size);
        const auto* values = reinterpret_cast<const int32_t*>(pages.values(block)) + int64_t(word - block * size) * width + dim;
        for (; word < stop; word++, values += width) {
            i32x16 v[VECTORS];
            for (int i = 0; i < VECTORS; i++) v[i] = load_words<WHOLE>(values + i * LANES, lanes);
            for (int n = 0; n < N; n++) {
                const i32x16 high = splat(load_as<int32_t>(ints[n].weights_upper + word * PER_BYTES));
                const i32x16 low = splat(load_as<int32_t>(ints[n].weights_lower + word * PER_BYTES));
                for (int i = 0; i < VECTORS; i++) {
                    upper[n][i] = dot_bytes(upper[n][i], high, v[i]);
                    lower[n][i] = dot_bytes(lower[n][i], low, v[i]);
                }
            }
        }
    }
    for (int n = 0; n < N; n++)
        for (int i = 0; i < VECTORS; i++) {
            const f32x16 whole = to_f32(upper[n][i]) * 256.f + to_f32(lower[n][i]);
            sums[n][i] = load(queries[n]->sums + dim + i * LANES) + whole * ints[n].weights_unit;
        }
    for (int n = 0; n < N; n++)
        for (int i = 0; i < VECTORS; i++) store(queries[n]->sums + dim + i * LANES, sums[n][i]);
}

// Adds the values of tokens [first, end) to N queries' sums.
template <int N>
static void add_values(const Pages<int8_t>& pages, int first, int end, const Integers* ints, Query* const* queries) {
    constexpr int VECTORS = N == 1 ? 4 : 2; // sums of two halves take half of the registers
    const int width = pages.shape.head_dim, whole = width / LANES * LANES;
    int dim = 0;
    for (; dim + VECTORS * LANES <= whole; dim += VECTORS * LANES)
        add_strip<N, VECTORS>(pages, first, end, dim, ints, queries);
    for (; dim < whole; dim += LANES) add_strip<N, 1>(pages, first, end, dim, ints, queries);
    if (dim < width) add_strip<N, 1, false>(pages, first, end, dim, ints, queries, width - dim);
}

// Attention of `count` queries that see something; the others of N repeat one of them.
template <class T, int N>
static void attend_together(const Pages<int8_t>& pages, const Scoring& how, int count, Query* const* queries) {
    int first = INT32_MAX, end = 0;
    for (int n = 0; n < count; n++) {
        first = std::min(first, queries[n]->first);
        end = std::max(end, queries[n]->end);
    }
    Integers ints[N];
    for (int n = 0; n < N; n++) ints[n] = split_query(*queries[n], pages.shape.head_dim, end);
    multiply_keys<N>(pages, first, end, ints, queries);
    for (int n = 0; n < count; n++) {
        weigh(how, *queries[n]);
        scale_weights(pages, *queries[n]);
        split_weights(*queries[n], first, end, ints[n]);
    }
    for (int n = count; n < N; n++) ints[n] = ints[count - 1];
    for (int from = first / MOST_KEYS * MOST_KEYS; from < end; from += MOST_KEYS)
        add_values<N>(pages, std::max(first, from), std::min(end, from + MOST_KEYS), ints, queries);
}

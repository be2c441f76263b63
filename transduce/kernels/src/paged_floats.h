// Attention of up to four queries over the pages of floats of one KV head: they share each load of keys and values.
//
// A query reduces over the keys it sees in the order of their positions, and each partial sum belongs to places that
// follow from position alone: its bits do not depend on the queries beside it.
#pragma once

#include "paged_query.h"

// Dot products of N queries with sixteen keys from `key` on, of which `lanes` lie in the block.
template <class T, int N, bool WHOLE>
TD_INLINE void dot_keys(const int32_t* keys, int lanes, PageShape shape, Query* const* queries, int key) {
    constexpr int CHAINS = 4; // a sum waits for its predecessor
    constexpr int PER = PER_WORD<T>;
    const int whole = shape.head_dim / CHAINS * CHAINS;
    const float* q[N];
    for (int n = 0; n < N; n++) q[n] = queries[n]->q;
    f32x16 sums[N][CHAINS] = {};
    const auto add = [&](int dim, int chain) __attribute__((always_inline)) {
        const i32x16 words = load_words<WHOLE>(keys, lanes);
        keys += shape.block_size;
        for (int place = 0; place < PER; place++) {
            const f32x16 k = part<T>(words, place);
            for (int n = 0; n < N; n++) sums[n][chain + place] += k * q[n][dim + place];
        }
    };
    for (int dim = 0; dim < whole; dim += CHAINS)
        for (int chain = 0; chain < CHAINS; chain += PER) add(dim + chain, chain);
    for (int dim = whole; dim < shape.head_dim; dim += PER) add(dim, 0);
    for (int n = 0; n < N; n++)
        store(queries[n]->weights + key, (sums[n][0] + sums[n][1]) + (sums[n][2] + sums[n][3]));
}

// Dot products of N queries with the keys of all blocks that touch [first, end).
template <class T, int N>
static void multiply_keys(const Pages<T>& pages, int first, int end, Query* const* queries) {
    const int size = pages.shape.block_size;
    for (int block = first / size; block * size < end; block++) {
        pages.fetch_after_keys(block, first / size, (end - 1) / size);
        const auto* keys = reinterpret_cast<const int32_t*>(pages.keys(block));
        for (int token = 0; token < std::min(size, end - block * size); token += LANES) {
            const int lanes = size - token, key = block * size + token;
            if (lanes >= LANES) dot_keys<T, N, true>(keys + token, LANES, pages.shape, queries, key);
            else dot_keys<T, N, false>(keys + token, lanes, pages.shape, queries, key);
        }
    }
}

// Adds the values of token words [from, to) to N queries' sums: VECTORS of dimensions from `dim` on, or if not WHOLE,
// the first `lanes` of one.
template <class T, int N, int VECTORS, bool WHOLE = true>
static void add_strip(const Pages<T>& pages, int from, int to, int dim, Query* const* queries, int lanes = LANES) {
    constexpr int PER = PER_WORD<T>;
    const int size = pages.shape.block_size / PER, width = pages.shape.head_dim;
    const float* weights[N];
    f32x16 sums[N][VECTORS];
    for (int n = 0; n < N; n++) {
        weights[n] = queries[n]->weights;
        for (int i = 0; i < VECTORS; i++) sums[n][i] = load(queries[n]->sums + dim + i * LANES);
    }
    for (int word = from; word < to;) {
        const int block = word / size, stop = std::min(to, (block + 1) * size);
        pages.fetch_after_values(block, (to - 1) / size);
        const auto* values = reinterpret_cast<const int32_t*>(pages.values(block)) + int64_t(word - block * size) * width + dim;
        for (; word < stop; word++, values += width) {
            i32x16 words[VECTORS];
            for (int i = 0; i < VECTORS; i++) words[i] = load_words<WHOLE>(values + i * LANES, lanes);
            for (int place = 0; place < PER; place++) {
                f32x16 v[VECTORS];
                for (int i = 0; i < VECTORS; i++) v[i] = part<T>(words[i], place);
                for (int n = 0; n < N; n++)
                    for (int i = 0; i < VECTORS; i++) sums[n][i] += v[i] * weights[n][word * PER + place];
            }
        }
    }
    for (int n = 0; n < N; n++)
        for (int i = 0; i < VECTORS; i++) store(queries[n]->sums + dim + i * LANES, sums[n][i]);
}

// Adds the values of token words [from, to), which all N queries see in full.
template <class T, int N> static void add_values(const Pages<T>& pages, int from, int to, Query* const* queries) {
    if (from >= to) return;
    const int width = pages.shape.head_dim, whole = width / LANES;
    int vector = 0;
    for (; vector + 4 <= whole; vector += 4) add_strip<T, N, 4>(pages, from, to, vector * LANES, queries);
    if (whole % 4 == 3) add_strip<T, N, 3>(pages, from, to, vector * LANES, queries);
    if (whole % 4 == 2) add_strip<T, N, 2>(pages, from, to, vector * LANES, queries);
    if (whole % 4 == 1) add_strip<T, N, 1>(pages, from, to, vector * LANES, queries);
    if (width % LANES) add_strip<T, N, 1, false>(pages, from, to, whole * LANES, queries, width % LANES);
}

// Adds one token's values, where the query does not see the other token of the word: its values may be stale.
template <class T> static void add_token(const Pages<T>& pages, int token, Query& query) {
    const int size = pages.shape.block_size, width = pages.shape.head_dim;
    const auto* values = reinterpret_cast<const int32_t*>(pages.values(token / size)) + int64_t(token % size / PER_WORD<T>) * width;
    for (int dim = 0; dim < width; dim += LANES) {
        const i32x16 words = load_words<false>(values + dim, std::min(LANES, width - dim));
        const f32x16 sums = load(query.sums + dim) + part<T>(words, token % PER_WORD<T>) * query.weights[token];
        store(query.sums + dim, sums);
    }
}

// Weighted values of `count` queries, each over what it sees, the words that all see together.
template <class T, int N> static void sum_values(const Pages<T>& pages, int count, Query* const* queries) {
    constexpr int PER = PER_WORD<T>;
    int from = 0, to = INT32_MAX;
    for (int n = 0; n < N; n++) {
        from = std::max(from, (queries[n]->first + PER - 1) / PER);
        to = std::min(to, queries[n]->end / PER);
    }
    to = std::max(from, to);
    for (int n = 0; n < count; n++) {
        Query& query = *queries[n];
        if (query.first % PER) add_token(pages, query.first, query);
        add_values<T, 1>(pages, (query.first + PER - 1) / PER, std::min(from, query.end / PER), queries + n);
    }
    add_values<T, N>(pages, from, to, queries);
    for (int n = 0; n < count; n++) {
        Query& query = *queries[n];
        add_values<T, 1>(pages, to, query.end / PER, queries + n);
        if (query.end % PER) add_token(pages, query.end - 1, query);
    }
}

// Attention of `count` queries that see something; the others of N repeat one of them.
template <class T, int N>
static void attend_together(const Pages<T>& pages, const Scoring& how, int count, Query* const* queries) {
    int first = INT32_MAX, end = 0;
    for (int n = 0; n < count; n++) {
        first = std::min(first, queries[n]->first);
        end = std::max(end, queries[n]->end);
    }
    multiply_keys<T, N>(pages, first, end, queries);
    for (int n = 0; n < count; n++) weigh(how, *queries[n]);
    sum_values<T, N>(pages, count, queries);
}

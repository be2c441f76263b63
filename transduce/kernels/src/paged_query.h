// One query of a paged read, and how its scores become weights.
#pragma once

#include <algorithm>
#include <cmath>

#include "pages.h"

constexpr int MOST_QUERIES = 4; // per load: with four vectors of values each, sums take half of the registers

// How scores become weights. bias [heads][2 * reach + 1] or null; no softcap: 0.
struct Scoring {
    float scale, softcap;
    const float* bias;
    int32_t reach;
};

// One head of one query row, which sees the keys [first, end).
struct Query {
    int64_t row;
    int head, position, first, end;
    float* q;       // [head_dim]
    float* weights; // [keys, and room for a vector more]; scores at first
    float* sums;    // [head_dim rounded up to whole vectors]
    uint8_t* bytes; // room for Integers, where pages are bytes
    float total, top;
};

// bias[clamp(distance, -reach, reach) + reach] for sixteen neighbouring distances.
TD_INLINE f32x16 biases(const float* bias, int reach, int distance) {
    if (distance >= -reach && distance + LANES - 1 <= reach) return load(bias + distance + reach);
    float lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = bias[std::clamp(distance + i, -reach, reach) + reach];
    return load(lanes);
}

// Scores of sixteen keys from their dot products; -inf for what the query does not see.
TD_INLINE f32x16 score(const Scoring& how, const Query& query, int key) {
    f32x16 scores = load(query.weights + key) * how.scale;
    if (how.bias)
        scores += biases(how.bias + int64_t(query.head) * (2 * how.reach + 1), how.reach, key - query.position);
    if (how.softcap > 0.f) scores = tanh(scores / how.softcap) * how.softcap;
    const i32x16 keys = key + iota();
    return (keys >= query.first) & (keys < query.end) ? scores : splat(-INFINITY);
}

// Dot products to weights, not yet divided by their total. One function for every caller: one way of rounding.
__attribute__((noinline)) static void weigh(const Scoring& how, Query& query) {
    const int start = query.first / LANES * LANES;
    f32x16 top = splat(-INFINITY), total = {};
    for (int key = start; key < query.end; key += LANES) {
        const f32x16 scores = score(how, query, key);
        store(query.weights + key, scores);
        top = max(scores, top);
    }
    query.top = highest(top);
    for (int key = start; key < query.end; key += LANES) {
        const f32x16 scores = load(query.weights + key);
        const f32x16 weights = scores == scores ? exp(scores - query.top) : scores; // NaN stays
        store(query.weights + key, weights);
        total += weights;
    }
    query.total = sum(total);
}

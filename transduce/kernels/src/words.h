// Matrices as words of four bytes: one float, two bf16, or four 8-bit integers, so that one kernel multiplies all three.
//
// Activations are packed as tiles [rows/16][steps][16 rows][16 words], weights as [outputs/16][steps][16 words][16
// outputs]: a step is sixteen words of the inner dimension, a tile of either is 1 KiB and what AMX loads at once.
#pragma once

#include <type_traits>

#include "vec.h"

constexpr int TILE = 1024; // bytes
constexpr int STEP = 16;   // words

// INT8X2: weights as INT8, activations as two integers each, so that values far beyond a row's others cost the others
// nothing. LLM_INT8: weights as INT8, and such values of an activation meet them as the floats they are.
enum Kind : int32_t { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, INT8X2 = 3, LLM_INT8 = 4 };

constexpr bool integers(Kind kind) { return kind == INT8 || kind == INT8X2 || kind == LLM_INT8; }
constexpr int terms(Kind kind) { return kind == INT8X2 ? 2 : 1; } // packed rows of one row of activations

constexpr int per_word(Kind kind) { return kind == FLOAT32 ? 1 : kind == BFLOAT16 ? 2 : 4; }
constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t steps_of(Kind kind, int64_t inner) { return round_up(inner, STEP * per_word(kind)) / (STEP * per_word(kind)); }

template <Kind K> struct Accumulator {
    using piece = f32xp;
    using one = float;
};
template <> struct Accumulator<INT8> {
    using piece = i32xp;
    using one = int32_t;
};
template <> struct Accumulator<INT8X2> : Accumulator<INT8> {};
template <> struct Accumulator<LLM_INT8> : Accumulator<INT8> {};

template <Kind K> TD_INLINE auto dot(typename Accumulator<K>::piece acc, i32xp a, i32xp b) {
    if constexpr (K == FLOAT32) return dot_f32(acc, a, b);
    else if constexpr (K == BFLOAT16) return dot_bf16(acc, a, b);
    else return dot_u8s8(acc, a, b);
}

// run(kind) with the kind as a type, which is its number at compile time.
template <Kind K> using Constant = std::integral_constant<Kind, K>;
template <class Run> void by_kind(int32_t kind, Run run) {
    switch (kind) {
    case FLOAT32: return run(Constant<FLOAT32>{});
    case BFLOAT16: return run(Constant<BFLOAT16>{});
    case INT8: return run(Constant<INT8>{});
    case INT8X2: return run(Constant<INT8X2>{});
    default: return run(Constant<LLM_INT8>{});
    }
}

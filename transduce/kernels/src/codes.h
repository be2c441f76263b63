// Weights of four bits: codes in memory, floats in a thread's scratch while rows are multiplied by them.
//
// Sixteen bytes hold two inputs of a panel's sixteen outputs, in the order in which their floats are stored: of FLOAT32
// the first input of each output in the low nibbles, the second's in the high ones; of BFLOAT16, where two inputs make a
// word, both inputs of outputs 0 to 7 in the low nibbles, of 8 to 15 in the high ones. A float is its code's level times
// its run's absmax, rounded once.
#pragma once

#include "linear.h"

constexpr int64_t code_bytes(Kind kind, int64_t inner) { return steps_of(kind, inner) * TILE * per_word(kind) / 8; }
constexpr int64_t padded_runs(Kind kind, int64_t inner, int64_t run) {
    return steps_of(kind, inner) * STEP * per_word(kind) / run;
}

TD_INLINE f32x16 levels_of(f32x16 levels, i32x16 codes) {
#ifdef __AVX512F__
    return reinterpret_cast<f32x16>(
        _mm512_maskz_permutexvar_ps(__mmask16(-1), reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512>(levels)));
#else
    return __builtin_shuffle(levels, codes);
#endif
}

TD_INLINE i32x16 bytes_at(const uint8_t* p) {
#ifdef __AVX512F__
    return reinterpret_cast<i32x16>(_mm512_maskz_cvtepu8_epi32(__mmask16(-1), reinterpret_cast<__m128i>(load_as<u8x16>(p))));
#else
    return __builtin_convertvector(load_as<u8x16>(p), i32x16);
#endif
}

// The panel of 16 outputs from `column` on as floats in `out`, laid out as words.h says.
template <Kind K> TD_INLINE void decode_panel(const Linear& w, int64_t column, uint8_t* out) {
    const f32x16 levels = load(w.levels);
    const int64_t panel = column / LANES, runs = padded_runs(K, w.in, w.run);
    const uint8_t* codes = w.panels + panel * code_bytes(K, w.in);
    const float* absmax = w.absmax + panel * runs * LANES;
    for (int64_t r = 0; r < runs; r++, absmax += LANES) {
        const f32x16 each = load(absmax);
        const i32x16 pairs = iota() >> 1;
        const f32x16 low = K == FLOAT32 ? each : levels_of(each, pairs), high = K == FLOAT32 ? each : levels_of(each, pairs + 8);
        for (int64_t i = 0; i < w.run; i += 2, codes += LANES, out += 2 * 64 / per_word(K)) {
            const i32x16 both = bytes_at(codes);
            const f32x16 a = levels_of(levels, both & 15) * low, b = levels_of(levels, both >> 4) * high;
            if constexpr (K == FLOAT32) store_pair(reinterpret_cast<float*>(out), a, b);
            else store_pair(reinterpret_cast<bf16*>(out), a, b);
        }
    }
}

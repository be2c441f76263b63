// The functions that follow a matrix product, sixteen values at a time.
#pragma once

#include "linear.h"

// 1 / v to 1 unit in the last place or so.
TD_INLINE f32x16 reciprocal(f32x16 v) {
#ifdef __AVX512F__
    f32x16 guess = reinterpret_cast<f32x16>(_mm512_maskz_rcp14_ps(__mmask16(-1), reinterpret_cast<__m512>(v)));
    f32x16 better = guess * (2.f - v * guess);
    return better == better ? better : guess; // at infinity the refinement is 0 * infinity
#else
    return 1.f / v;
#endif
}

TD_INLINE f32x16 sigmoid(f32x16 v) { return reciprocal(1.f + exp(-v)); }

// v · Φ(v) to 3e-5, two hundred times finer than bf16 at its largest errors: an odd polynomial for Φ − ½, fitted by
// reweighted least squares on [-4.5, 4.5].
TD_INLINE f32x16 short_gelu(f32x16 v) {
    const float odd[] = {0.39888379f,      -0.066337049f,   0.00983318221f,   -0.00112267758f, 9.78711832e-05f,
                         -6.36523555e-06f, 2.95888412e-07f, -9.1936867e-09f, 1.69728925e-10f, -1.40005293e-12f};
    const f32x16 x = min(max(v, splat(-4.5f)), splat(4.5f)), z = x * x;
    f32x16 p = splat(odd[9]);
    for (int i = 8; i >= 0; i--) p = p * z + odd[i];
    return v * min(max(x * p + 0.5f, splat(0.f)), splat(1.f));
}

// `exact`: float32 results deserve an error function to float32's precision.
template <Activation A, bool exact> TD_INLINE f32x16 activated(f32x16 v) {
    if constexpr (A == RELU) return max(v, splat(0.f));
    if constexpr (A == GELU && exact) return 0.5f * v * (1.f + erf(v * 0.707106781f));
    if constexpr (A == GELU) return short_gelu(v);
    if constexpr (A == GELU_NEW) return v * sigmoid(1.595769122f * (v + 0.044715f * v * v * v));
    if constexpr (A == SILU) return v * sigmoid(v);
    return v;
}

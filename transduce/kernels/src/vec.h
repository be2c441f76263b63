// Sixteen lanes at a time, on every instruction set: GCC's vector extensions, and intrinsics where an instruction has
// no other name (dot products, rounding to bf16). Owns lanes, loads, stores and elementary functions; knows no kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define TD_EXPORT extern "C" __attribute__((visibility("default")))
#define TD_INLINE static inline __attribute__((always_inline))
#define TD_MEMBER inline __attribute__((always_inline))

constexpr int LANES = 16;

using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = int32_t __attribute__((vector_size(64)));
using u32x16 = uint32_t __attribute__((vector_size(64)));
using u16x16 = uint16_t __attribute__((vector_size(32)));
using u8x16 = uint8_t __attribute__((vector_size(16)));
using i8x16 = int8_t __attribute__((vector_size(16)));

// A bfloat16: the upper half of a float.
struct bf16 {
    uint16_t bits;
};

template <class V> TD_INLINE V load_as(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class V> TD_INLINE void store_as(void* p, V v) { std::memcpy(p, &v, sizeof v); }

TD_INLINE f32x16 splat(float x) { return x - f32x16{}; }
TD_INLINE i32x16 splat(int32_t x) { return x - i32x16{}; }
TD_INLINE i32x16 iota() { return i32x16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
TD_INLINE f32x16 as_f32(i32x16 v) { return reinterpret_cast<f32x16>(v); }
TD_INLINE i32x16 as_i32(f32x16 v) { return reinterpret_cast<i32x16>(v); }

// GCC compares lane by lane what is wider than a register, so comparisons go in pieces of one.
#ifdef __AVX512F__
constexpr int PIECE = 16;
#elif defined(__AVX2__)
constexpr int PIECE = 8;
#else
constexpr int PIECE = 4;
#endif
using f32xp = float __attribute__((vector_size(4 * PIECE)));
using i32xp = int32_t __attribute__((vector_size(4 * PIECE)));

template <class P, class V, class F> TD_INLINE V by_piece(V a, V b, F f) {
    V out;
    for (int i = 0; i < LANES; i += PIECE) {
        P x, y;
        std::memcpy(&x, reinterpret_cast<char*>(&a) + 4 * i, sizeof x);
        std::memcpy(&y, reinterpret_cast<char*>(&b) + 4 * i, sizeof y);
        const auto z = f(x, y);
        std::memcpy(reinterpret_cast<char*>(&out) + 4 * i, &z, sizeof z);
    }
    return out;
}
TD_INLINE f32x16 min(f32x16 a, f32x16 b) {
    return by_piece<f32xp>(a, b, [](f32xp x, f32xp y) { return x < y ? x : y; });
}
TD_INLINE f32x16 max(f32x16 a, f32x16 b) {
    return by_piece<f32xp>(a, b, [](f32xp x, f32xp y) { return x > y ? x : y; });
}
TD_INLINE i32x16 max(i32x16 a, i32x16 b) {
    return by_piece<i32xp>(a, b, [](i32xp x, i32xp y) { return x > y ? x : y; });
}
// All bits of a lane where it holds.
TD_INLINE i32x16 less(f32x16 a, f32x16 b) {
    return as_i32(by_piece<f32xp>(a, b, [](f32xp x, f32xp y) { return x < y; }));
}
TD_INLINE i32x16 numbers(f32x16 v) {
    return as_i32(by_piece<f32xp>(v, v, [](f32xp x, f32xp y) { return x == y; }));
}
TD_INLINE f32x16 select(i32x16 held, f32x16 a, f32x16 b) {
    return as_f32((held & as_i32(a)) | (~held & as_i32(b)));
}
TD_INLINE f32x16 abs(f32x16 v) { return as_f32(as_i32(v) & 0x7fffffff); }
TD_INLINE f32x16 to_f32(i32x16 v) { return __builtin_convertvector(v, f32x16); }

// Scalars.
TD_INLINE float to_f32(float x) { return x; }
TD_INLINE float to_f32(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
template <class T> TD_INLINE T from_f32(float x);
template <> inline __attribute__((always_inline)) float from_f32<float>(float x) { return x; }
// To the nearest, ties to even; NaN stays NaN.
template <> inline __attribute__((always_inline)) bf16 from_f32<bf16>(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return {uint16_t((bits >> 16) | 0x40)};
    return {uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

// Sixteen at p.
TD_INLINE f32x16 load(const float* p) { return load_as<f32x16>(p); }
TD_INLINE f32x16 load(const bf16* p) {
#ifdef __AVX512F__
    u32x16 wide = reinterpret_cast<u32x16>(_mm512_maskz_cvtepu16_epi32(
        __mmask16(-1), reinterpret_cast<__m256i>(load_as<u16x16>(p))));
#else
    u32x16 wide = __builtin_convertvector(load_as<u16x16>(p), u32x16);
#endif
    return as_f32(i32x16(wide << 16));
}
TD_INLINE void store(float* p, f32x16 v) { store_as(p, v); }
TD_INLINE u16x16 round_bf16(f32x16 v) {
#ifdef __AVX512BF16__
    return reinterpret_cast<u16x16>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
#else
    u32x16 bits = u32x16(as_i32(v));
    u32x16 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    u32x16 nan = (bits >> 16) | 0x40;
    return __builtin_convertvector(u32x16(as_i32(select(numbers(v), as_f32(i32x16(rounded)), as_f32(i32x16(nan))))), u16x16);
#endif
}
TD_INLINE void store(bf16* p, f32x16 v) { store_as(p, round_bf16(v)); }

// Thirty-two at p.
TD_INLINE void store_pair(float* p, f32x16 a, f32x16 b) {
    store(p, a);
    store(p + LANES, b);
}
TD_INLINE void store_pair(bf16* p, f32x16 a, f32x16 b) {
#ifdef __AVX512BF16__
    store_as(p, _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(a)));
#else
    store(p, a);
    store(p + LANES, b);
#endif
}

// The first n of sixteen at p; the other lanes are zero (load) or left alone (store). 0 <= n <= 16.
template <class T> TD_INLINE f32x16 load(const T* p, int n) {
    if (n == LANES) return load(p);
    T lanes[LANES] = {};
    std::memcpy(lanes, p, n * sizeof(T));
    return load(lanes);
}
template <class T> TD_INLINE void store(T* p, f32x16 v, int n) {
    if (n == LANES) return store(p, v);
    T lanes[LANES];
    store(lanes, v);
    std::memcpy(p, lanes, n * sizeof(T));
}

// Whether a comparison held in any lane.
TD_INLINE bool any(i32x16 held) {
#ifdef __AVX512F__
    return _mm512_movepi32_mask(reinterpret_cast<__m512i>(held)) != 0;
#else
    int32_t lanes[LANES], all = 0;
    store_as(lanes, held);
    for (int32_t lane : lanes) all |= lane;
    return all != 0;
#endif
}

// Across lanes, in one fixed order.
TD_INLINE float sum(f32x16 v) {
    float x[LANES];
    store(x, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] += x[i + width];
    return x[0];
}
TD_INLINE float highest(f32x16 v) {
    float x[LANES];
    store(x, v);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
    return x[0];
}

// Lanes of a and b for a butterfly over `width`: those with that bit of their number clear, a's before b's; then those
// with the bit set.
template <int width, class V> TD_INLINE V lower(V a, V b) {
    return __builtin_shuffle(a, b, (iota() & ~width) + (iota() & width) * (LANES / width));
}
template <int width, class V> TD_INLINE V upper(V a, V b) {
    return __builtin_shuffle(a, b, (iota() & ~width) + (iota() & width) * (LANES / width) + width);
}

// Lane i of the result is op over all lanes of v[i]; v is overwritten.
template <int width = LANES / 2, class V, class Op> TD_INLINE V across(V (&v)[LANES], Op op) {
    for (int i = 0; i < width; i++)
        v[i] = op(lower<width>(v[i], v[i + width]), upper<width>(v[i], v[i + width]));
    if constexpr (width > 1) return across<width / 2>(v, op);
    return v[0];
}

// Sixteen rows of sixteen words become columns.
template <int width = LANES / 2> TD_INLINE void transpose(i32x16 (&v)[LANES]) {
    for (int i = 0; i < LANES; i++) {
        if (i & width) continue;
        const i32x16 a = v[i], b = v[i + width];
        v[i] = lower<width>(a, b);
        v[i + width] = upper<width>(a, b);
    }
    if constexpr (width > 1) transpose<width / 2>(v);
}

// acc + a · b, each lane over its word: one float, two bf16 or four bytes (a unsigned, b signed).
TD_INLINE f32xp as_floats(i32xp v) { return reinterpret_cast<f32xp>(v); }
TD_INLINE f32xp dot_f32(f32xp acc, i32xp a, i32xp b) { return acc + as_floats(a) * as_floats(b); }
TD_INLINE f32xp dot_bf16(f32xp acc, i32xp a, i32xp b) {
#ifdef __AVX512BF16__
    return reinterpret_cast<f32xp>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(acc), reinterpret_cast<__m512bh>(a),
                                                    reinterpret_cast<__m512bh>(b)));
#else
    const int32_t upper = int32_t(0xffff0000);
    acc += as_floats(a << 16) * as_floats(b << 16);
    return acc + as_floats(a & upper) * as_floats(b & upper);
#endif
}
TD_INLINE i32xp dot_u8s8(i32xp acc, i32xp a, i32xp b) {
#if defined(__AVX512VNNI__)
    return reinterpret_cast<i32xp>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(acc), reinterpret_cast<__m512i>(a),
                                                       reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    // Even and odd bytes as 16-bit integers, which multiply and add in pairs without overflow.
    const __m256i x = reinterpret_cast<__m256i>(a), y = reinterpret_cast<__m256i>(b);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0xff)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(y, 8));
    return acc + reinterpret_cast<i32xp>(_mm256_add_epi32(even, odd));
#else
    using u32xp = uint32_t __attribute__((vector_size(4 * PIECE)));
    for (int byte = 0; byte < 4; byte++)
        acc += i32xp((u32xp(a) >> (8 * byte)) & 0xff) * ((b << (24 - 8 * byte)) >> 24);
    return acc;
#endif
}

TD_INLINE i32x16 dot_bytes(i32x16 acc, i32x16 a, i32x16 b) {
    i32x16 out;
    for (int i = 0; i < LANES; i += PIECE) {
        i32xp sum, x, y;
        std::memcpy(&sum, reinterpret_cast<char*>(&acc) + 4 * i, sizeof sum);
        std::memcpy(&x, reinterpret_cast<char*>(&a) + 4 * i, sizeof x);
        std::memcpy(&y, reinterpret_cast<char*>(&b) + 4 * i, sizeof y);
        sum = dot_u8s8(sum, x, y);
        std::memcpy(reinterpret_cast<char*>(&out) + 4 * i, &sum, sizeof sum);
    }
    return out;
}

// e^x to 2 units in the last place; 0 below -87.3, finite up to 88.
TD_INLINE f32x16 exp(f32x16 x) {
    x = min(max(x, splat(-87.5f)), splat(88.f));
    const f32x16 magic = splat(12582912.f); // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
    f32x16 shifted = x * 1.44269504f + magic;
    f32x16 n = shifted - magic;
    f32x16 r = x - n * 0.693145752f - n * 1.42860677e-6f;
    f32x16 p = splat(1.3981999e-3f);
    p = p * r + 8.3330255e-3f;
    p = p * r + 4.1666668e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    i32x16 exponent = (as_i32(shifted) - as_i32(magic)) << 23;
    f32x16 scaled = as_f32(as_i32(p) + exponent);
    return select(less(x, splat(-87.4f)), splat(0.f), scaled);
}

// 2^x: to 2 units in the last place, or coarsely to 9e-5, which is nothing beside rounding to bf16. 0 below -125, for x up
// to 127; exactly 1 at 0.
template <bool coarse = false> TD_INLINE f32x16 exp2(f32x16 x) {
#ifdef __AVX512DQ__
    const int down = 1, quiet = 8;
    f32x16 r = reinterpret_cast<f32x16>(_mm512_reduce_ps(reinterpret_cast<__m512>(x), down | quiet));
#else
    const f32x16 magic = splat(12582912.f); // as in exp; its low nine bits are zero, so shifting leaves the integer
    f32x16 shifted = (x - 0.5f) + magic;
    f32x16 r = x - (shifted - magic);
#endif
    f32x16 p;
    if constexpr (coarse) {
        p = r * 7.706706866e-2f + 2.276449618e-1f;
        p = p * r + 6.951167932e-1f;
    } else {
        p = r * 1.867130496e-3f + 9.017029415e-3f;
        p = p * r + 5.579991376e-2f;
        p = p * r + 2.401644500e-1f;
        p = p * r + 6.931513118e-1f;
    }
    p = p * r + 1.f;
#ifdef __AVX512DQ__
    const __mmask16 above = _mm512_cmp_ps_mask(reinterpret_cast<__m512>(x), _mm512_set1_ps(-125.f), _CMP_NLT_UQ);
    return reinterpret_cast<f32x16>(
        _mm512_maskz_scalef_ps(above, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(x)));
#else
    u32x16 scaled = u32x16(as_i32(p)) + (u32x16(as_i32(shifted)) << 23); // far below, anything
    return select(less(x, splat(-125.f)), splat(0.f), as_f32(i32x16(scaled)));
#endif
}

TD_INLINE f32x16 tanh(f32x16 x) {
    f32x16 e = exp(min(abs(x), splat(10.f)) * -2.f);
    f32x16 t = (1.f - e) / (1.f + e);
    f32x16 small = x - x * x * x * 0.333333333f; // where 1 - e would cancel
    t = select(less(abs(x), splat(0.01f)), abs(small), t);
    return as_f32(as_i32(t) | (as_i32(x) & int32_t(0x80000000)));
}

// erf(x) to 2e-7 (Abramowitz and Stegun, 7.1.26).
TD_INLINE f32x16 erf(f32x16 x) {
    f32x16 a = abs(x);
    f32x16 t = 1.f / (a * 0.3275911f + 1.f);
    f32x16 p = splat(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    f32x16 y = 1.f - p * t * exp(-a * a);
    return as_f32(as_i32(y) | (as_i32(x) & int32_t(0x80000000)));
}
